"""Worker processes, for items that hold the GIL: started by the first task, kept between epochs.

What runs in them is `BatchLoader.load`, as everywhere. `process_pool` says who owns what.
"""

from __future__ import annotations

import importlib.util
import weakref

from feedline.errors import MissingExtraError, OptionError
from feedline.loader.batch import BatchLoader
from feedline.loader.execution.pool_session import PoolSession
from feedline.loader.execution.process_pool import ProcessPool
from feedline.loader.execution.protocol import Known
from feedline.loader.execution.threads import Line

__all__ = ["ProcessesExecutor", "check_processes"]


def check_processes() -> None:
    """Raise what says why there can be no worker processes here.

    Raises:
        MissingExtraError: cloudpickle is not installed.
        OptionError: the system has no `fork`.
    """
    import os

    if not hasattr(os, "fork"):
        raise OptionError("worker_type='process' needs a system with fork (Linux, macOS); use 'thread' here")
    if importlib.util.find_spec("cloudpickle") is None:
        raise MissingExtraError.of("worker_type='process'", "process")


class ProcessesSession(PoolSession):
    """A session of worker processes."""

    def __init__(self, executor: ProcessesExecutor, load: BatchLoader, line: Line) -> None:
        super().__init__(executor, executor.pool, load, line)
        self._boot = executor.pool.begin

    def begin(self) -> None:
        """Let the processes boot, and get what they run, while the first tasks are made."""
        try:
            self._boot()
        except TypeError as error:
            # Of every batch, as with `submit`.
            self._refusal = str(error)
        except (OSError, RuntimeError):
            return  # fails again with the first task, whose error it is then


class ProcessesExecutor:
    """Loads in `num_workers` processes, a batch each.

    Args:
        load: what is run; it is pickled when the first task comes.
        num_workers: processes.
        dump_stacks: let `dump_stacks` of sessions work.
    """

    def __init__(self, load: BatchLoader, num_workers: int, dump_stacks: bool = False) -> None:
        self._load = load
        self.pool = ProcessPool(load, num_workers, dump_stacks)
        self._finalizer = weakref.finalize(self, self.pool.close)
        # The pool looks after the end of the interpreter itself.
        self._finalizer.atexit = False

    def session(self, in_order: bool, known: Known) -> ProcessesSession:
        """Return a session; no process is started yet."""
        return ProcessesSession(self, self._load, Line(in_order, known))

    def places(self) -> list[str]:
        """Return where the state of each worker process stands."""
        return [f"/proc/{pid}/stat" for pid in self.pool.process_ids()]

    def resize(self, width: int) -> None:
        """Have `width` processes; those that are too many end after their tasks."""
        self.pool.resize(width)

    def close(self) -> None:
        """Let the workers end after their item, and kill those that do not within a second; does not wait."""
        self._finalizer()
