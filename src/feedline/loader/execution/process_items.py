"""How a worker process runs a task: as everywhere, with items that are awaited, or item by item after a hang."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.loader.failures import recorded_index

if TYPE_CHECKING:
    from feedline.loader.execution.awaited_items import AwaitedItems

__all__ = ["careful_loader", "run_task"]


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
