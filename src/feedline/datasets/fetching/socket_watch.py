"""The sockets that libcurl waits for, watched by the running event loop.

On Linux they lie in an `epoll` set of their own, and the event loop watches only that: one wake-up serves all sockets
that are ready, and no socket costs a registration with the loop. Elsewhere each socket is registered with the loop,
which on Windows has to be an `asyncio.SelectorEventLoop`: the default one there can't watch sockets of others.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

__all__ = ["EpollWatch", "LoopWatch", "SocketWatch", "make_watch", "running_loop"]

#: Called with pairs (descriptor, libcurl's bits: 1 to read, 2 to write, 4 for an error).
OnReady: TypeAlias = Callable[[Sequence[tuple[int, int]]], None]

_IN, _OUT, _ERR = 1, 2, 4
# Few enough that what is begun in answer goes out soon, and that the loop's other tasks get their turn.
_EVENTS_PER_WAKE = 64


class SocketWatch(Protocol):
    """Tells when sockets are ready. Belongs to one event loop."""

    def watch(self, fd: int, read: bool, write: bool) -> None:
        """Watch `fd` from now on for just these."""
        ...

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer; it may be closed already."""
        ...

    def close(self) -> None:
        """Watch nothing any more."""
        ...


def make_watch(on_ready: OnReady) -> SocketWatch:
    """Return the cheapest watch of this platform."""
    return EpollWatch(on_ready) if sys.platform == "linux" else LoopWatch(on_ready)


class LoopWatch:
    """Registers every socket with the running loop."""

    def __init__(self, on_ready: OnReady) -> None:
        self._on_ready = on_ready
        self._fds: set[int] = set()

    def watch(self, fd: int, read: bool, write: bool) -> None:
        """Watch `fd` from now on for just these."""
        loop = asyncio.get_running_loop()
        self._fds.add(fd)
        if read:
            loop.add_reader(fd, self._on_ready, ((fd, _IN),))
        else:
            loop.remove_reader(fd)
        if write:
            loop.add_writer(fd, self._on_ready, ((fd, _OUT),))
        else:
            loop.remove_writer(fd)

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer."""
        self._fds.discard(fd)
        loop = running_loop()
        if loop is not None:
            loop.remove_reader(fd)
            loop.remove_writer(fd)

    def close(self) -> None:
        """Watch nothing any more."""
        for fd in list(self._fds):
            self.forget(fd)


if sys.platform == "linux":

    class EpollWatch:
        """Keeps the sockets in an `epoll` set, and registers that with the running loop."""

        def __init__(self, on_ready: OnReady) -> None:
            self._on_ready = on_ready
            self._epoll = select.epoll()
            self._fds: set[int] = set()
            self._registered = False

        def watch(self, fd: int, read: bool, write: bool) -> None:
            """Watch `fd` from now on for just these."""
            if not self._registered:
                asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._wake)
                self._registered = True
            mask = (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0)
            if fd in self._fds:
                self._epoll.modify(fd, mask)
            else:
                self._epoll.register(fd, mask)
                self._fds.add(fd)

        def forget(self, fd: int) -> None:
            """Watch `fd` no longer."""
            if fd in self._fds:
                self._fds.discard(fd)
                try:
                    self._epoll.unregister(fd)
                except OSError:
                    pass  # closed already, and so out of the set

        def close(self) -> None:
            """Watch nothing any more."""
            loop = running_loop()
            if self._registered and loop is not None:
                loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._fds.clear()

        def _wake(self) -> None:
            events = self._epoll.poll(0, _EVENTS_PER_WAKE)
            # An error or a hang-up is told as readable: libcurl finds out by reading.
            self._on_ready([(fd, _bits(mask)) for fd, mask in events])

    def _bits(mask: int) -> int:
        return (_IN if mask & ~select.EPOLLOUT else 0) | (_OUT if mask & select.EPOLLOUT else 0)

else:
    EpollWatch = LoopWatch


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of this thread, or `None` outside of any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
