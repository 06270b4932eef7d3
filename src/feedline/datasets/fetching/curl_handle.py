"""One libcurl handle, set up for one request after another; and what its transfers come to.

What libcurl would do by itself is turned off or watched: it follows no redirect, reads no `.netrc`, keeps no cookies,
decodes nothing, sends the request target as given, and a second request for the same transfer (its answer to a kept
connection that turns out dead) is stopped before it goes out.

Note [excess]
    A body that is longer than its `Content-Length` is cut by libcurl. It says so nowhere but in its trace, which costs
    a quarter of a request; and it closes the connection. So a server is watched (traced) until it has kept a
    connection, and then no longer: an answer after which a connection was kept had no excess. An untraced one after
    which it was not (nearly always since the server said that it would close it) is `Unsure`, is asked for again,
    watched, and so are the next of that server. Excess can only be read together with the headers, as libcurl reads no
    further than the body otherwise: an answer larger than one read needs no second look.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.curl_errors import FILESIZE_EXCEEDED, describe
from feedline.datasets.fetching.curl_transfer import KeptConnections, Outcome, Server, Transfer
from feedline.datasets.fetching.http_body import Receiver
from feedline.datasets.fetching.http_exchange import Reply, Unsure
from feedline.datasets.fetching.tls import TlsSettings
from feedline.errors import MissingExtraError

__all__ = [
    "CurlHandle",
    "KeptConnections",
    "Outcome",
    "Server",
    "SessionOptions",
    "Transfer",
    "import_pycurl",
]

# libcurl hands over at most so much of a body at a time: large enough for few calls, small enough for the cache.
_BUFFER_BYTES = 256 * 1024
# After a connection that was not kept so many answers of its server are watched.
_WATCHED_AFTER_CLOSE = 100
# What `PREREQFUNCTION` returns: CURL_PREREQFUNC_OK and CURL_PREREQFUNC_ABORT of <curl/curl.h>, which are frozen.
_GO_ON, _ABORT = 0, 1


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


class CurlHandle:
    """A libcurl handle, used for one transfer after another.

    Attributes:
        curl: pycurl's object.
        transfer: what it carries.
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
        _set_tls(curl, pycurl, options.tls)
        self._receiver = receiver = Receiver(options.max_bytes)
        curl.setopt(pycurl.HEADERFUNCTION, receiver.on_header)
        curl.setopt(pycurl.WRITEFUNCTION, receiver.on_body)
        self._headers: tuple[bytes, ...] | None = None
        self._server: Server | None = None
        self._proxy = ""
        self._milliseconds = 0
        self._is_traced = False
        curl.setopt(pycurl.PROXY, "")
        self.transfer: Transfer | None = None
        self._start()

    def _start(self) -> None:
        self._requests = 0
        self._excess = False
        self._local: tuple[str, int] | None = None
        self._seen = -1
        self._seen_at = 0.0
        self.stale = False

    def prepare(self, transfer: Transfer) -> None:
        """Set the handle up for `transfer`; options that did not change are left as they are."""
        pycurl, curl, step, server = self._pycurl, self.curl, transfer.step, transfer.server
        self.transfer = transfer
        transfer.handle = self
        if self._options.read_timeout is not None:
            self._seen_at = time.monotonic()
        if server is not self._server:
            curl.setopt(pycurl.URL, server.root)
            self._server = server
            if server.proxy != self._proxy:
                curl.setopt(pycurl.PROXY, server.proxy)
                self._proxy = server.proxy
        url = step.url
        curl.setopt(pycurl.REQUEST_TARGET, url.address if server.is_absolute else url.target)
        if step.headers is not self._headers:
            curl.setopt(pycurl.HTTPHEADER, list(step.headers))
            self._headers = step.headers
        milliseconds = 0 if step.seconds is None else min(max(1, round(step.seconds * 1000)), 2**31 - 1)
        if milliseconds != self._milliseconds:
            curl.setopt(pycurl.TIMEOUT_MS, milliseconds)
            self._milliseconds = milliseconds
        is_traced = step.watched or server.watched > 0
        if is_traced != self._is_traced:
            curl.setopt(pycurl.VERBOSE, int(is_traced))
            self._is_traced = is_traced

    def release(self) -> Transfer:
        """Give the transfer back, and be ready for another."""
        transfer = self.transfer
        assert transfer is not None, "a handle is released once"
        transfer.handle = self.transfer = None
        self._receiver.reset()
        self._start()
        return transfer

    def idle_since(self, now: float) -> float:
        """Return for how many seconds nothing has come, as far as the calls of this method have seen."""
        seen = self._receiver.progress
        if seen != self._seen:
            # The first look counts from the start of the transfer, unless bytes have come since.
            self._seen_at = self._seen_at if self._seen < 0 and seen == 0 else now
            self._seen = seen
        return now - self._seen_at

    def outcome(self, code: int, message: str) -> Outcome:
        """Tell what came of the transfer that has ended with libcurl's `code` (0 for success)."""
        outcome = self._outcome(code, message)
        if isinstance(outcome, Failure) and self._receiver.status:
            return replace(outcome, status=self._receiver.status)
        return outcome

    def _outcome(self, code: int, message: str) -> Outcome:
        receiver = self._receiver
        if receiver.is_too_large:
            return receiver.too_large()
        status = receiver.status
        # Of an error or a redirect the body is not wanted: what stopped it does not matter.
        enough = receiver.stopped or (code == FILESIZE_EXCEEDED and status >= 300)
        if code and not enough:
            return self._failure(code, message)
        if not status:
            return Failure("connection", "the server's answer has no status", passing=True)
        if not code and not self._is_kept() and not self._is_traced and self._may_have_excess():
            return Unsure()
        if self._excess and status < 300:
            length = receiver.declared_length
            return Failure(
                "truncated", f"the body is longer than its Content-Length of {length} bytes", passing=True
            )
        body = receiver.finish()
        if isinstance(body, Failure):
            return body
        return Reply(status, receiver.head, body)

    def _failure(self, code: int, message: str) -> Failure:
        if self._requests > 1:
            return Failure(
                "connection", "the server closed a kept connection without an answer", passing=True
            )
        os_error = self.curl.getinfo(self._pycurl.OS_ERRNO)
        return describe(code, message, os_error, self._receiver, self._options.timeout)

    def _is_kept(self) -> bool:
        """Tell whether the connection was kept after a whole answer; then it is remembered."""
        fd = self.curl.getinfo(self._pycurl.LASTSOCKET)
        server = self._server
        assert server is not None, "a transfer has a server"
        if fd < 0:
            server.watched = _WATCHED_AFTER_CLOSE
            return False
        if server.watched and self._is_traced:
            server.watched -= 1
        if self._local is not None:
            self._kept.remember(self._local, fd)
        return True

    def _may_have_excess(self) -> bool:
        """Tell whether bytes beyond the body may have been read: see Note [excess]."""
        receiver = self._receiver
        if receiver.status >= 300 or receiver.received > _BUFFER_BYTES:
            return False
        return receiver.declared_length is not None or receiver.status in (204, 205)

    def _before_request(self, address: str, local: str, port: int, local_port: int) -> int:
        """Called by libcurl when it is about to send the request: also when it does so for the second time."""
        if self._requests:
            self._requests += 1
            return _ABORT
        self._local = (local, local_port)
        if self._kept.is_dead(self._local):
            self.stale = True
            return _ABORT
        self._requests = 1
        return _GO_ON

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
