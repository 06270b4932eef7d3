"""libcurl on an event loop: many requests at once on kept connections, without a thread.

libcurl tells which sockets it waits for (`socket_watch.py`) and when it wants to be called; a request is one handle
(`curl_handle.py`), and its end is brought to whoever awaits it. Everything runs on the loop's own thread.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from feedline.datasets.fetching import event_loops
from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.curl_handle import CurlHandle, SessionOptions, import_pycurl
from feedline.datasets.fetching.curl_transfer import KeptConnections, Outcome, Server, Transfer
from feedline.datasets.fetching.http_exchange import Send
from feedline.datasets.fetching.proxies import proxy_for
from feedline.datasets.fetching.socket_watch import make_watch, running_loop
from feedline.datasets.fetching.urls import Url

__all__ = ["CurlSession"]

# Kept connections that turn out dead cost a transfer no attempt, so something else must end it.
_MAX_STALE = 100
_MAX_SERVERS_KNOWN = 1024
_MESSAGES_PER_CALL = 512
# Of <curl/multi.h>, where they are frozen: what a socket is to be watched for, and "no socket, but the time has come".
_POLL_IN, _POLL_OUT, _POLL_REMOVE = 1, 2, 4
_SOCKET_TIMEOUT = -1


class CurlSession:
    """Sends requests on the running event loop.

    Concurrency: belongs to one event loop; all calls come from its thread. It refers to its loop only while something
    is in flight.
    """

    def __init__(self, options: SessionOptions) -> None:
        self._pycurl = pycurl = import_pycurl()
        self._options = options
        event_loops.watch_forks()
        self._forks = event_loops.forks
        self._max_connections = options.max_connections
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, options.max_connections)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._sockets = make_watch(self._pump)
        self._kept = KeptConnections(4 * options.max_connections)
        self._active: dict[Any, CurlHandle] = {}
        self._free: list[CurlHandle] = []
        self._waiting: collections.deque[Transfer] = collections.deque()
        self._servers: dict[tuple[str, str, int], Server] = {}
        self._deadline: float | None = None  # when libcurl wants to be called
        self._called_soon = False
        self._alarm: asyncio.TimerHandle | None = None
        self._idle_check: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._closed = False

    async def send(self, step: Send) -> Outcome:
        """Ask once, and return what came of it. Cancelling drops the connection."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        transfer = self.start(step, partial(_settle, future))
        try:
            return await future
        finally:
            if not transfer.is_over:
                self.abandon(transfer)

    def start(self, step: Send, deliver: Callable[[Outcome], None]) -> Transfer:
        """Ask once; `deliver` is called with what came of it, on this loop, later."""
        transfer = Transfer(step, self._server_of(step.url), deliver)
        if len(self._active) < self._max_connections:
            self._begin(transfer)
            if not (self._is_pumping or self._called_soon):
                self._set_alarms(asyncio.get_running_loop())
        else:
            self._waiting.append(transfer)
        return transfer

    def abandon(self, transfer: Transfer) -> None:
        """Drop what nobody waits for any more, with its connection; nothing is delivered."""
        transfer.end()
        if transfer.handle is not None:
            self._drop(transfer.handle)
            # A coroutine that is collected with its closed loop ends outside of any.
            loop = running_loop()
            if loop is not None and not self._is_pumping:
                self._set_alarms(loop)

    def close(self) -> None:
        """Close all connections; what is in flight ends as a connection failure."""
        if self._closed:
            return
        self._closed = True
        ended = [self._drop(handle) for handle in list(self._active.values())]
        for transfer in [*ended, *self._waiting]:
            transfer.resolve(Failure("connection", "the dataset was closed"))
        self._waiting.clear()
        self._cancel_alarms()
        for handle in self._free:
            handle.curl.close()
        self._free.clear()
        self._multi.close()
        self._sockets.close()

    # -- transfers ---------------------------------------------------------------------------------------------------

    def _begin(self, transfer: Transfer) -> None:
        handle = self._free.pop() if self._free else CurlHandle(self._kept, self._options)
        handle.prepare(transfer)
        self._active[handle.curl] = handle
        self._multi.add_handle(handle.curl)

    def _drop(self, handle: CurlHandle) -> Transfer:
        """Take a transfer back from libcurl, in whatever state: an unfinished one loses its connection."""
        del self._active[handle.curl]
        self._multi.remove_handle(handle.curl)
        transfer = handle.release()
        self._free.append(handle)
        if not self._closed:
            self._begin_waiting()
        return transfer

    def _begin_waiting(self) -> None:
        while self._waiting and len(self._active) < self._max_connections:
            transfer = self._waiting.popleft()
            if not transfer.is_over:
                self._begin(transfer)

    def _end(self, handle: CurlHandle, code: int, message: str) -> None:
        if not handle.stale:
            outcome = handle.outcome(code, message)
            self._drop(handle).resolve(outcome)
            return
        # No request went out: the kept connection had been closed, or had bytes that nobody asked for.
        transfer = self._drop(handle)
        transfer.stale += 1
        if transfer.stale > _MAX_STALE:
            transfer.resolve(
                Failure("connection", "every kept connection was closed by the server", passing=True)
            )
        elif not transfer.is_over:
            self._begin(transfer)

    def _server_of(self, url: Url) -> Server:
        server = self._servers.get(url[:3])
        if server is None:
            if len(self._servers) >= _MAX_SERVERS_KNOWN:
                self._servers.clear()
            server = self._servers[url[:3]] = Server(url, proxy_for(url))
        return server

    # -- libcurl's calls, and the loop's -----------------------------------------------------------------------------

    def _on_socket(self, what: int, fd: int, multi: Any, data: Any) -> None:
        # After a fork the child shares the selector with its parent: only the parent may touch it.
        if event_loops.forks != self._forks:
            return
        if what == _POLL_REMOVE:
            self._sockets.forget(fd)
        else:
            self._sockets.watch(fd, bool(what & _POLL_IN), bool(what & _POLL_OUT))

    def _on_timer(self, milliseconds: int) -> None:
        # Most often it is "at once", which needs no clock.
        self._deadline = (
            0.0 if milliseconds == 0 else None if milliseconds < 0 else time.monotonic() + milliseconds / 1000
        )

    def _pump(self, ready: Sequence[tuple[int, int]] = ()) -> None:
        """Let libcurl go on with the time that has come and the sockets that are ready; deliver what is finished."""
        if self._closed:
            return
        self._is_pumping = True
        try:
            # What has been begun meanwhile goes out first: while bodies are read, the servers work on it.
            self._act_if_due()
            act = self._multi.socket_action
            for fd, bits in ready:
                act(fd, bits)
            # All of them after all reading: in between, bodies would drive this code out of the processor's caches.
            self._deliver_finished()
        finally:
            self._is_pumping = False
        if not self._closed:
            self._set_alarms(asyncio.get_running_loop())

    def _act(self, fd: int, bits: int) -> bool:
        """Let libcurl go on with one socket; tell whether a transfer has ended."""
        _, running = self._multi.socket_action(fd, bits)
        return bool(running < len(self._active))

    def _act_if_due(self) -> bool:
        """Let libcurl go on if its time has come; tell whether a transfer has ended."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return False
        self._deadline = None
        return self._act(_SOCKET_TIMEOUT, 0)

    def _deliver_finished(self) -> None:
        """Deliver what has ended; what is begun in answer to that goes out at once."""
        while not self._closed:
            queued, done, failed = self._multi.info_read(_MESSAGES_PER_CALL)
            ended = [(curl, 0, "") for curl in done] + failed
            carried = [self._active[curl].transfer for curl, _, _ in ended]
            for (curl, code, message), transfer in zip(ended, carried, strict=True):
                # Whoever got an outcome may have dropped others, and begun new ones on their handles.
                handle = self._active.get(curl)
                if handle is not None and handle.transfer is transfer:
                    self._end(handle, code, message)
            if not self._act_if_due() and not queued:
                return

    # -- alarms ------------------------------------------------------------------------------------------------------

    def _set_alarms(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that libcurl is called at its deadline, and that idle transfers are looked for."""
        if not self._active:
            self._cancel_alarms()
            return
        limit = self._options.read_timeout
        if limit is not None and self._idle_check is None:
            # Looking four times per limit finds an idle transfer at most a quarter late, and costs nothing per byte.
            self._idle_check = loop.call_later(limit / 4, self._check_idle, limit)
        if self._deadline is None:
            return
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            # What is due at once (the start of each transfer) leaves the alarm for the time limits alone.
            if not self._called_soon:
                self._called_soon = True
                loop.call_soon(self._on_soon)
        elif self._alarm is None or loop.time() + seconds < self._alarm.when():
            # An alarm that is too early does no harm: it sets the next one.
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_later(seconds, self._on_alarm)

    def _cancel_alarms(self) -> None:
        # Handles refer to their loop, so none is kept while nothing is in flight.
        for alarm in (self._alarm, self._idle_check):
            if alarm is not None:
                alarm.cancel()
        self._alarm = self._idle_check = None

    def _on_soon(self) -> None:
        self._called_soon = False
        self._pump()

    def _on_alarm(self) -> None:
        self._alarm = None
        self._pump()

    def _check_idle(self, limit: float) -> None:
        self._idle_check = None
        now = time.monotonic()
        for handle in [handle for handle in self._active.values() if handle.idle_since(now) >= limit]:
            failure = Failure("timeout", f"timed out: no byte came for {limit:g} s", passing=True)
            self._drop(handle).resolve(failure)
        self._set_alarms(asyncio.get_running_loop())


def _settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    # A loop that was closed with tasks pending has nobody left who waits.
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(outcome)
