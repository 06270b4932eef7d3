"""Short cuts: the same batches with the least between the dataset, or a worker, and the consumer.

Where nothing has to be decided on the way (no workers, no transform, no policy, no time limit), a batch needs no task,
no outcome and no window: `PlainItems` and `PlainWhole` give it directly. Whatever goes wrong takes a detour: the
short cut leaves the outcome in the session, or nothing, and the iterator goes on the usual way, which names the fault.
`Delivered` is the consumer's end for workers: an outcome with nothing to tell but a batch goes straight to it.

A test holds both ways against each other, batch by batch and error by error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter, length_hint
from time import perf_counter, thread_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from feedline.collate.buffers import BatchMemory
from feedline.loader.batch import BatchLoader, Group, Outcome, Task
from feedline.loader.failures import is_ctrl_c
from feedline.loader.fetch import is_refusal, refuse_awaitable
from feedline.loader.groups import split_batch
from feedline.loader.ordering import Window
from feedline.loader.plan import OrderPlan
from feedline.loader.stats import Clock, Tally, next_sample

__all__ = ["DETOUR", "Delivered", "PlainItems", "PlainLane", "PlainWhole"]

#: "Go the usual way": the epoch is at its end, or something failed.
DETOUR: Final = object()
#: Indices that are made at a time: a slice of an order and its `tolist` have a start that is worth sharing.
INDEX_BLOCK = 2048


class PlainLane:
    """Gives the value of batch `number`, or `DETOUR`.

    Attributes:
        rows: indices of the batch that was given last.
        count: how many.
        outcome: what a worker gave, which keeps the batch until the iterator has moved on (`Delivered` alone);
        values, place: what keeps it in its stead, if it was gathered with others.
    """

    rows: Any = ()
    count = 0
    outcome: Any
    values: list[Any] | None = None
    place = 0

    def __call__(self, number: int) -> Any:
        """Return the batch, or `DETOUR`."""
        raise TypeError(f"{type(self).__name__} defines no __call__")


class PlainItems(PlainLane):
    """Item by item, collated."""

    def __init__(
        self, load: BatchLoader, plan: OrderPlan, outcomes: Window[Outcome], tally: Tally, clock: Clock
    ) -> None:
        self._tally = tally
        self._clock = clock
        self._load = load
        self._plan = plan
        self._outcomes = outcomes
        self._dataset = load.items.dataset
        self._collate = _bound_collate(load)
        self._most_blocks = max(1, INDEX_BLOCK // plan.batch_size)
        # The first batch waits for no other; from there on twice as many at a time.
        self._blocks = 1
        self._first = 0
        self._sample_at = -1
        self._indices: list[list[int]] = []

    def __call__(self, number: int) -> Any:
        """Fetch and collate batch `number`."""
        place = number - self._first
        if not 0 <= place < len(self._indices):
            if not self._read(number):
                return DETOUR
            place = 0
        rows = self._indices[place]
        dataset, positions = self._dataset, iter(rows)
        if number >= self._sample_at:
            return self._example(number, rows)
        start = perf_counter()
        try:
            items = [dataset[index] for index in positions]
            if hasattr(items[0], "__await__"):
                refuse_awaitable(items, self._load.items.dataset)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            position = 0 if is_refusal(error) else max(0, len(rows) - length_hint(positions) - 1)
            self._outcomes.put(self._load.failed_fetch(Task(number, self._plan.epoch, rows), error, position))
            return DETOUR
        try:
            value = self._collate(items)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            task = Task(number, self._plan.epoch, rows)
            self._outcomes.put(self._load.failed_collation(task, error))
            return DETOUR
        ended = perf_counter()
        clock = self._clock
        clock.plain += ended - start
        clock.seen = ended
        self.rows = rows
        self.count = len(rows)
        return value

    def _example(self, number: int, rows: list[int]) -> Any:
        """Give batch `number`, and note what its time goes into."""
        self._sample_at = next_sample(number)
        tally, clock, before = self._tally, self._clock, self._clock.plain
        collate, split = self._collate, [0.0]

        def timed_collate(items: list[Any]) -> Any:
            split[0] = perf_counter()
            return collate(items)

        begun = tally.begin_sample()
        self._collate = timed_collate
        try:
            value = self(number)
        except BaseException:  # a Ctrl-C
            self._sample_at = number
            raise
        finally:
            self._collate = collate
        seconds, ended = clock.plain - before, clock.seen
        if value is DETOUR:
            self._sample_at = number + 1
            return DETOUR
        if clock.begun is None:
            clock.begin(ended - seconds, ended)
        tally.sample_cpu(seconds, tally.end_sample(begun))
        tally.sample_plain(seconds - (ended - split[0]), ended - split[0])
        tally.size(value)
        return value

    def _read(self, number: int) -> bool:
        task = self._plan.task(number, self._blocks)
        if task is None or task.error is not None:
            return False
        self._blocks = min(2 * self._blocks, self._most_blocks)
        assert isinstance(task.indices, np.ndarray)
        indices, size = task.indices.tolist(), self._plan.batch_size
        blocks = [indices[start : start + size] for start in range(0, len(indices), size)]
        # Both or none: no call in between (see Note [Ctrl-C] in ordering).
        self._first, self._indices = number, blocks
        return True


def _bound_collate(load: BatchLoader) -> Callable[[list[Any]], Any]:
    collate = load.collate_fn
    if load.single_items:
        return itemgetter(0) if collate is None else lambda items: collate(items[0])
    assert collate is not None
    if not load.takes_memory:
        return collate
    # No transform runs here, so nobody asks for rows, and one memory serves all batches.
    memory = BatchMemory(load.pool, 0)
    return partial(collate, memory=memory)


class PlainWhole(PlainLane):
    """Whole batches by `dataset.take`, small ones in groups."""

    def __init__(self, load: BatchLoader, plan: OrderPlan, group: int, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        assert load.take is not None
        self._take = load.take
        self._allocate = load.pool.allocate
        self._plan = plan
        self._size = plan.batch_size
        self._place = 0
        self._most = group
        # The first batch waits for no other; from there on twice as many at a time.
        self._group = 1
        self._first = 0
        self._sample_at = -1
        self._values: list[Any] = []
        self._indices: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def __call__(self, number: int) -> Any:
        """Gather batch `number`, and with it those that follow."""
        place = number - self._first
        if not 0 <= place < len(self._values):
            if not self._read(number):
                return DETOUR
            place = 0
        value = self._values[place]
        if value is None:
            # A Ctrl-C came before it was delivered.
            if not self._read(number):
                return DETOUR
            place, value = 0, self._values[0]
        self._place = place
        self.count = min(self._size, len(self._indices) - place * self._size)
        # Not kept: a batch's memory is free again when the user drops it.
        self._values[place] = None
        self._clock.seen = perf_counter()
        return value

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Indices of the batch that was given last; made when they are asked for."""
        start = self._place * self._size
        return self._indices[start : start + self._size]

    def _read(self, number: int) -> bool:
        task = self._plan.task(number, self._group)
        if task is None or task.error is not None:
            return False
        self._values = []
        sampled = number >= self._sample_at
        cpu = thread_time() if sampled else 0.0
        start = perf_counter()
        try:
            value = self._take(task.indices, self._allocate)
            values = [value] if task.count == 1 else split_batch(value, task.count, self._size)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            return False
        ended = perf_counter()
        clock = self._clock
        clock.plain += ended - start
        clock.seen = ended
        if sampled:
            self._sample_at = next_sample(number)
            self._tally.sample_cpu(ended - start, thread_time() - cpu)
            self._tally.size(value, task.count)
            if clock.begun is None:
                clock.begin(start, ended)
        assert isinstance(task.indices, np.ndarray)
        self._first, self._values, self._indices = number, values, task.indices
        self._group = min(2 * self._group, self._most)
        return True


