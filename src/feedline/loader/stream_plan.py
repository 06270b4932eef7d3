"""`StreamPlan`: a stream read into batches, how far it is, and how it is set to where a batch begins.

It is asked by whoever reads: the consumer itself, or a thread of its own (`stream_session`), for which the consumer then has a
`DeferredPlan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

from feedline.loader.batch import Task
from feedline.loader.failures import as_batch_error, attach_note, is_ctrl_c
from feedline.loader.pulling import Puller, TimedItems
from feedline.loader.walk import Rewalk

__all__ = ["DeferredPlan", "Reading", "StreamPlan"]


class Reading:
    """A stream on its way, and how to set one anew to where this one stands.

    Args:
        stream: what is read.
        source: its iterator.
        read: items that the iterator has passed already.
        state: how the stream was set there.
        reopen: starts the stream anew at a state (or from its start), and returns (iterator, items passed).
    """

    def __init__(
        self,
        stream: Any,
        source: Iterator[Any],
        read: int,
        state: Mapping[str, Any] | None,
        reopen: Callable[[Mapping[str, Any] | None], tuple[Iterator[Any], int]],
    ) -> None:
        self._keeper = _keeper(stream, source)
        self._stream = stream
        self._reopen = reopen
        self._last = state
        self.walk = Rewalk(stream if source is stream else _Started(source), self._again)
        self.walk.drawn = read

    def _again(self) -> tuple[Iterator[Any], int]:
        source, read = self._reopen(self._last)
        self._keeper = _keeper(self._stream, source)
        return source, read

    def state(self) -> Mapping[str, Any] | None:
        """Return how the stream can be set to where it stands; `None` if it has no state of its own."""
        if self._keeper is None:
            return None
        self._last = {"read": self.walk.drawn, "state": self._keeper.state_dict()}
        return self._last


class _Started:
    """An iterable whose iterator was made already."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return self._source


def _keeper(stream: Any, source: Iterator[Any]) -> Any:
    """Return what tells the state: an iterator that has one of its own speaks for itself, however many there are."""
    if not (hasattr(stream, "state_dict") and hasattr(stream, "load_state_dict")):
        return None
    return source if hasattr(source, "state_dict") else stream


