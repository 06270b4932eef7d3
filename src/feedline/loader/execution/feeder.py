"""`Feeder`: awaits items on one event loop, many at a time, in the order in which their batches were submitted.

Note [slots]
    `item_concurrency * num_workers` coroutines, the slots, take the next item each as they become free: of the first
    `num_workers` batches that have items left to start, and at most `item_concurrency` of one batch. A batch whose last
    items are still on their way has none left to start, so the next batch begins meanwhile: requests stay in flight
    across the borders of batches. A slot awaits an item itself; there is no task per item.
Everything here runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from time import perf_counter
from typing import Any, Protocol

from feedline.loader.batch import Task
from feedline.loader.failures import recorded_index
from feedline.loader.fetch import Raised

__all__ = ["Droppable", "FeedBatch", "Feeder", "within"]


class FeedBatch:
    """One batch on its way.

    Args:
        task: which items.
        known: items that are not to be fetched, since they failed in an earlier epoch.
        stop_at_error: drop what comes behind the first item (by position) that fails.
        cancelled: tells that nobody waits for it any more.
        deliver: called with the items, `Raised` in the place of those that failed; not called when cancelled.
    """

    def __init__(
        self,
        task: Task,
        known: Mapping[int | str, Any],
        stop_at_error: bool,
        cancelled: Callable[[], bool],
        deliver: Callable[[Task, list[Any]], None],
    ) -> None:
        self.task = task
        self.indices = task.indices.tolist() if hasattr(task.indices, "tolist") else list(task.indices)
        self.items: list[Any] = [None] * len(self.indices)
        self.known = known
        self.stop_at_error = stop_at_error
        self.cancelled = cancelled
        self.deliver = deliver
        self.next = 0
        self.limit = len(self.indices)
        self.is_finished = False
        #: When its first item was begun, and how long all of them together were awaited.
        self.began = 0.0
        self.flight_seconds = 0.0
        #: What is on its way of it, by position.
        self.flying: dict[int, Droppable] = {}

    def start_one(self) -> int | None:
        """Return the next position to fetch, or `None` if none is left to start."""
        while self.next < self.limit:
            position = self.next
            self.next += 1
            if not self.known or recorded_index(self.indices[position]) not in self.known:
                return position
        return None

    def settle(self, position: int, item: Any) -> None:
        """Keep what came of `position`; behind an error nothing more is needed."""
        self.items[position] = item
        if type(item) is Raised and self.stop_at_error and position < self.limit:
            self.limit = position
            for place, slot in list(self.flying.items()):
                if place > position:
                    slot.drop()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to start or to wait for."""
        return not self.flying and self.next >= self.limit


class Droppable(Protocol):
    """An item on its way."""

    def drop(self) -> None:
        """Cancel it."""
        ...


