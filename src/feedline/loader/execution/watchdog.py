"""`WatchedSession`: when nothing moves for too long, it says where every worker stands."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback

from feedline.loader.batch import Outcome, Task
from feedline.loader.execution.protocol import Session
from feedline.loader.ordering import Window

__all__ = ["WatchedSession", "stacks_of_threads"]

logger = logging.getLogger("feedline")


class WatchedSession:
    """A session whose consumer does not wait in silence.

    When a consumer has waited for `seconds` and no batch has come meanwhile, the stacks of all threads of this process go
    to the logger `feedline`, as an error, and worker processes write theirs to stderr; and so again after as long. Nothing
    else changes: the wait goes on.
    """

    def __init__(self, inner: Session, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        #: How long nothing has come.
        self._waited = 0.0
        self.outcomes: Window[Outcome] = inner.outcomes

    def begin(self) -> None:
        """Start what takes long."""
        begin = getattr(self._inner, "begin", None)
        if begin is not None:
            begin()

    def submit(self, task: Task) -> None:
        """Queue `task`."""
        self._inner.submit(task)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next task to end, and tell if that takes too long."""
        before, start = len(self.outcomes), time.monotonic()
        patience = self._seconds - self._waited
        self._inner.wait(patience if seconds is None else min(seconds, patience))
        if len(self.outcomes) != before:
            self._waited = 0.0
            return
        self._waited += time.monotonic() - start
        if self._waited >= self._seconds:
            self._waited = 0.0
            self._tell()

    def _tell(self) -> None:
        logger.error(
            "no batch has come for watchdog=%g s; this is what the threads of this process do:\n%s",
            self._seconds,
            stacks_of_threads(),
        )
        dump = getattr(self._inner, "dump_stacks", None)
        if dump is not None:
            logger.error("worker processes write the stacks of their threads to stderr")
            dump()

    def notify(self) -> None:
        """Let `wait` return."""
        self._inner.notify()

    def cancel(self) -> None:
        """Drop what is queued."""
        self._inner.cancel()


def stacks_of_threads() -> str:
    """Return the stack of every thread of this process, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(ident, ident)}:\n{lines}")
    return "\n".join(parts)