class StreamPlan:
    """Batches read from a stream, one after the other.

    Concurrency: `task` is called by one thread, the reader. The consumer asks for ends and states, which are assigned
    in single steps.
    """

    def __init__(
        self,
        reading: Reading,
        epoch: int,
        batch_size: int,
        *,
        drop_last: bool,
        first: int,
        skip: int,
        step: int,
        index: int,
        stride: int,
        timeout: float | None = None,
    ) -> None:
        self.first = first
        self.epoch = epoch
        self._reading: Reading | None = reading
        self._puller = None if timeout is None else Puller(timeout)
        self._size = batch_size
        self._drop_last = drop_last
        #: Where in the stream the next item of this rank lies.
        self._place = reading.walk.drawn + skip
        self._step = step
        self._index = index
        self._stride = stride
        self._following = first
        self._items: list[Any] = []
        self._counts: dict[int, int] = {first: 0}
        self._units = 0
        self._states: dict[int, Mapping[str, Any] | None] = {first: None}
        self._tasks: dict[int, Task] = {}
        self._received: set[int] = set()
        self._lowest = first
        self._error: Exception | None = None
        self._end: int | None = None

    @property
    def can_group(self) -> bool:
        """One by one."""
        return False

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return batch `number`, reading on as far as it needs; `None` past the end."""
        while self._following <= number and self._end is None:
            start = perf_counter()
            task = self._read_batch()
            if task is None:
                self._end = self._following
            else:
                task.fetch_seconds = perf_counter() - start
                self._keep(task)
        return self._tasks.get(number)

    def _keep(self, task: Task) -> None:
        following = task.number + 1
        if task.number not in self._received:
            self._tasks[task.number] = task
        # A rank whose last batch is short counts as the others, whose batch of the same number may be full.
        count = len(self._items)
        units = self._units + (self._size if count and self._stride > 1 else count)
        self._counts[following] = units
        self._states[following] = self._state_here()
        # No call from here on: what a Ctrl-C cuts off before is done again. See Note [Ctrl-C] in ordering.
        self._units = units
        self._index += count * self._stride
        self._place += count * self._step
        self._items = []
        if task.error is not None:
            self._error = None
        self._following = following
        if self._reading is None and self._error is None:
            self._end = following

    def _state_here(self) -> Mapping[str, Any] | None:
        """Return how the stream is set to where it stands; if it can't say, that ends it, as any error of it does."""
        if self._reading is None:
            return None
        try:
            return self._reading.state()
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            self._fail(error, f"the stream's state_dict() failed behind item {self._reading.walk.drawn}")
            self._reading = None
            return None

    def _fail(self, error: BaseException, what: str) -> None:
        report = as_batch_error(error, None)
        attach_note(report, f"{what}, epoch {self.epoch}")
        self._error = report

    def _read_batch(self) -> Task | None:
        if self._reading is not None and self._puller is not None:
            self._pull(self._reading.walk, self._puller)
        elif self._reading is not None:
            self._fill(self._reading)
        items = self._items
        if items and (len(items) == self._size or self._error is not None or not self._drop_last):
            stop = self._index + len(items) * self._stride
            return Task(
                self._following, self.epoch, list(range(self._index, stop, self._stride)), items=items
            )
        if self._error is not None:
            return Task(self._following, self.epoch, (), error=self._error)
        return None

    def _fill(self, reading: Reading) -> None:
        """Take items until a batch is full. What a Ctrl-C interrupts is kept: the items lie in `self`."""
        walk = reading.walk
        try:
            while len(self._items) < self._size:
                place = self._place + len(self._items) * self._step
                if walk.drawn < place:
                    walk.skip(place - walk.drawn)
                before = len(self._items)
                walk.draw(self._items, self._size if self._step == 1 else before + 1)
                if len(self._items) == before:
                    break
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            self._fail(error, f"the stream failed at item {walk.drawn}")
        if self._error is not None or len(self._items) < self._size:
            self._reading = None

    def _pull(self, walk: Rewalk, puller: Puller) -> None:
        """Take items until a batch is full, each within the time limit; behind one that does not come, there is no more."""
        if len(self._items) < self._size:
            pull = puller.pull(walk, self._place, self._step, self._size)
            # After a Ctrl-C from here on the same is done again.
            if pull.error is not None:
                self._fail(pull.error, f"the stream failed at item {pull.at}")
            # In this order: the one that is given up may still come, its time first.
            items = pull.items[:]
            self._items = TimedItems(items, pull.seconds[: len(items)])
        if self._error is not None or len(self._items) < self._size:
            self._reading = None
            puller.close()
        puller.forget()

    def close(self) -> None:
        """Nobody asks for more: where a thread reads, it ends after its item."""
        if self._puller is not None:
            self._puller.close()

    def items_before(self, number: int) -> int:
        """Return this rank's items in the batches before `number`."""
        following = self._following
        if number <= following:
            return self._counts[number]
        # Received before this run began (`in_order=False`), and not read again yet: batches before the last are full.
        return self._counts[following] + (number - following) * self._size

    def stream_state(self, number: int) -> Mapping[str, Any] | None:
        """Return how the stream is set to where batch `number` begins, if it can be."""
        return self._states[number] if number <= self._following else None

    def end(self) -> int | None:
        """Return the number after the last batch, once the stream has ended."""
        return self._end

    def forget(self, number: int) -> None:
        """Batch `number` is received: drop its items; where it began is needed while it is the position."""
        self._tasks.pop(number, None)
        if number < self._lowest:
            return
        # `_lowest` is the position until the consumer has moved on; out of order, it may stay so. Where the reader stands
        # is what places beyond it are counted from.
        passed = min(self._lowest, self._following)
        for place in list(self._counts):
            if place < passed:
                self._counts.pop(place, None)
                self._states.pop(place, None)
        self._received.add(number)
        while self._lowest in self._received:
            self._received.discard(self._lowest)
            self._lowest += 1


class DeferredPlan:
    """The consumer's view of a plan that a reader reads: numbers, without items."""

    def __init__(self, plan: StreamPlan) -> None:
        self.first = plan.first
        self._plan = plan

    @property
    def can_group(self) -> bool:
        """One by one."""
        return False

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return a task that only has its number; `None` past an end that is known."""
        end = self._plan.end()
        return None if end is not None and number >= end else Task(number, self._plan.epoch, ())

    def items_before(self, number: int) -> int:
        """Return this rank's items in the batches before `number`."""
        return self._plan.items_before(number)

    def stream_state(self, number: int) -> Mapping[str, Any] | None:
        """Return how the stream is set to where batch `number` begins."""
        return self._plan.stream_state(number)

    def end(self) -> int | None:
        """Return the number after the last batch, once the stream has ended."""
        return self._plan.end()

    def forget(self, number: int) -> None:
        """Batch `number` is received."""
        self._plan.forget(number)

    def close(self) -> None:
        """Nobody asks for more."""
        self._plan.close()
