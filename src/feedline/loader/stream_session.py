"""`StreamSession`: a thread of its own reads a stream, and hands batches of items to the workers."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from queue import SimpleQueue

from feedline.loader.batch import Outcome, Task
from feedline.loader.execution.protocol import EXIT_PATIENCE, Session
from feedline.loader.failures import as_batch_error
from feedline.loader.ordering import Window
from feedline.loader.stream_plan import StreamPlan

__all__ = ["StreamSession"]


class StreamSession:
    """A session whose tasks are read by a thread of its own before workers get them.

    `submit` only says how far to read: the plan is the reader's.
    """

    def __init__(self, inner: Session, plan: StreamPlan) -> None:
        self._inner = inner
        self._requests: SimpleQueue[int | None] = SimpleQueue()
        self._claim = threading.Lock()
        self._thread: threading.Thread | None = None
        self._plan = plan
        self.outcomes: Window[Outcome] = inner.outcomes
        self._finalizer = weakref.finalize(self, _stop, self._requests, inner)
        self._finalizer.atexit = False

    def begin(self) -> None:
        """Start what takes long."""
        begin = getattr(self._inner, "begin", None)
        if begin is not None:
            begin()

    def submit(self, task: Task) -> None:
        """Have batch `task.number` read and loaded."""
        if self._thread is None:
            thread = threading.Thread(
                target=_read,
                args=(self._plan, self._inner, self._requests, self._claim),
                name="feedline-reader",
                daemon=True,
            )
            thread.start()
            # A Ctrl-C before this line has another one started, which ends at once.
            self._thread = thread
            _readers[thread] = self._requests
        self._requests.put(task.number)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next task to end, or for the end of the stream."""
        self._inner.wait(seconds)

    def notify(self) -> None:
        """Wake the consumer."""
        self._inner.notify()

    def cancel(self) -> None:
        """Stop reading after the item in hand."""
        _stop(self._requests, self._inner)


def _stop(requests: SimpleQueue[int | None], inner: Session) -> None:
    inner.cancel()
    requests.put(None)


def _read(plan: StreamPlan, inner: Session, requests: SimpleQueue[int | None], claim: threading.Lock) -> None:
    if not claim.acquire(blocking=False):
        return
    while True:
        number = requests.get()
        if number is None:
            return
        try:
            task = plan.task(number)
        except BaseException as error:  # such as SystemExit out of the stream: the consumer hears of it
            task = Task(number, plan.epoch, (), error=as_batch_error(error, None))
        if task is None:
            inner.notify()
        else:
            inner.submit(task)


#: Threads that read, and how each is told to stop.
_readers: weakref.WeakKeyDictionary[threading.Thread, SimpleQueue[int | None]] = weakref.WeakKeyDictionary()


@atexit.register
def _leave() -> None:
    readers = list(_readers.items())
    for _, requests in readers:
        requests.put(None)
    deadline = time.monotonic() + EXIT_PATIENCE
    for thread, _ in readers:
        thread.join(max(0.0, deadline - time.monotonic()))
