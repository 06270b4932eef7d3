"""`PoolSession`: one iterator's share of a pool of worker processes, here or on other machines."""

from __future__ import annotations

import pickle
import weakref
from itertools import count
from typing import Any, Protocol

import numpy as np

from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.loader.execution.culprit import describe_unpicklable
from feedline.loader.execution.handoff import dump_out
from feedline.loader.execution.job import Job
from feedline.loader.execution.threads import Line

__all__ = ["Pool", "PoolSession"]

_sessions = count(1)


class Pool(Protocol):
    """Workers that take pickled tasks."""

    def submit(self, job: Job) -> None:
        """Queue `job`, starting the pool first if need be."""
        ...

    def cancel(self, line: Line) -> None:
        """Drop the tasks of `line`; what is at work stops after its item."""
        ...

    def dump_stacks(self) -> None:
        """Have every worker tell the stacks of its threads."""
        ...


class PoolSession:
    """One iterator's share of the workers.

    Args:
        executor: kept alive, as its pool ends with it.
        pool: the executor's.
        load: what the workers run.
        line: where outcomes come.
    """

    def __init__(self, executor: Any, pool: Pool, load: BatchLoader, line: Line) -> None:
        self._executor = executor
        self._pool = pool
        self._load = load
        self._line = line
        self._number = next(_sessions)
        self._refusal: str | None = None
        self.outcomes = line.outcomes
        self._finalizer = weakref.finalize(self, pool.cancel, line)
        self._finalizer.atexit = False

    def submit(self, task: Task) -> None:
        """Send `task` to the workers. What can't be sent is an error of its batch."""
        if task.error is not None:
            self._deliver(self._load.load(task, Run()))
            return
        try:
            if self._refusal is not None:
                raise TypeError(self._refusal)
            self._pool.submit(Job(self._line, self._number, task, _dump_task(task)))
        except Exception as error:
            if isinstance(error, TypeError):
                # Found once for all batches; the search may take a while.
                self._refusal = str(error)
            self._deliver([Outcome(task.number + n, error=error) for n in range(task.count)])

    def _deliver(self, outcomes: list[Outcome]) -> None:
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
        """Have the workers tell the stacks of their threads."""
        self._pool.dump_stacks()


def _dump_task(task: Task) -> bytes:
    if task.items is None and isinstance(task.indices, np.ndarray):
        return pickle.dumps(task, protocol=5)
    try:
        return dump_out(task)
    except Exception as error:
        found = describe_unpicklable({"items": task.items, "indices": task.indices}, dump_out, error)
        raise ValueError(f"the batch can't be sent to a worker process by pickle: {found}") from None
