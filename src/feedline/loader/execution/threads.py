"""Worker threads: made once per loader, kept between epochs, started by the first task and never by a constructor.

Note [ownership]
    A worker thread knows the queue and the batch loader, and no executor, session or loader: so these can be collected,
    and their finalisers end the threads and drop what is queued. Threads are daemons: an item that hangs can't keep the
    interpreter; at exit they get a moment to end their item, since a thread that is in C code when the interpreter goes
    may crash it.

Note [head start]
    Items that hold the GIL take turns: with four workers, the first batch would come when four are nearly done. So when
    the threads are new, the first has the processor to itself until its batch is made, for `HEAD_START_SECONDS` at most:
    that is lost once in the life of a loader, where the others could have worked beside it.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from feedline.loader.batch import BatchLoader, Group, Outcome, Run, Task
from feedline.loader.execution.protocol import EXIT_PATIENCE, Known
from feedline.loader.lanes import SIGNAL_SECONDS
from feedline.loader.ordering import Window

__all__ = ["Line", "ThreadsExecutor"]

#: See Note [head start].
HEAD_START_SECONDS = 0.02
#: In the place of a task: the worker that draws it ends.
_RETIRE = "retire"

_alive: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_queues: weakref.WeakSet[_Shared] = weakref.WeakSet()


class _Shared:
    """What the executor and its threads share; weakly known to the exit handler."""

    def __init__(self, load: BatchLoader, fetch: Callable[[Any], Any] | None) -> None:
        self.load = load
        self.fetch = fetch
        self.queue: SimpleQueue[tuple[Line, Task] | str | None] = SimpleQueue()
        self.closed = False
        self.lock = threading.Lock()
        self.threads: list[threading.Thread] = []
        #: How many of them are asked to end, and have not heard of it yet.
        self.retiring = 0
        #: The first task has ended: see Note [head start].
        self.begun = threading.Event()


class Line:
    """What a session and the workers share."""

    __slots__ = ("cancelled", "known", "outcomes", "wake")

    def __init__(self, in_order: bool, known: Known) -> None:
        self.outcomes: Window[Outcome] = Window(in_order)
        # Tokens for tasks that have ended. Outcomes themselves lie in the window: see Note [Ctrl-C] in ordering.
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.cancelled = False
        self.known = known

    def deliver(self, task: Task, loaded: list[Outcome] | Group) -> None:
        """Put what came of `task` into the window, and wake the consumer if it waits for that."""
        window = self.outcomes
        if isinstance(loaded, Group):
            window.put_group(loaded)
        else:
            for outcome in loaded:
                window.put(outcome)
        # Each waking costs as much as gathering some hundred rows. Should a token ever be missed, it is SIGNAL_SECONDS.
        if window.is_awaited(task.number, task.count):
            self.wake.put(None)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.cancelled = True

    def is_cancelled(self) -> bool:
        """Tell whether nobody waits for outcomes any more."""
        return self.cancelled

    def sleep(self, seconds: float | None) -> None:
        """Wait for a token, `seconds` at most, and no longer than `SIGNAL_SECONDS`: the consumer comes again."""
        seconds = SIGNAL_SECONDS if seconds is None else min(seconds, SIGNAL_SECONDS)
        try:
            self.wake.get(timeout=seconds)
            # One look at the window answers all tokens; they pile up while the consumer has no need to wait.
            while not self.wake.empty():
                self.wake.get_nowait()
        except Empty:
            return


def _work(shared: _Shared, name: str, is_first: bool) -> None:
    queue, begun = shared.queue, shared.begun
    if not is_first and _has_gil():
        begun.wait(HEAD_START_SECONDS)
    while True:
        entry = queue.get()
        if entry is None or shared.closed:
            # One token ends all, however many there are: a Ctrl-C may have cut off that one of them was counted.
            queue.put(None)
            return
        if isinstance(entry, str):
            with shared.lock:
                shared.retiring -= 1
                shared.threads.remove(threading.current_thread())
            return
        line, task = entry
        if not line.cancelled:
            run = Run(name, cancelled=line.is_cancelled, fetch=shared.fetch, known=line.known)
            line.deliver(task, shared.load.load_or_gather(task, run))
        if not begun.is_set():
            begun.set()
        # Nothing of the last batch may live on here while the thread waits for the next.
        del entry, line, task


def _has_gil() -> bool:
    has_gil = getattr(sys, "_is_gil_enabled", None)
    return has_gil is None or bool(has_gil())


class ThreadsExecutor:
    """Loads on `num_workers` threads, a batch each.

    Args:
        load: what is run.
        num_workers: threads.
        fetch: how one more item is had, where `dataset[index]` is not the way.
    """

    def __init__(
        self, load: BatchLoader, num_workers: int, fetch: Callable[[Any], Any] | None = None
    ) -> None:
        self._num_workers = num_workers
        self._shared = _Shared(load, fetch)
        self._started = 0
        self._finalizer = weakref.finalize(self, _end, self._shared)

    def session(self, in_order: bool, known: Known) -> ThreadsSession:
        """Return a session; no thread is started yet."""
        return ThreadsSession(self, in_order, known)

    def queue(self, line: Line, task: Task) -> None:
        """Hand `task` to the workers, starting one if not all are there."""
        shared = self._shared
        if len(shared.threads) - shared.retiring < self._num_workers:
            with shared.lock:
                if len(shared.threads) - shared.retiring < self._num_workers:
                    self._start_one()
        shared.queue.put((line, task))

    def _start_one(self) -> None:
        number, shared = self._started, self._shared
        thread = threading.Thread(
            target=_work,
            args=(shared, f"worker thread {number}", number == 0),
            name=f"feedline-worker-{number}",
            daemon=True,
        )
        thread.start()
        self._started += 1
        shared.threads.append(thread)
        _alive.add(thread)
        _queues.add(shared)

    def places(self) -> list[str]:
        """Return where the state of each worker thread stands."""
        return [f"/proc/self/task/{thread.native_id}/stat" for thread in list(self._shared.threads)]

    def resize(self, width: int) -> None:
        """Have `width` threads: one more is started with each task, those that are too many end after what is queued."""
        shared = self._shared
        with shared.lock:
            self._num_workers = width
            surplus = len(shared.threads) - shared.retiring - width
            for _ in range(surplus):
                shared.retiring += 1
                shared.queue.put(_RETIRE)

    def close(self) -> None:
        """Let the workers end after their item; does not wait."""
        self._finalizer()


def _end(shared: _Shared) -> None:
    shared.closed = True
    shared.queue.put(None)
    shared.load.close()


class ThreadsSession:
    """One iterator's share of the workers."""

    def __init__(self, executor: ThreadsExecutor, in_order: bool, known: Known) -> None:
        self._executor = executor
        self._line = Line(in_order, known)
        self.outcomes = self._line.outcomes
        self._finalizer = weakref.finalize(self, self._line.cancel)

    def submit(self, task: Task) -> None:
        """Queue `task`."""
        self._executor.queue(self._line, task)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next task to end."""
        self._line.sleep(seconds)

    def notify(self) -> None:
        """Let `wait` return."""
        self._line.wake.put(None)

    def cancel(self) -> None:
        """Let the workers pass over what is queued."""
        self._line.cancel()


@atexit.register
def _leave() -> None:
    for shared in list(_queues):
        shared.closed = True
        shared.queue.put(None)
    threads = list(_alive)
    deadline = time.monotonic() + EXIT_PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
