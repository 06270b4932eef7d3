"""What becomes of a task whose worker has ended: it is computed again, more carefully, or is an error."""

from __future__ import annotations

from typing import Any, Protocol

from feedline.errors import WorkerDied
from feedline.loader.execution.job import Job

__all__ = ["MAX_TRIES", "SecondTries"]

#: How often a task is computed before the death of its workers is its error.
MAX_TRIES = 3


class Worker(Protocol):
    """A worker that has ended."""

    number: int
    pid: int | None
    #: It was ended because it let nothing else run for too long.
    is_stuck: bool

    @property
    def name(self) -> str:
        """How it is called in notes and messages."""
        ...


class SecondTries:
    """Decides for one pool.

    Args:
        limit: seconds that one item may take, or `None`.
        is_async: items are awaited, so that they can't be computed one by one.
    """

    def __init__(self, limit: float | None, is_async: bool) -> None:
        self._limit = limit
        self._is_async = is_async

    def allow(
        self, job: Job, worker: Worker, index: Any, *, how: str, why: str = "", exit_code: int | None = None
    ) -> bool:
        """Tell whether `job` is to be computed again; else it ends here, with an error.

        Args:
            job: what the worker had in hand.
            worker: who has ended.
            index: the item that was begun last, if that is known.
            how: what the worker did: "ended", "was killed by SIGKILL".
            why: more about it, for the end of the message.
            exit_code: the worker's, if that is known.
        """
        where = f"{worker.name}, which was replaced"
        if worker.is_stuck:
            if self._can_be_careful(job, index):
                return True
            text = f"for longer than its time limit (timeout={self._limit:g} s an item)"
            job.fail(TimeoutError(f"the batch let nothing else run in its worker process {text}"), where)
            return False
        job.tries += 1
        if job.tries < MAX_TRIES:
            return True
        last = "" if index is None else f"; item {index!r} was the last that it began"
        error = WorkerDied(
            f"{worker.name} {how} with the batch, as {MAX_TRIES - 1} others before it{last}{why}",
            type_name="WorkerDied",
            exit_code=exit_code,
            index=index,
            worker=worker.number,
            pid=worker.pid,
        )
        job.fail(error, where)
        return False

    def _can_be_careful(self, job: Job, index: Any) -> bool:
        """Have `job` computed item by item, `index` counted as timed out; false if that was of no use."""
        if self._is_async:
            return False
        if index is None:
            if job.careful is not None:
                return False
            job.careful = ()
            return True
        return job.add_stuck(index)