class Delivered(PlainLane):
    """Batches that workers have put into the window, in order. They stay there until the iterator has moved on."""

    def __init__(self, outcomes: Window[Outcome], tally: Tally, clock: Clock) -> None:
        self._outcomes = outcomes
        self._tally = tally
        self._clock = clock
        self._sample_at = -1

    def __call__(self, number: int) -> Any:
        """Return batch `number` if it is here, and there is nothing else to say about it."""
        found = self._outcomes.at(number)
        if type(found) is Group:
            place = number - found.number
            values = found.values
            value = values[place]
            size = found.batch_size
            self.count = min(size, len(found.indices) - place * size)
            self.place = place
            self._tally.fetch_seconds += found.seconds
            if not place:
                count = len(values)
                self._tally.sample_cpu(count * found.seconds, count * found.cpu_seconds)
        elif found is None or found.error is not None or found.failures or found.empty:
            return DETOUR
        else:
            value, values = found.value, None
            self.count = len(found.indices)
            self._tally.add_times(found)
        if number >= self._sample_at:
            self._sample_at = next_sample(number)
            self._tally.size(value)
        self._clock.seen = perf_counter()
        self.outcome, self.values = found, values
        return value

    @property
    def rows(self) -> Any:
        """Indices of the batch that was given last; made when they are asked for."""
        found = self.outcome
        return found.rows(self.place) if type(found) is Group else found.indices
