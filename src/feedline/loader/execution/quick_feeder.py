"""`QuickFeeder`: a `Feeder` for datasets that need no coroutine to begin an item, as `HttpDataset.begin_item`.

Note [no tasks]
    A coroutine that awaits an item costs a future, the wake-up of a task and a turn of the event loop: more than all
    else that Python does for a request. So items are begun by a call, and their end is told by a call, in which the
    next item is begun: it is on its way before the loop has turned. Only what is not simply there (a retry, a
    redirect, an error) goes on in a task of its own.
Which items are begun, in which order and how many at a time, is as in `feeder.py`; and so is all that users see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any

from feedline.loader.execution.feeder import FeedBatch, Feeder
from feedline.loader.fetch import Raised

__all__ = ["QuickFeeder", "make_feeder"]


def make_feeder(dataset: Any, item_concurrency: int, batches: int, timeout: float | None) -> Feeder:
    """Return the quickest feeder that `dataset` can do with; called on the loop's thread."""
    one_by_one = item_concurrency > 1 or not callable(getattr(dataset, "__getitems__", None))
    # A limit per item covers the waits between attempts, too: `Feeder` has it around the coroutine.
    if timeout is None and one_by_one and callable(getattr(dataset, "begin_item", None)):
        return QuickFeeder(dataset, item_concurrency, batches, timeout)
    return Feeder(dataset, item_concurrency, batches, timeout)


class _Flight:
    """One item on its way."""

    __slots__ = ("_feeder", "batch", "cancel", "position", "start", "task")

    def __init__(self, feeder: QuickFeeder, batch: FeedBatch, position: int) -> None:
        self._feeder = feeder
        self.batch = batch
        self.position = position
        self.start = perf_counter()
        #: Drops what was begun, until it is done.
        self.cancel: Callable[[], None] | None = None
        #: Awaits the rest, where there is one.
        self.task: asyncio.Task[Any] | None = None

    def done(self, item: Any, rest: Callable[[], Awaitable[Any]] | None) -> None:
        """Take the item, or see to it that the rest is done."""
        self.cancel = None
        if rest is None:
            self._feeder.landed(self, item)
            self._feeder.begin()
        else:
            self._feeder.go_on(self, rest)

    def drop(self) -> None:
        """Cancel the item."""
        if self.leave():
            self._feeder.landed(self, Raised(asyncio.CancelledError()))

    def leave(self) -> bool:
        """Cancel the item, and tell whether it has ended; a task ends later."""
        cancel, self.cancel = self.cancel, None
        if self.task is not None:
            self.task.cancel()
        elif cancel is not None:
            cancel()
            return True
        return False


class QuickFeeder(Feeder):
    """Awaits nothing but what did not come at the first try; made on the loop's thread."""

    def __init__(self, dataset: Any, item_concurrency: int, batches: int, timeout: float | None) -> None:
        super().__init__(dataset, item_concurrency, batches, timeout)
        self._begin_item = dataset.begin_item
        self._in_flight = 0
        self._rests: set[asyncio.Task[Any]] = set()

    def _wake(self, wanted: int) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin as many items as there is room for."""
        while self._in_flight < self._width * self._batches and not self._closing:
            work = self._take()
            if work is None:
                return
            batch, position = work
            flight = batch.flying[position] = _Flight(self, batch, position)
            self._flying.add(batch)
            batch.began = batch.began or flight.start
            self._in_flight += 1
            try:
                flight.cancel = self._begin_item(batch.indices[position], flight.done)
            except BaseException as error:
                self.landed(flight, Raised(error))

    def landed(self, flight: _Flight, item: Any) -> None:
        """Take what came of an item."""
        batch = flight.batch
        batch.flight_seconds += perf_counter() - flight.start
        self._in_flight -= 1
        del batch.flying[flight.position]
        self._landed(batch, flight.position, item)

    def go_on(self, flight: _Flight, rest: Callable[[], Awaitable[Any]]) -> None:
        """Await the rest of an item in a task of its own."""
        flight.task = task = asyncio.get_running_loop().create_task(_settled(rest))
        self._rests.add(task)
        task.add_done_callback(partial(self._rest_done, flight))

    def _rest_done(self, flight: _Flight, task: asyncio.Task[Any]) -> None:
        self._rests.discard(task)
        flight.task = None
        if not self._closing:
            self.landed(flight, Raised(asyncio.CancelledError()) if task.cancelled() else task.result())
            self.begin()

    def drop_cancelled(self) -> None:
        """Cancel what is in flight for batches that nobody waits for."""
        super().drop_cancelled()
        self.begin()

    async def close(self, seconds: float) -> None:
        """Cancel everything, and wait until it is."""
        self._closing = True
        for batch in list(self._flying):
            for flight in batch.flying.values():
                flight.leave()  # type: ignore[attr-defined]
        if self._rests:
            await asyncio.wait(self._rests, timeout=seconds)


async def _settled(rest: Callable[[], Awaitable[Any]]) -> Any:
    """Return the item, or its error: one that went through the task would end the loop, if it is a `SystemExit`."""
    try:
        return await rest()
    except BaseException as error:
        return Raised(error)
