"""One asyncio loop in a daemon thread for `AsyncDataset`s; transforms and collation go to worker threads.

Because the loop is in a thread of its own, it works in a script, inside of a running loop (a notebook), and from any
thread; each loader has its own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from feedline.loader import forks
from feedline.loader.batch import BatchLoader, Task
from feedline.loader.execution.feeder import FeedBatch, Feeder, within
from feedline.loader.execution.protocol import EXIT_PATIENCE, Known
from feedline.loader.execution.quick_feeder import make_feeder
from feedline.loader.execution.threads import Line, ThreadsExecutor

__all__ = ["EventLoopExecutor", "LoopThread"]

logger = logging.getLogger("feedline")

#: Seconds that `aclose()` of a dataset, and the cancellation of what is in flight, may take.
CLOSE_SECONDS = 5.0

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_loops: weakref.WeakSet[LoopThread] = weakref.WeakSet()


class LoopThread:
    """An event loop in a daemon thread, started when it is first needed, for one dataset.

    When it ends, everything in flight is cancelled, and `dataset.aclose()` is awaited once, on the loop itself.
    """

    def __init__(self, dataset: Any, make_feeder: Callable[[], Feeder]) -> None:
        self._dataset = dataset
        self._make_feeder = make_feeder
        self._lock = threading.Lock()
        self._generation = forks.generation()
        self._claim = threading.Lock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended = False
        self.feeder: Feeder | None = None

    def start(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        if self.loop is None or self._thread is None:
            with self._lock:
                if self._thread is None:
                    threading.Thread(target=self._run, name="feedline-event-loop", daemon=True).start()
            self._ready.wait()
        assert self.loop is not None
        return self.loop

    def _run(self) -> None:
        # A Ctrl-C may have cut off the start, so that it was made twice: the first one is the loop's thread.
        if not self._claim.acquire(blocking=False):
            return
        with self._lock:
            if self._ended:
                return
            self._thread = threading.current_thread()
        _threads.add(self._thread)
        _loops.add(self)
        with asyncio.Runner() as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.feeder = self._make_feeder()
        self._ready.set()
        await self._stop.wait()
        await self.feeder.close(CLOSE_SECONDS)
        try:
            await asyncio.wait_for(self._close_dataset(), CLOSE_SECONDS)
        except TimeoutError:
            logger.warning("aclose() of %s took too long", type(self._dataset).__name__)

    async def _close_dataset(self) -> None:
        aclose = getattr(self._dataset, "aclose", None)
        try:
            if aclose is not None:
                await aclose()
        except BaseException:  # SystemExit, too: the loop is ending anyhow
            logger.warning("aclose() of %s failed", type(self._dataset).__name__, exc_info=True)

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run `function(*arguments)` on the loop, soon."""
        self.start().call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """Let the loop end; does not wait. A loop that never ran has nothing to end, and one of a parent isn't ours."""
        if self.is_of_parent:
            return
        with self._lock:
            if self._ended or self._thread is None:
                self._ended = True
                return
            self._ended = True
        self._ready.wait()
        assert self.loop is not None
        assert self._stop is not None
        try:
            self.loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:  # it has ended by itself: the interpreter is going
            return

    @property
    def is_of_parent(self) -> bool:
        """Whether the process was forked since: the loop is in the parent."""
        return self._generation != forks.current

    def join(self, seconds: float) -> None:
        """Wait for its end, `seconds` at most; nothing to wait for on the loop's own thread."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)


class EventLoopExecutor:
    """Awaits items on a loop, and hands whole batches of them to worker threads.

    Args:
        load: transforms and collates.
        num_workers: batches at a time; 0 counts as one.
    """

    def __init__(self, load: BatchLoader, num_workers: int) -> None:
        items = load.items
        batches = max(1, num_workers)
        dataset, timeout, width = items.dataset, items.timeout, items.item_concurrency
        # In a list, and not in `self`: the thread must not know its executor.
        self._batches = at_once = [batches]
        self._thread = LoopThread(dataset, lambda: make_feeder(dataset, width, at_once[0], timeout))
        self._threads = ThreadsExecutor(load, batches, _Fetch(self._thread, dataset, timeout))
        self._stop_at_error = items.on_error == "raise"
        self._finalizer = weakref.finalize(self, self._thread.end)

    def session(self, in_order: bool, known: Known) -> EventLoopSession:
        """Return a session; the loop is not started yet."""
        return EventLoopSession(self._thread, self._threads, Line(in_order, known), self._stop_at_error)

    def places(self) -> list[str]:
        """Return where the state of each worker thread stands."""
        return self._threads.places()

    def resize(self, width: int) -> None:
        """Await `width` batches at a time, and have as many threads."""
        self._batches[0] = width
        feeder = self._thread.feeder
        if feeder is not None:
            self._thread.call(feeder.resize, width)
        self._threads.resize(width)

    def close(self) -> None:
        """Cancel what is in flight, and wait until the dataset is closed, 5 s at most for each."""
        self._finalizer()
        self._thread.join(2 * CLOSE_SECONDS)
        self._threads.close()


class _Fetch:
    """One more item, for a worker thread: a substitute."""

    def __init__(self, thread: LoopThread, dataset: Any, timeout: float | None) -> None:
        self._thread = thread
        self._dataset = dataset
        self._timeout = timeout

    def __call__(self, index: Any) -> Any:
        async def fetch() -> Any:
            async with within(self._timeout, "the item"):
                return await self._dataset[index]

        return asyncio.run_coroutine_threadsafe(fetch(), self._thread.start()).result()


class EventLoopSession:
    """One iterator's share of the loop."""

    def __init__(self, thread: LoopThread, threads: ThreadsExecutor, line: Line, stop_at_error: bool) -> None:
        self._thread = thread
        self._threads = threads
        self._line = line
        self._stop_at_error = stop_at_error
        self.outcomes = line.outcomes
        self._finalizer = weakref.finalize(self, _cancel, thread, line)

    def submit(self, task: Task) -> None:
        """Begin to fetch the items of `task`, as soon as its turn comes."""
        line, threads = self._line, self._threads
        if task.error is not None or not len(task.indices):
            threads.queue(line, task)
            return

        def deliver(task: Task, items: list[Any]) -> None:
            task.items = items
            threads.queue(line, task)

        batch = FeedBatch(task, line.known, self._stop_at_error, line.is_cancelled, deliver)
        self._thread.call(self._add, batch)

    def _add(self, batch: FeedBatch) -> None:
        assert self._thread.feeder is not None
        self._thread.feeder.add(batch)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next task to end."""
        self._line.sleep(seconds)

    def notify(self) -> None:
        """Let `wait` return."""
        self._line.wake.put(None)

    def cancel(self) -> None:
        """Cancel every fetch in flight; the loop awaits the cancellations."""
        _cancel(self._thread, self._line)


def _cancel(thread: LoopThread, line: Line) -> None:
    line.cancel()
    feeder = thread.feeder
    if feeder is not None and thread.loop is not None and not thread.is_of_parent:
        try:
            thread.loop.call_soon_threadsafe(feeder.drop_cancelled)
        except RuntimeError:  # the loop has ended, and with it everything that was in flight
            return


@atexit.register
def _leave() -> None:
    for loop in list(_loops):
        loop.end()
    deadline = time.monotonic() + EXIT_PATIENCE
    for thread in list(_threads):
        thread.join(max(0.0, deadline - time.monotonic()))
