"""`AwaitedItems`: an event loop in a worker process. Apart, as asyncio takes long to import, and few workers need it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from feedline.loader.batch import Run, Task
from feedline.loader.execution.event_loop import CLOSE_SECONDS, LoopThread
from feedline.loader.execution.feeder import FeedBatch
from feedline.loader.execution.quick_feeder import make_feeder
from feedline.loader.fetch import ItemLoader

__all__ = ["AwaitedItems"]

#: How often a task that is awaited looks whether it is cancelled.
LOOK_SECONDS = 0.05


class AwaitedItems:
    """An event loop of this process for an `AsyncDataset`."""

    def __init__(self, items: ItemLoader) -> None:
        dataset, width, timeout = items.dataset, items.item_concurrency, items.timeout
        self._dataset = dataset
        self._timeout = timeout
        self._stop_at_error = items.on_error == "raise"
        self._thread = LoopThread(dataset, lambda: make_feeder(dataset, width, 1, timeout))

    def fetch(self, task: Task, run: Run, cancelled: Callable[[], bool]) -> bool:
        """Await the items of `task` and put them into it; false if it is cancelled meanwhile."""
        done: SimpleQueue[list[Any]] = SimpleQueue()
        self._thread.start()
        batch = FeedBatch(
            task, run.known, self._stop_at_error, cancelled, lambda task, items: done.put(items)
        )
        feeder = self._thread.feeder
        assert feeder is not None
        self._thread.call(feeder.add, batch)
        while True:
            try:
                task.items = done.get(timeout=LOOK_SECONDS)
                return True
            except Empty:
                if cancelled():
                    self._thread.call(feeder.drop_cancelled)
                    return False

    def fetch_one(self, index: Any) -> Any:
        """Await one more item: a substitute."""

        async def fetch() -> Any:
            return await self._dataset[index]

        return asyncio.run_coroutine_threadsafe(fetch(), self._thread.start()).result(self._timeout)

    def close(self) -> None:
        """Cancel what is in flight, await `aclose()` of the dataset, 5 s at most for each."""
        self._thread.end()
        self._thread.join(2 * CLOSE_SECONDS)
