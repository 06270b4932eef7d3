"""One libcurl handle, set up for one request after another; and what its transfers come to.

What libcurl would do by itself is turned off or watched: it follows no redirect, reads no `.netrc`, keeps no cookies,
decodes nothing, sends the request target as given, and a second request for the same transfer (its answer to a kept
connection that turns out dead) is stopped before it goes out.
"""

from __future__ import annotations

import asyncio
import select
import time
from dataclasses import dataclass, replace
from typing import Any

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.curl_errors import FILESIZE_EXCEEDED, describe
from feedline.datasets.fetching.http_body import Receiver
from feedline.datasets.fetching.http_exchange import Reply, Send
from feedline.datasets.fetching.tls import TlsSettings
from feedline.errors import MissingExtraError

__all__ = ["CurlHandle", "KeptConnections", "SessionOptions", "Transfer", "import_pycurl"]

# libcurl hands over at most so much of a body at a time: large enough for few calls, small enough for the cache.
_BUFFER_BYTES = 256 * 1024


def import_pycurl() -> Any:
    """Return the module `pycurl`; a `MissingExtraError` if it is not installed, or too old."""
    try:
        import pycurl  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError.of("HttpDataset", "http") from None
    if not hasattr(pycurl, "PREREQFUNCTION"):
        raise MissingExtraError(
            f"HttpDataset needs pycurl 7.46 or newer, not {pycurl.version.split()[0]}: pip install 'feedline[http]'"
        )
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


class Transfer:
    """One request on its way: what to send, who waits for it, and the handle that carries it."""

    __slots__ = ("future", "handle", "stale", "step")

    def __init__(self, step: Send, future: asyncio.Future[Reply | Failure]) -> None:
        self.step = step
        self.future = future
        self.handle: CurlHandle | None = None
        self.stale = 0  # kept connections that turned out dead

    def resolve(self, outcome: Reply | Failure) -> None:
        """Give the outcome to whoever waits."""
        # A loop that was closed with tasks pending has nobody left who waits.
        if not self.future.done() and not self.future.get_loop().is_closed():
            self.future.set_result(outcome)


class KeptConnections:
    """The sockets of kept connections, by their local address: to look at one before it is used again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sockets: dict[tuple[str, int], int] = {}

    def remember(self, address: tuple[str, int], fd: int) -> None:
        """Note that the connection from `address` is kept."""
        if len(self._sockets) >= self._limit:
            self._sockets.clear()  # most are closed by now; for the others libcurl's own look must do
        self._sockets[address] = fd

    def is_dead(self, address: tuple[str, int]) -> bool:
        """Tell whether the connection from `address` was kept and can't be used, and forget it.

        A kept connection that has something to read was closed by the server, or has bytes that belong to nobody, and
        would become the next answer.
        """
        fd = self._sockets.pop(address, None)
        if fd is None or not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))


class CurlHandle:
    """A libcurl handle, used for one transfer after another.

    Attributes:
        curl: pycurl's object.
        stale: whether the transfer ended before its request went out, on a kept connection that was dead.

    Concurrency: belongs to its session's event loop.
    """

    def __init__(self, kept: KeptConnections, options: SessionOptions) -> None:
        self._pycurl = pycurl = import_pycurl()
        self._options = options
        self._kept = kept
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
        self._transfer: Transfer | None = None
        self._receiver = Receiver(self._options.max_bytes)
        self._requests = 0
        self._excess = False
        self._seen = -1
        self._seen_at = 0.0
        self.stale = False

    def prepare(self, transfer: Transfer, proxy: str) -> None:
        """Set the handle up for `transfer`; options that did not change are left as they are."""
        pycurl, curl, step = self._pycurl, self.curl, transfer.step
        self._transfer = transfer
        transfer.handle = self
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

    def release(self) -> Transfer:
        """Give the transfer back, and be ready for another."""
        transfer = self._transfer
        assert transfer is not None, "a handle is released once"
        transfer.handle = None
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
        if receiver.is_too_large:
            return receiver.too_large()
        # Of an error or a redirect the body is not wanted: what stopped it does not matter.
        enough = receiver.stopped or (code == FILESIZE_EXCEEDED and receiver.status >= 300)
        if code and not enough:
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
            self._kept.remember((curl.getinfo(pycurl.LOCAL_IP), curl.getinfo(pycurl.LOCAL_PORT)), fd)

    def _before_request(self, address: str, local: str, port: int, local_port: int) -> int:
        """Called by libcurl when it is about to send the request: also when it does so for the second time."""
        if self._requests == 0 and self._kept.is_dead((local, local_port)):
            self.stale = True
            return int(self._pycurl.PREREQFUNC_ABORT)
        self._requests += 1
        return int(self._pycurl.PREREQFUNC_OK if self._requests == 1 else self._pycurl.PREREQFUNC_ABORT)

    def _on_trace(self, kind: int, text: bytes) -> None:
        # libcurl drops what comes beyond the Content-Length, and tells so only here.
        if kind == 0 and text.startswith(b"Excess found"):
            self._excess = True


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
