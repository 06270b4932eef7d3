"""Threads that do blocking calls for an event loop, with few wake-ups on either side.

A job goes into a deque that all threads of the pool take from; a thread sleeps only when it is empty. Results go into
another deque, and the event loop is woken only if it has not been since it last looked: so when jobs are short, many
results come with one wake-up.

How many threads work depends on the jobs. Short ones (files in the page cache) are done by one thread: more would only
take the GIL from each other. As soon as a job takes longer than half a millisecond (a disk, a network), or one hangs
while others wait, every waiting job gets a thread of its own, up to the limit.
"""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["ReadPool"]

T = TypeVar("T")

# Without work a thread ends: nothing of a pool that nobody closed stays for longer.
_IDLE_SECONDS = 1.0
# Longer than a read from the page cache, shorter than one from a disk.
_LONG_SECONDS = 0.0005
_CHECK_SECONDS = 0.002


class ReadPool:
    """Calls functions in daemon threads and brings the results to the running event loop.

    Concurrency: `run` and `close` belong to one event loop's thread. A pool refers to its loop only while jobs are in
    flight.

    Args:
        threads: most threads at once, beside those that are stuck in a job that nobody waits for any more.
    """

    def __init__(self, threads: int) -> None:
        self._limit = threads
        self._jobs: collections.deque[_Job] = collections.deque()
        self._done: collections.deque[tuple[_Job, Any, BaseException | None]] = collections.deque()
        self._work = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0  # that count towards the limit
        self._idle = 0  # that wait for work, less those already woken
        self._delivery_due = False
        self._jobs_are_long = False
        self._finished = 0
        self._check_due = False
        self._closed = False

    async def run(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Call `function()` in a thread and return its result, or raise its exception.

        Raises:
            TimeoutError: it took longer than `timeout` seconds, counted from when a thread took it up. The thread
                stays with it, and another takes its place.
        """
        loop = asyncio.get_running_loop()
        job = _Job(function, loop, loop.create_future(), timeout)
        self._jobs.append(job)
        self._wake_for(loop)
        try:
            result: T = await job.future
            return result
        finally:
            job.over = True
            if job.timer is not None:
                job.timer.cancel()

    def close(self) -> None:
        """End the threads: idle ones now, busy ones after their job."""
        with self._lock:
            self._closed = True
            waiting = self._idle
            self._idle = 0
        for _ in range(waiting):
            self._work.release()

    def _wake_for(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that the jobs that wait are done: at once if they may be long, else by whoever is at work."""
        with self._lock:
            # A thread that is about to sleep either sees the job before, or is counted as idle here.
            nobody_at_work = self._threads == self._idle
        if nobody_at_work or self._jobs_are_long:
            self._wake_thread()
        elif not self._check_due:
            self._check_due = True
            loop.call_later(_CHECK_SECONDS, self._check, loop, self._finished)

    def _check(self, loop: asyncio.AbstractEventLoop, finished: int) -> None:
        """Look whether jobs turned out long, or none was finished since `finished` of them were; if so, wake more."""
        self._check_due = False
        waiting = len(self._jobs)
        if self._jobs_are_long or self._finished == finished:
            self._jobs_are_long = True
            for _ in range(waiting):
                self._wake_thread()
        elif waiting:
            self._wake_for(loop)

    def _wake_thread(self) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
                start = False
            elif self._threads < self._limit:
                self._threads += 1
                start = True
            else:
                return  # all are busy, and look into the deque before they sleep
        if start:
            threading.Thread(target=self._serve, name="feedline-read", daemon=True).start()
        else:
            self._work.release()

    # -- in the threads ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            while (job := self._take()) is not None:
                if not job.over and not self._call(job):
                    return  # given up: another thread counts in its place
            if not self._sleep():
                return

    def _take(self) -> _Job | None:
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def _sleep(self) -> bool:
        """Wait for work; return False if the thread is to end."""
        with self._lock:
            # A job may have come after the last look: whoever appends sees this thread as idle only from here on.
            if self._jobs:
                return True
            if self._closed:
                self._threads -= 1
                return False
            self._idle += 1
        if self._work.acquire(timeout=_IDLE_SECONDS):
            return True
        with self._lock:
            # Woken in the same moment: the waker has counted this thread out of the idle ones, so it must go on.
            if self._work.acquire(blocking=False):
                return True
            self._idle -= 1
            self._threads -= 1
            return False

    def _call(self, job: _Job) -> bool:
        """Do a job; return False if it was given up meanwhile, and this thread replaced."""
        if job.timeout is not None:
            job.loop.call_soon_threadsafe(self._start_clock, job)
        start = time.perf_counter()
        try:
            result, error = job.function(), None
        except BaseException as raised:
            result, error = None, raised
        long = time.perf_counter() - start > _LONG_SECONDS
        with self._lock:
            if job.abandoned:
                return False
            job.finished = True
            self._finished += 1
            self._jobs_are_long = long
            wake = not self._delivery_due
            self._delivery_due = True
            self._done.append((job, result, error))
        if wake:
            try:
                job.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                pass  # the loop was closed: nobody waits
        return True

    # -- in the event loop -------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        with self._lock:
            self._delivery_due = False
            done = list(self._done)
            self._done.clear()
        for job, result, error in done:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)

    def _start_clock(self, job: _Job) -> None:
        if not job.over and job.timeout is not None:
            job.timer = job.loop.call_later(job.timeout, self._give_up, job)

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            if job.finished:
                return  # its result is on the way
            job.abandoned = True
            self._threads -= 1
        if not job.future.done():
            job.future.set_exception(TimeoutError(f"no result after {job.timeout:g} s"))
        if self._jobs:
            self._wake_thread()


class _Job:
    __slots__ = ("abandoned", "finished", "function", "future", "loop", "over", "timeout", "timer")

    def __init__(
        self,
        function: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        timeout: float | None,
    ) -> None:
        self.function = function
        self.loop = loop
        self.future = future
        self.timeout = timeout
        self.timer: asyncio.TimerHandle | None = None
        self.over = False  # nobody waits any more
        self.finished = False
        self.abandoned = False
