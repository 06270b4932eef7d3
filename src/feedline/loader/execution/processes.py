"""Worker processes, for items that hold the GIL: started by the first task, kept between epochs.

What runs in them is `BatchLoader.load`, as everywhere. `process_pool` says who owns what.
"""

from __future__ import annotations

import importlib.util
import pickle
import weakref
from itertools import count

import numpy as np

from feedline.errors import MissingExtraError, OptionError
from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.loader.execution.culprit import describe_unpicklable
from feedline.loader.execution.handoff import dump_out
from feedline.loader.execution.job import Job
from feedline.loader.execution.process_pool import ProcessPool
from feedline.loader.execution.protocol import Known
from feedline.loader.execution.threads import Line

__all__ = ["ProcessesExecutor", "check_processes"]

_sessions = count(1)


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

    def close(self) -> None:
        """Let the workers end after their item, and kill those that do not within a second; does not wait."""
        self._finalizer()


class ProcessesSession:
    """One iterator's share of the workers."""

    def __init__(self, executor: ProcessesExecutor, load: BatchLoader, line: Line) -> None:
        self._executor = executor
        self._load = load
        self._line = line
        self._number = next(_sessions)
        self._refusal: str | None = None
        self.outcomes = line.outcomes
        self._finalizer = weakref.finalize(self, executor.pool.cancel, line)
        self._finalizer.atexit = False

    def submit(self, task: Task) -> None:
        """Send `task` to the workers. What can't be sent is an error of its batch."""
        if task.error is not None:
            self._deliver(task, self._load.load(task, Run()))
            return
        try:
            if self._refusal is not None:
                raise TypeError(self._refusal)
            self._executor.pool.submit(Job(self._line, self._number, task, _dump_task(task)))
        except Exception as error:
            if isinstance(error, TypeError):
                # Found once for all batches; the search may take a while.
                self._refusal = str(error)
            self._deliver(task, [Outcome(task.number + n, error=error) for n in range(task.count)])

    def _deliver(self, task: Task, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.outcomes.put(outcome)
        self._line.wake.put(None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next task to end."""
        self._line.sleep(seconds)

    def notify(self) -> None:
        """Let `wait` return."""
        self._line.wake.put(None)

    def cancel(self) -> None:
        """Let the workers pass over what is queued, and stop after their item."""
        self._finalizer()

    def dump_stacks(self) -> None:
        """Have the workers write the stacks of their threads to stderr."""
        self._executor.pool.dump_stacks()


def _dump_task(task: Task) -> bytes:
    if task.items is None and isinstance(task.indices, np.ndarray):
        return pickle.dumps(task, protocol=5)
    try:
        return dump_out(task)
    except Exception as error:
        found = describe_unpicklable({"items": task.items, "indices": task.indices}, dump_out, error)
        raise ValueError(f"the batch can't be sent to a worker process by pickle: {found}") from None
