"""How items are had in a worker process where `dataset[index]` is not the way: awaited ones, and after a hang."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.loader.execution.event_loop import CLOSE_SECONDS, LoopThread
from feedline.loader.execution.feeder import FeedBatch, Feeder
from feedline.loader.failures import recorded_index
from feedline.loader.fetch import ItemLoader

__all__ = ["AwaitedItems", "careful_loader", "run_task"]

#: How often a task that is awaited looks whether it is cancelled.
LOOK_SECONDS = 0.05


class AwaitedItems:
    """An event loop of this process for an `AsyncDataset`."""

    def __init__(self, items: ItemLoader) -> None:
        dataset, width, timeout = items.dataset, items.item_concurrency, items.timeout
        self._dataset = dataset
        self._timeout = timeout
        self._stop_at_error = items.on_error == "raise"
        self._thread = LoopThread(dataset, lambda: Feeder(dataset, width, 1, timeout))

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


def run_task(
    load: BatchLoader,
    awaited: AwaitedItems | None,
    task: Task,
    run: Run,
    careful: tuple[int | str, ...] | None,
    is_cancelled: Callable[[], bool],
) -> list[Outcome]:
    """Return what comes of `task` in a worker process; nothing if it is cancelled.

    Args:
        load: what is run.
        awaited: the event loop, for an asynchronous dataset.
        task: what is to be loaded.
        run: who runs it; its `cancelled` is asked before each item.
        careful: load item by item, and take these (as recorded) for timed out; `None` for the usual way.
        is_cancelled: the same as `run.cancelled`, for looks that do not count as items.
    """
    if careful is not None and awaited is None:
        load = careful_loader(load, careful)
    if awaited is not None:
        run.fetch = awaited.fetch_one
        if not awaited.fetch(task, run, is_cancelled):
            return []
    return load.load(task, run)


def careful_loader(load: BatchLoader, stuck: tuple[int | str, ...]) -> BatchLoader:
    """Return `load` as it is after a hang: item by item, and those that hung count as timed out."""
    careful = copy.copy(load)
    careful.take = None
    careful.items = copy.copy(load.items)
    careful.items.item_concurrency = 1
    careful.items.dataset = _Careful(load.items.dataset, frozenset(stuck), load.items.timeout)
    return careful


class _Careful:
    """A dataset of which some items are known to hang."""

    __getitems__ = None

    def __init__(self, dataset: Any, stuck: frozenset[int | str], timeout: float | None) -> None:
        self._dataset = dataset
        self._stuck = stuck
        self._timeout = timeout

    def __getitem__(self, index: Any) -> Any:
        if recorded_index(index) in self._stuck:
            limit = "" if self._timeout is None else f" than timeout={self._timeout:g} s"
            raise TimeoutError(
                f"the item took longer{limit} and let nothing else run in its worker process, which was replaced"
            )
        return self._dataset[index]

    def __len__(self) -> int:
        return len(self._dataset)
