"""`Puller`: draws the items of a stream on a thread of its own, each within a time limit.

Note [one limit]
    An item has one limit, and reading it is only the first part of what may take long. So how long it was read goes along
    with it, and is charged to whoever transforms it: on whichever thread, in whichever process.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from feedline.loader.lanes import SIGNAL_SECONDS, charge
from feedline.loader.walk import Rewalk

__all__ = ["Pull", "Puller", "TimedItems"]


class TimedItems(list[Any]):
    """Items that took a while to be read: whoever takes one of them has so much less time for it.

    Args:
        items: what was read.
        seconds: how long each took.

    Pickles; a copy charges, too.
    """

    def __init__(self, items: Iterable[Any], seconds: Iterable[float]) -> None:
        super().__init__(items)
        self.seconds = list(seconds)

    def __getitem__(self, place: Any) -> Any:
        """Return an item, and charge what it took to the call that runs on this thread; or a slice, as of any list."""
        if not isinstance(place, slice):
            charge(self.seconds[place])
        return super().__getitem__(place)


class Pull:
    """What is drawn for one batch.

    Attributes:
        items: those that came in time, so far.
        seconds: how long each of them took; perhaps of one more already.
        error: what ended it before it had them all.
        at: which item of the stream is drawn, or was the last.
    """

    def __init__(
        self,
        walk: Rewalk,
        place: int,
        step: int,
        count: int,
        limit: float,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._walk = walk
        self._place = place
        self._step = step
        self._count = count
        self._limit = limit
        self._is_closed = is_closed
        self._claim = threading.Lock()
        self._began: float | None = None
        self._took = 0.0
        self._done = threading.Event()
        self.items: list[Any] = []
        self.seconds: list[float] = []
        self.error: BaseException | None = None
        self.at = walk.drawn

    def run(self) -> None:
        """Draw; on the thread that comes first, and once."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            while len(self.items) < self._count:
                place = self._place + len(self.items) * self._step
                while self._walk.drawn < place:
                    if not self._one():
                        return
                one = self._one()
                if not one:
                    return
                self.seconds.append(self._took)
                self.items += one
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()

    def _one(self) -> list[Any]:
        """Draw one item, into a list of its own: what comes too late is not to be seen by who has given it up."""
        if self._is_closed():
            raise _left()
        one: list[Any] = []
        self.at = self._walk.drawn
        began = self._began = perf_counter()
        self._walk.draw(one, 1)
        self._took = perf_counter() - began
        if self._took > self._limit:
            raise self._late()
        return one

    def wait(self) -> None:
        """Return when it is done; if an item takes too long, at once, and with that error."""
        while not self._done.wait(self._patience()):
            if self._is_closed() and self._claim.acquire(blocking=False):
                # The thread has ended before it came to this, and now nobody draws it any more.
                self.error = _left()
                self._done.set()
                return
            if self._patience() <= 0 and not self._done.is_set():
                self.error = self._late()
                return

    def _patience(self) -> float:
        began = self._began
        if began is None:
            return SIGNAL_SECONDS
        return max(0.0, min(SIGNAL_SECONDS, began + self._limit - perf_counter()))

    def _late(self) -> TimeoutError:
        return TimeoutError(f"the item took longer than {self._limit:g} s (timeout=)")


def _left() -> RuntimeError:
    return RuntimeError("nobody reads this stream any more: its iterator is closed")


class Puller:
    """Draws on one thread for the whole stream: what a stream opens may be bound to its thread.

    A thread that hangs in an item is left behind, as a daemon.

    Concurrency: one thread asks; any may close it, or let go of it. What a Ctrl-C cuts off there goes on here, and is there when it is asked for again.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._queue: SimpleQueue[Pull | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: Pull | None = None
        self._finalizer = weakref.finalize(self, self._queue.put, None)

    def pull(self, walk: Rewalk, place: int, step: int, count: int) -> Pull:
        """Return `count` items of `walk`, every `step`-th from `place` on; the same ones until `forget` is called."""
        finalizer = self._finalizer
        if self._thread is None and finalizer.alive:
            thread = threading.Thread(target=_serve, args=(self._queue,), name="feedline-stream", daemon=True)
            thread.start()
            self._thread = thread
        if self._current is None:
            # By the finalizer, which does not hold this object as the thread holds what it draws.
            self._current = Pull(walk, place, step, count, self._limit, lambda: not finalizer.alive)
        # Perhaps once more, after a Ctrl-C: it runs once.
        self._queue.put(self._current)
        self._current.wait()
        return self._current

    def forget(self) -> None:
        """Let the next `pull` draw on."""
        self._current = None

    def close(self) -> None:
        """End the thread after its item; does not wait."""
        self._finalizer()


def _serve(queue: SimpleQueue[Pull | None]) -> None:
    while True:
        pull = queue.get()
        if pull is None:
            # A Ctrl-C may have had two threads started: both end.
            queue.put(None)
            return
        pull.run()
        del pull
