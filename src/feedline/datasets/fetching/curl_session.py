"""libcurl on an event loop: many requests at once on kept connections, without a thread and without redirects.

libcurl tells which sockets it waits for; they lie in one selector of the session's own, and only that selector is
registered with the event loop. So the loop is woken once for all sockets that are ready, and a request costs it no
registration.

What libcurl would do by itself is turned off or watched: it follows no redirect, reads no `.netrc`, keeps no cookies,
decodes nothing, sends the request target as given, and a second request for the same transfer (its answer to a kept
connection that turns out dead) is stopped before it goes out.
"""

from __future__ import annotations

import asyncio
import collections
import os
import select
import time
from dataclasses import dataclass, replace
from typing import Any
from urllib import request

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.curl_errors import FILESIZE_EXCEEDED, describe
from feedline.datasets.fetching.http_body import Receiver
from feedline.datasets.fetching.http_exchange import Reply, Send
from feedline.datasets.fetching.socket_watch import make_watch
from feedline.datasets.fetching.tls import TlsSettings
from feedline.datasets.fetching.urls import Url
from feedline.errors import MissingExtraError

__all__ = ["CurlSession", "SessionOptions", "import_pycurl"]

# libcurl hands over at most so much of a body at a time: large enough for few calls, small enough for the cache.
_BUFFER_BYTES = 256 * 1024
# Connections that are kept; libcurl closes the oldest beyond it.
_KEPT_CONNECTIONS = 4096
_MAX_STALE = 100
# The standard library's reading of `no_proxy`, which typeshed leaves out.
_bypasses = request.proxy_bypass_environment  # type: ignore[attr-defined]
_PER_CALL = 512


def import_pycurl() -> Any:
    """Return the module `pycurl`; a `MissingExtraError` if it is not installed."""
    try:
        import pycurl  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError.of("HttpDataset", "http") from None
    return pycurl


@dataclass(frozen=True)
class SessionOptions:
    """What all requests of a session have in common.

    Attributes:
        max_bytes: the largest body.
        timeout: the limit per attempt, for messages; each `Send` says what is left of it.
        read_timeout: seconds without a byte after which a transfer is given up; `None` for no limit.
        max_connections: requests in flight; more wait their turn.
        tls: whom https connections trust.
    """

    max_bytes: int
    timeout: float | None
    read_timeout: float | None
    max_connections: int
    tls: TlsSettings


