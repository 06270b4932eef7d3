"""Which indices make which batch: pure, without threads, tested alone.

A plan numbers the batches of one epoch, from `first` on (0, or where a state says). It computes a task from its number,
by a slice of an `Order`; only for a user's own iterables it has to walk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from feedline.loader.batch import Task
from feedline.loader.failures import as_batch_error, attach_note, is_ctrl_c
from feedline.loader.indices import as_index_array, as_key
from feedline.loader.walk import Rewalk
from feedline.samplers.orders import ReadAhead
from feedline.samplers.protocol import BatchOrder, Order

__all__ = ["BatchOrderPlan", "IterablePlan", "OrderPlan", "Plan"]


class Plan(Protocol):
    """The batches of one epoch."""

    first: int

    @property
    def can_group(self) -> bool:
        """Whether several batches may be one task: their indices need no look one by one."""
        ...

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return batch `number` (and up to `count - 1` more, if the plan can group); `None` past the end."""
        ...

    def items_before(self, number: int) -> int:
        """Return how many units (items of this rank, or batches) the batches from `first` to `number` have."""
        ...

    def end(self) -> int | None:
        """Return the number after the last batch, or `None` where it is not known yet."""
        ...

    def forget(self, number: int) -> None:
        """Batch `number` is received: it won't be asked for again."""
        ...


class OrderPlan:
    """Chunks of an `Order`.

    Args:
        order: this rank's indices, from the plan's first batch on.
        trusted: the order comes from a sampler of feedline: its slices are int64, and never negative.
    """

    def __init__(
        self, order: Order, epoch: int, batch_size: int, *, drop_last: bool, first: int = 0, trusted: bool
    ) -> None:
        self.first = first
        # Batches are asked for one after the other: orders that compute each slice do so in larger blocks.
        self._order = ReadAhead(order) if trusted else order
        self.epoch = epoch
        self.batch_size = batch_size
        self._trusted = trusted
        self._length = len(order)
        self._real: int | None = getattr(order, "num_real", None)
        whole, rest = divmod(self._length, batch_size)
        self._end = first + whole + (1 if rest and not drop_last else 0)

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return batch `number`, or up to `count` batches from it on as one task."""
        count = min(count, self._end - number)
        if count <= 0:
            return None
        start = (number - self.first) * self.batch_size
        stop = min(start + count * self.batch_size, self._length)
        try:
            indices = self._order[start:stop]
            if not self._trusted:
                indices = as_index_array(indices, start)
                if len(indices) != stop - start:
                    raise ValueError(
                        f"the sampler's order gave {len(indices)} indices for its places {start} to {stop - 1}, of "
                        f"{self._length} in all; a slice must have as many as a list's"
                    )
        except Exception as error:
            return Task(number, self.epoch, (), error=as_batch_error(error, None))
        real = None if self._real is None else max(0, min(self._real - start, stop - start))
        return Task(number, self.epoch, indices, real, None, count, self.batch_size)

    @property
    def can_group(self) -> bool:
        """Whether several batches may be one task: their indices need no look one by one."""
        return self._trusted and self._real is None

    def items_before(self, number: int) -> int:
        """Return the items of the batches before `number`, each counted as full.

        So a rank whose last batch is short counts as the others, whose batch of the same number may be full.
        """
        return (number - self.first) * self.batch_size

    def end(self) -> int:
        """Return the number after the last batch."""
        return self._end

    def forget(self, number: int) -> None:
        """Nothing is kept."""


class BatchOrderPlan:
    """The batches of a batch sampler, by number; counted in batches."""

    @property
    def can_group(self) -> bool:
        """One by one."""
        return False

    def __init__(self, batches: BatchOrder, epoch: int, *, first: int = 0, skip: int = 0) -> None:
        self.first = first
        self._batches = batches
        self._epoch = epoch
        self._skip = skip
        self._real: int | None = getattr(batches, "num_real", None)
        self._end = first + max(0, len(batches) - skip)

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return batch `number`."""
        if number >= self._end:
            return None
        try:
            indices = as_index_array(self._batches[number - self.first + self._skip], 0)
        except Exception as error:
            return Task(number, self._epoch, (), error=as_batch_error(error, None))
        return Task(number, self._epoch, indices, self._real_rows(number, len(indices)))

    def _real_rows(self, number: int, rows: int) -> int | None:
        if self._real is None:
            return None
        # Orders of batches that tell where padding starts are chunks: all but the last are as long as the first.
        place = number - self.first + self._skip
        before = place * len(self._batches[0]) if place else 0
        return max(0, min(self._real - before, rows))

    def items_before(self, number: int) -> int:
        """Return the batches before `number`."""
        return number - self.first

    def end(self) -> int:
        """Return the number after the last batch."""
        return self._end

    def forget(self, number: int) -> None:
        """Nothing is kept."""


