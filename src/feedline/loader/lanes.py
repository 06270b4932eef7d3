"""Threads below a batch: several items of it in parallel, and items with a time limit.

Both borrow daemon threads from a pool that grows as it is used and that belongs to one `BatchLoader`.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from feedline.loader.failures import as_batch_error, is_ctrl_c

__all__ = ["SIGNAL_SECONDS", "Lanes", "charge"]

T = TypeVar("T")
#: The call that runs on this thread, as `here.call`.
_here = threading.local()
_STOP = None
#: How long the consumer sleeps at a time. A signal that comes just before a thread goes to sleep does not wake it: without
#: this, a Ctrl-C at that moment would be heard only when the wait is over.
SIGNAL_SECONDS = 0.1


class _Call:
    """One call that a lane makes; the caller waits for `done` and may give up on it."""

    __slots__ = ("charged", "done", "ended", "error", "function", "value")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function: Callable[[], Any] | None = function
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        #: Seconds that count as if they had passed in it, and when it ended.
        self.charged = self.ended = 0.0

    def wait(self, seconds: float = float("inf")) -> bool:
        """Return whether it is done within `seconds`, less those that are charged to it."""
        end = time.monotonic() + seconds
        while not self.done.wait(max(0.0, min(SIGNAL_SECONDS, end - self.charged - time.monotonic()))):
            if time.monotonic() >= end - self.charged:
                return False
        # What was charged while somebody slept here has not shortened that sleep.
        return self.charged == 0.0 or self.ended <= end - self.charged

    def run(self) -> None:
        function, self.function = self.function, None
        _here.call = self
        try:
            if function is not None:
                self.value = function()
        except BaseException as error:
            self.error = error
        finally:
            _here.call = None
        self.ended = time.monotonic()
        self.done.set()


def charge(seconds: float) -> None:
    """Count `seconds` that have passed elsewhere against the limit of the call that runs on this thread, if one does."""
    call: _Call | None = getattr(_here, "call", None)
    if call is not None:
        call.charged += seconds


def _serve(queue: SimpleQueue[_Call | None], idle: threading.Semaphore) -> None:
    while True:
        call = queue.get()
        if call is _STOP:
            # One ends all, and nobody goes before what is queued is done.
            queue.put(_STOP)
            if queue.qsize() <= 1:
                return
            continue
        call.run()
        del call
        idle.release()


class Lanes:
    """A pool of daemon threads for items.

    A thread that hangs in an item that was given up stays with it and is not counted on; the pool grows by another one.
    Concurrency: any number of threads may use one pool.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._numbers = itertools.count()
        self._finalizer = weakref.finalize(self, self._queue.put, _STOP)

    def start(self, function: Callable[[], Any]) -> _Call:
        """Run `function` on a lane of its own, now."""
        call = _Call(function)
        if not self._idle.acquire(blocking=False):
            self._start_one()
        self._queue.put(call)
        if not self._finalizer.alive:
            # Closed while a worker is still at its last item; those that would serve it may be gone.
            self._start_one()
        return call

    def _start_one(self) -> None:
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=_serve, args=(self._queue, self._idle), name=name, daemon=True).start()

    def limited(self, function: Callable[[], T], seconds: float, what: str) -> T:
        """Return `function()`, run on a lane; `what` is named in the message.

        Raises:
            TimeoutError: it takes longer than `seconds`, what it is charged with included; it goes on by itself, and what
                it gives is dropped.
        """
        call = self.start(function)
        if not call.wait(seconds):
            raise TimeoutError(f"{what} took longer than {seconds:g} s (timeout=)")
        # Taken out of the call: its traceback holds the frames that know the call, and each would keep the other.
        error, call.error = call.error, None
        if error is not None:
            try:
                # Out of user code on a lane; raised as it is on the main thread, it would look like the user's Ctrl-C.
                raise as_batch_error(error, None) if is_ctrl_c(error) else error
            finally:
                del error
        return call.value  # type: ignore[no-any-return]

    def map(self, function: Callable[[int], T], count: int, width: int) -> list[T]:
        """Return `[function(0), ..., function(count - 1)]`, up to `width` at a time, the calling thread being one.

        If calls raise, the error of the lowest position is raised, after those in progress have ended; no further
        positions are started.
        """
        job = _Job(function, count)
        try:
            calls = [self.start(job.run) for _ in range(min(width, count) - 1)]
            job.run()
            # Till they are idle again, or the next batch would have more threads started.
            for call in calls:
                call.wait()
        finally:
            # A Ctrl-C does not wait for items in progress: they end on their lanes, and nobody sees what they give.
            job.stop()
        if job.errors:
            errors, job.errors = job.errors, {}
            error = errors.pop(min(errors))
            del errors
            try:
                raise error
            finally:
                del error
        return job.values

    def close(self) -> None:
        """End the threads as they become idle; does not wait."""
        self._finalizer()


class _Job:
    """Positions that several lanes take in turn, lowest first."""

    def __init__(self, function: Callable[[int], Any], count: int) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._next = 0
        self._count = count
        self.values: list[Any] = [None] * count
        self.errors: dict[int, BaseException] = {}

    def run(self) -> None:
        """Take positions until none is left."""
        while True:
            with self._lock:
                position = self._next
                if position >= self._count:
                    return
                self._next += 1
            try:
                self.values[position] = self._function(position)
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
                with self._lock:
                    self.errors[position] = error
                    self._count = 0

    def stop(self) -> None:
        """Start no further position."""
        with self._lock:
            self._count = 0