class _Slot:
    """One coroutine that awaits items."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.dropped = False

    def drop(self) -> None:
        """Cancel the item that is awaited; the slot goes on with another one."""
        if self.task is not None and not self.dropped:
            self.dropped = True
            self.task.cancel()


class Feeder:
    """Awaits items; made on the loop's thread."""

    def __init__(self, dataset: Any, item_concurrency: int, batches: int, timeout: float | None) -> None:
        self._dataset = dataset
        self._width = item_concurrency
        self._batches = batches
        self._timeout = timeout
        self._whole = item_concurrency == 1 and callable(getattr(dataset, "__getitems__", None))
        self._pending: deque[FeedBatch] = deque()
        self._flying: set[FeedBatch] = set()
        self._slots: list[_Slot] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._closing = False

    def add(self, batch: FeedBatch) -> None:
        """Take on a batch."""
        self._pending.append(batch)
        self._wake(len(batch.indices))

    def resize(self, batches: int) -> None:
        """Await so many batches at a time from now on."""
        self._batches = batches
        self._wake(sum(batch.limit - batch.next for batch in self._pending))

    def _wake(self, wanted: int) -> None:
        while wanted > 0 and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                wanted -= 1
        while wanted > 0 and len(self._slots) < self._width * self._batches:
            slot = _Slot()
            self._slots.append(slot)
            slot.task = asyncio.get_running_loop().create_task(self._run(slot))
            wanted -= 1

    async def _run(self, slot: _Slot) -> None:
        while True:
            work = self._take()
            if work is None:
                future = asyncio.get_running_loop().create_future()
                self._idle.append(future)
                await future
                continue
            batch, position = work
            batch.flying[position] = slot
            self._flying.add(batch)
            start = perf_counter()
            batch.began = batch.began or start
            item: Any
            try:
                item = await (self._fetch_all(batch) if self._whole else self._fetch(batch.indices[position]))
            except BaseException as error:
                if self._closing:
                    raise
                item = Raised(error)
            batch.flight_seconds += perf_counter() - start
            await self._forgive(slot)
            del batch.flying[position]
            self._landed(batch, position, item)
            del item, batch, work

    async def _forgive(self, slot: _Slot) -> None:
        """Let a slot be as new: whoever asked for its cancellation (user code may, too) meant the item that is over."""
        slot.dropped = False
        task = slot.task
        while task is not None and task.cancelling():
            task.uncancel()
            try:
                # Before Python 3.13 a cancellation that has not been delivered yet still is, at the next await: here.
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self._closing:
                    raise

    def _take(self) -> tuple[FeedBatch, int] | None:
        """Return the next item to await: see Note [slots]."""
        # Whatever changes the row of batches leaves the loop.
        for batch in islice(self._pending, self._batches):
            if batch.cancelled():
                self._pending.remove(batch)
                return self._take()
            if len(batch.flying) >= (1 if self._whole else self._width):
                continue
            position = batch.start_one()
            if self._whole and position is not None:
                batch.next = batch.limit
            if batch.next >= batch.limit:
                self._pending.remove(batch)
            if position is not None:
                return batch, position
            if batch.is_done:
                self._finish(batch)
            return self._take()
        return None

    async def _fetch(self, index: Any) -> Any:
        if self._timeout is None:
            return await self._dataset[index]
        async with within(self._timeout, "the item"):
            return await self._dataset[index]

    async def _fetch_all(self, batch: FeedBatch) -> Any:
        """Await `__getitems__`; what it gives stands for all positions that were asked for.

        If it fails, and failures are not to be raised, items are awaited one after the other, to find out which it was.
        """
        indices = [index for index in batch.indices if recorded_index(index) not in batch.known]
        try:
            async with within(self._timeout and self._timeout * len(indices), "the items"):
                items = await self._dataset.__getitems__(indices)
            if len(items) != len(indices):
                raise ValueError(
                    f"{type(self._dataset).__name__}.__getitems__ returned {len(items)} items for "
                    f"{len(indices)} indices; it must return as many, in order"
                )
        except BaseException:
            if batch.stop_at_error or self._closing or batch.cancelled():
                raise
            return [await self._try(batch, index) for index in indices]
        return items

    async def _try(self, batch: FeedBatch, index: Any) -> Any:
        try:
            return await self._fetch(index)
        except BaseException as error:
            if self._closing or batch.cancelled():
                raise
            return Raised(error)

    def _landed(self, batch: FeedBatch, position: int, item: Any) -> None:
        if not self._whole:
            batch.settle(position, item)
        elif type(item) is Raised:
            batch.items = [item] * len(batch.items)
        else:
            fetched = iter(item)
            batch.items = [
                None if recorded_index(index) in batch.known else next(fetched) for index in batch.indices
            ]
        if batch.is_done:
            self._finish(batch)

    def _finish(self, batch: FeedBatch) -> None:
        self._flying.discard(batch)
        # After an error a batch may be done while it still stands in the row: it is handed on once.
        if not batch.is_finished and not batch.cancelled():
            batch.is_finished = True
            task = batch.task
            task.fetch_seconds = perf_counter() - batch.began if batch.began else 0.0
            task.flight_seconds = batch.flight_seconds
            batch.deliver(task, batch.items)

    def drop_cancelled(self) -> None:
        """Cancel what is in flight for batches that nobody waits for."""
        for batch in list(self._flying):
            if batch.cancelled():
                batch.limit = 0
                for slot in list(batch.flying.values()):
                    slot.drop()
        for batch in list(self._pending):
            if batch.cancelled():
                self._pending.remove(batch)

    async def close(self, seconds: float) -> None:
        """Cancel everything, and wait until it is."""
        self._closing = True
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Raise a `TimeoutError` that names the limit if the block takes longer than `seconds`; `None` is no limit.

    A block that holds up the loop can't be interrupted: of it the error comes once it has ended.
    """
    limit = asyncio.timeout(seconds)
    began = perf_counter()
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"{what} took longer than {seconds:g} s (timeout=)") from error
        raise
    if seconds is not None and perf_counter() - began > seconds:
        raise TimeoutError(
            f"{what} took longer than {seconds:g} s (timeout=), and let nothing else run on the event loop meanwhile"
        )