class IterablePlan:
    """A user's own iterable of indices (or of batches of indices), walked as far as batches are asked for.

    Args:
        indices: the iterable, endless perhaps.
        batch_size: items per batch; `None` if the iterable gives whole batches.
        skip: units (items, or batches) that were received before: drawn and dropped.

    Where a Ctrl-C comes inside of the iterable's own code, it is walked anew up to the same place.
    """

    @property
    def can_group(self) -> bool:
        """One by one."""
        return False

    def __init__(
        self,
        indices: Iterable[Any],
        epoch: int,
        batch_size: int | None,
        *,
        drop_last: bool = False,
        first: int = 0,
        skip: int = 0,
    ) -> None:
        self.first = first
        self._epoch = epoch
        self._size = batch_size
        self._drop_last = drop_last
        self._skip = skip
        self._walk: Rewalk | None = Rewalk(indices)
        self._values: list[Any] = []
        self._tasks: dict[int, Task] = {}
        self._following = first
        #: Units in tasks that were made.
        self._units = 0
        self._error: Exception | None = None
        self._end: int | None = None
        #: Units that there are in all, once that is known.
        self._total: int | None = None

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return batch `number`, walking on as far as it needs."""
        while self._following <= number and self._end is None:
            task = self._read()
            if task is None:
                self._end = self._following
            else:
                self._tasks[self._following] = task
                # Values are given up once the task is kept: a Ctrl-C in between only makes the same task again.
                self._units += len(self._values)
                self._values = []
                self._following += 1
                if self._walk is None and self._error is None:
                    self._end = self._following
        return self._tasks.get(number)

    def _read(self) -> Task | None:
        self._draw()
        values = self._values
        if self._drop_last and self._size is not None and len(values) < self._size and self._error is None:
            return None
        if values:
            return self._task(values if self._size is not None else values[0], self._skip + self._units)
        if self._error is not None:
            error, self._error = self._error, None
            return Task(self._following, self._epoch, (), error=error)
        return None

    def _draw(self) -> None:
        """Draw the units of one batch; an error of the iterable ends it, after what came before is delivered."""
        walk = self._walk
        if walk is None:
            return
        try:
            if walk.drawn < self._skip:
                walk.skip(self._skip - walk.drawn)
            walk.draw(self._values, self._size or 1)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            position = self._skip + self._units + len(self._values)
            report = as_batch_error(error, None)
            attach_note(report, f"the sampler failed at position {position}, epoch {self._epoch}")
            self._error = report
        if self._error is not None or len(self._values) < (self._size or 1):
            self._total = self._units + len(self._values)
            self._walk = None

    def _task(self, values: Any, start: int) -> Task:
        try:
            if self._size is None:
                if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
                    raise TypeError(
                        f"the batch sampler gave {values!r} at position {start}; it gives lists of indices, a batch each"
                    )
                keys = [as_key(value, start) for value in values]
            else:
                keys = [as_key(value, start + place) for place, value in enumerate(values)]
        except Exception as error:
            return Task(self._following, self._epoch, (), error=as_batch_error(error, None))
        return Task(self._following, self._epoch, keys)

    def items_before(self, number: int) -> int:
        """Return the units of the batches before `number`, all of which were asked for."""
        if self._size is None:
            return number - self.first
        units = (number - self.first) * self._size
        # Only the batch before the end, or before an error, may be short.
        return units if self._total is None else min(units, self._total)

    def end(self) -> int | None:
        """Return the number after the last batch, once the iterable has ended."""
        return self._end

    def forget(self, number: int) -> None:
        """Drop the task."""
        self._tasks.pop(number, None)
