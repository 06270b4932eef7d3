"""Which executor a loader's options ask for. Each kind is imported when it is first used: asyncio and multiprocessing take
longer to import than all of the rest."""

from __future__ import annotations

from feedline.loader.batch import BatchLoader
from feedline.loader.execution.protocol import Executor
from feedline.loader.execution.serial import SerialExecutor
from feedline.loader.execution.threads import ThreadsExecutor
from feedline.loader.options import LoaderOptions

__all__ = ["check_workers", "make_executor"]


def check_workers(options: LoaderOptions) -> None:
    """Raise a `MissingExtraError` if the kind of worker needs a library that is not installed."""
    if options.worker_type == "process" and options.num_workers:
        from feedline.loader.execution.processes import check_processes

        check_processes()
    elif options.worker_type == "ray" and options.num_workers:
        from feedline.loader.execution.cluster import check_ray

        check_ray()


def make_executor(load: BatchLoader, options: LoaderOptions, is_async: bool, width: int) -> Executor:
    """Return a new executor with `width` workers; it starts nothing before its first task."""
    if options.worker_type == "process" and options.num_workers:
        from feedline.loader.execution.processes import ProcessesExecutor

        return ProcessesExecutor(load, width, options.watchdog is not None)
    if options.worker_type == "ray" and options.num_workers:
        from feedline.loader.execution.cluster import RayExecutor

        return RayExecutor(load, width)
    if is_async:
        from feedline.loader.execution.event_loop import EventLoopExecutor

        return EventLoopExecutor(load, width)
    if options.num_workers == 0:
        return SerialExecutor(load)
    return ThreadsExecutor(load, width)