class CurlSession:
    """Sends requests on the running event loop.

    Concurrency: belongs to one event loop; all calls come from its thread.
    """

    def __init__(self, options: SessionOptions) -> None:
        self._pycurl = pycurl = import_pycurl()
        self._options = options
        self._pid = os.getpid()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, _KEPT_CONNECTIONS)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._sockets = make_watch(self._pump)
        self._active: dict[Any, _Slot] = {}
        self._free: list[_Slot] = []
        self._waiting: collections.deque[_Transfer] = collections.deque()
        self._proxies: dict[tuple[str, str, int], str] = {}
        #: Kept connections by their local address: to look at one before it is used again.
        self.kept: dict[tuple[str, int], int] = {}
        self._deadline: float | None = None  # when libcurl wants to be called, on the loop's clock
        self._alarm: float | None = None  # when the loop is going to call it
        self._idle_checks = False
        self._closed = False

    async def send(self, step: Send) -> Reply | Failure:
        """Ask once, and return what came of it. Cancelling drops the connection."""
        loop = asyncio.get_running_loop()
        transfer = _Transfer(step, loop.create_future())
        if len(self._active) < self._options.max_connections:
            self._begin(transfer)
            self._set_alarm(loop)
        else:
            self._waiting.append(transfer)
        try:
            return await transfer.future
        finally:
            if transfer.slot is not None:
                self._drop(transfer.slot)
                self._set_alarm(loop)

    def close(self) -> None:
        """Close all connections; what is in flight ends as a connection failure."""
        if self._closed:
            return
        self._closed = True
        for slot in list(self._active.values()):
            transfer = self._drop(slot)
            transfer.resolve(Failure("connection", "the dataset was closed"))
        while self._waiting:
            self._waiting.popleft().resolve(Failure("connection", "the dataset was closed"))
        for slot in self._free:
            slot.curl.close()
        self._free.clear()
        self._multi.close()
        self._sockets.close()

    # -- one transfer -----------------------------------------------------------------------------------------------

    def _begin(self, transfer: _Transfer) -> None:
        slot = self._free.pop() if self._free else _Slot(self, self._pycurl, self._options)
        url = transfer.step.url
        proxy = self._proxies.get(url.origin)
        if proxy is None:
            proxy = self._proxies[url.origin] = _proxy_for(url)
        slot.prepare(transfer, proxy)
        self._active[slot.curl] = slot
        self._multi.add_handle(slot.curl)
        if self._options.read_timeout is not None and not self._idle_checks:
            self._idle_checks = True
            self._schedule_idle_check(asyncio.get_running_loop(), self._options.read_timeout)

    def _drop(self, slot: _Slot) -> _Transfer:
        """Take a transfer back from libcurl, in whatever state: unfinished ones lose their connection."""
        del self._active[slot.curl]
        self._multi.remove_handle(slot.curl)
        transfer = slot.release()
        if not self._closed:
            self._free.append(slot)
            self._fill()
        return transfer

    def _fill(self) -> None:
        while self._waiting and len(self._active) < self._options.max_connections:
            transfer = self._waiting.popleft()
            if not transfer.future.done():
                self._begin(transfer)

    def _end(self, slot: _Slot, code: int, message: str) -> None:
        if slot.stale:
            # No request went out: the kept connection had been closed, or had bytes that nobody asked for.
            transfer = self._drop(slot)
            transfer.stale += 1
            if transfer.stale > _MAX_STALE:
                transfer.resolve(
                    Failure("connection", "every kept connection turned out closed", passing=True)
                )
            elif not transfer.future.done():
                self._begin(transfer)
            return
        outcome = slot.outcome(code, message)
        self._drop(slot).resolve(outcome)

    # -- libcurl's calls, and the loop's -----------------------------------------------------------------------------

    def _on_socket(self, what: int, fd: int, multi: Any, data: Any) -> None:
        # After a fork the child shares the selector with its parent: only the parent may touch it.
        if os.getpid() != self._pid:
            return
        pycurl = self._pycurl
        if what == pycurl.POLL_REMOVE:
            self._sockets.forget(fd)
        else:
            self._sockets.watch(fd, bool(what & pycurl.POLL_IN), bool(what & pycurl.POLL_OUT))

    def _on_timer(self, milliseconds: int) -> None:
        self._deadline = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        # No handle is kept, as it would refer to the loop: an alarm that comes for nothing does nothing.
        if self._deadline is not None and (self._alarm is None or self._deadline < self._alarm):
            self._alarm = self._deadline
            loop.call_later(max(0.0, self._deadline - time.monotonic()), self._on_alarm, self._alarm)

    def _on_alarm(self, alarm: float) -> None:
        if self._alarm == alarm:
            self._alarm = None
        if not self._closed:
            self._pump(())

    def _pump(self, ready: Any) -> None:
        """Let libcurl go on with the sockets that are ready, and deliver what is finished."""
        if self._closed:
            return
        act = self._multi.socket_action
        for fd, bits in ready:
            act(fd, bits)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            act(self._pycurl.SOCKET_TIMEOUT, 0)
        self._reap()
        self._set_alarm(asyncio.get_running_loop())

    def _reap(self) -> None:
        queued = True
        while queued:
            queued, done, failed = self._multi.info_read(_PER_CALL)
            for curl in done:
                self._end(self._active[curl], 0, "")
            for curl, code, message in failed:
                self._end(self._active[curl], code, message)

    # -- the idle limit ----------------------------------------------------------------------------------------------

    def _schedule_idle_check(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        # Looking four times per limit finds an idle transfer at most a quarter late, and costs nothing per byte.
        loop.call_later(limit / 4, self._check_idle, limit)

    def _check_idle(self, limit: float) -> None:
        if self._closed or not self._active:
            self._idle_checks = False
            return
        now = time.monotonic()
        for slot in [slot for slot in self._active.values() if slot.idle_since(now) >= limit]:
            failure = Failure("timeout", f"timed out: no byte came for {limit:g} s", passing=True)
            self._drop(slot).resolve(failure)
        loop = asyncio.get_running_loop()
        self._set_alarm(loop)
        self._schedule_idle_check(loop, limit)


class _Transfer:
    """One request on its way: what to send, who waits for it, and the slot that carries it."""

    __slots__ = ("future", "slot", "stale", "step")

    def __init__(self, step: Send, future: asyncio.Future[Reply | Failure]) -> None:
        self.step = step
        self.future = future
        self.slot: _Slot | None = None
        self.stale = 0  # kept connections that turned out dead

    def resolve(self, outcome: Reply | Failure) -> None:
        # A loop that was closed with tasks pending has nobody left who waits.
        if not self.future.done() and not self.future.get_loop().is_closed():
            self.future.set_result(outcome)


class _Slot:
    """A libcurl handle, used for one transfer after another."""

    def __init__(self, session: CurlSession, pycurl: Any, options: SessionOptions) -> None:
        self._pycurl = pycurl
        self._options = options
        self._kept = session.kept
        self.curl = curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        curl.setopt(pycurl.FOLLOWLOCATION, 0)
        curl.setopt(pycurl.MAXFILESIZE_LARGE, Receiver.read_limit(options.max_bytes))
        curl.setopt(pycurl.BUFFERSIZE, _BUFFER_BYTES)
        curl.setopt(pycurl.NOPROXY, "")
        curl.setopt(pycurl.PREREQFUNCTION, self._before_request)
        curl.setopt(pycurl.DEBUGFUNCTION, self._on_trace)
        curl.setopt(pycurl.VERBOSE, 1)
        _set_tls(curl, pycurl, options.tls)
        self._headers: tuple[bytes, ...] | None = None
        self._address = ""
        self._proxy = ""
        curl.setopt(pycurl.PROXY, "")
        self._reset()

    def _reset(self) -> None:
        self._transfer: _Transfer | None = None
        self._receiver = Receiver(self._options.max_bytes)
        self._requests = 0
        self._excess = False
        self._seen = -1
        self._seen_at = 0.0
        self.stale = False

    def prepare(self, transfer: _Transfer, proxy: str) -> None:
        """Set the handle up for `transfer`; options that did not change are left as they are."""
        pycurl, curl, step = self._pycurl, self.curl, transfer.step
        self._transfer = transfer
        transfer.slot = self
        self._seen_at = time.monotonic()
        server = f"{step.url.scheme}://{step.url.authority}"
        if server != self._address:
            curl.setopt(pycurl.URL, server + "/")
            self._address = server
        if proxy != self._proxy:
            curl.setopt(pycurl.PROXY, proxy)
            self._proxy = proxy
        # An HTTP proxy that is asked for an http URL wants all of it; everybody else wants path and query.
        absolute = proxy.startswith(("http:", "https:")) and step.url.scheme == "http"
        curl.setopt(pycurl.REQUEST_TARGET, step.url.address if absolute else step.url.target)
        if step.headers is not self._headers:
            curl.setopt(pycurl.HTTPHEADER, list(step.headers))
            self._headers = step.headers
        milliseconds = 0 if step.seconds is None else min(max(1, round(step.seconds * 1000)), 2**31 - 1)
        curl.setopt(pycurl.TIMEOUT_MS, milliseconds)
        curl.setopt(pycurl.HEADERFUNCTION, self._receiver.on_header)
        curl.setopt(pycurl.WRITEFUNCTION, self._receiver.on_body)

    def release(self) -> _Transfer:
        """Give the transfer back, and be ready for another."""
        transfer = self._transfer
        assert transfer is not None, "a slot is released once"
        transfer.slot = None
        self._reset()
        return transfer

    def idle_since(self, now: float) -> float:
        """Return for how many seconds nothing has come, as far as the calls of this method have seen."""
        seen = self._receiver.progress
        if seen != self._seen:
            # The first look counts from the start of the transfer, unless bytes have come since.
            self._seen_at = self._seen_at if self._seen < 0 and seen == 0 else now
            self._seen = seen
        return now - self._seen_at

    def outcome(self, code: int, message: str) -> Reply | Failure:
        """Tell what came of the transfer that has ended with libcurl's `code` (0 for success)."""
        outcome = self._outcome(code, message)
        if isinstance(outcome, Failure) and self._receiver.status:
            return replace(outcome, status=self._receiver.status)
        return outcome

    def _outcome(self, code: int, message: str) -> Reply | Failure:
        receiver = self._receiver
        if code and not (code == FILESIZE_EXCEEDED and receiver.status >= 300):
            if self._requests > 1:
                return Failure(
                    "connection", "the server closed a kept connection without an answer", passing=True
                )
            os_error = self.curl.getinfo(self._pycurl.OS_ERRNO)
            return describe(code, message, os_error, receiver, self._options.timeout)
        if not receiver.status:
            return Failure("connection", "the server's answer has no status", passing=True)
        if not code:
            self._remember_connection()
        if self._excess and receiver.status < 300:
            length = receiver.declared_length
            return Failure(
                "truncated", f"the body is longer than its Content-Length of {length} bytes", passing=True
            )
        body = receiver.finish()
        if isinstance(body, Failure):
            return body
        return Reply(receiver.status, receiver, body)

    def _remember_connection(self) -> None:
        curl, pycurl = self.curl, self._pycurl
        fd = curl.getinfo(pycurl.LASTSOCKET)
        if fd >= 0:
            self._kept[curl.getinfo(pycurl.LOCAL_IP), curl.getinfo(pycurl.LOCAL_PORT)] = fd

    def _before_request(self, address: str, local: str, port: int, local_port: int) -> int:
        """Called by libcurl when it is about to send the request: also when it does so for the second time."""
        fd = self._kept.pop((local, local_port), None)
        if fd is not None and self._requests == 0 and _is_readable(fd):
            self.stale = True
            return int(self._pycurl.PREREQFUNC_ABORT)
        self._requests += 1
        return int(self._pycurl.PREREQFUNC_OK if self._requests == 1 else self._pycurl.PREREQFUNC_ABORT)

    def _on_trace(self, kind: int, text: bytes) -> None:
        # libcurl drops what comes beyond the Content-Length, and tells so only here.
        if kind == 0 and text.startswith(b"Excess found"):
            self._excess = True


def _is_readable(fd: int) -> bool:
    """Tell whether a kept connection has something to read: then it was closed, or has bytes that belong to nobody."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _set_tls(curl: Any, pycurl: Any, tls: TlsSettings) -> None:
    curl.setopt(pycurl.SSL_VERIFYPEER, int(tls.verify))
    curl.setopt(pycurl.SSL_VERIFYHOST, 2 if tls.check_hostname else 0)
    if tls.ca_file is not None:
        curl.setopt(pycurl.CAINFO, tls.ca_file)
    if tls.ca_path is not None:
        curl.setopt(pycurl.CAPATH, tls.ca_path)
        if tls.ca_file is None:
            curl.unsetopt(pycurl.CAINFO)
    if tls.ca_data is not None:
        curl.setopt(pycurl.CAINFO_BLOB, tls.ca_data)
    version = 0
    if tls.minimum is not None:
        version |= getattr(pycurl, "SSLVERSION_TLSv" + tls.minimum.replace(".", "_"))
    if tls.maximum is not None:
        version |= getattr(pycurl, "SSLVERSION_MAX_TLSv" + tls.maximum.replace(".", "_"))
    if version:
        curl.setopt(pycurl.SSLVERSION, version)


def _proxy_for(url: Url) -> str:
    """Return the proxy that the environment names for `url`, with a scheme, or an empty string."""
    proxies = request.getproxies_environment()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    if not proxy or _bypasses(url.host.strip("[]"), proxies):
        return ""
    return proxy if "://" in proxy else "http://" + proxy
