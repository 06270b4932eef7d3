"""An object store on loopback with bad days: each request can be answered by a fault, before it is served rightly.

It speaks as much of S3 as a reader needs (GET and HEAD of `/b/key`, ranges, ETags), checks no signatures, and serves an
`HTTPStore` as well.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from servers.fault_server import CLOSE, RESET, FaultServer, Hold, Request, respond
from servers.stores import StoreServer

__all__ = [
    "Fault",
    "FaultyStore",
    "Steps",
    "answer",
    "cut",
    "drop",
    "endless",
    "hang",
    "key_of",
    "raw",
    "run_faulty_store",
    "slow_down",
]

Steps = Iterable[Any]
#: `fault(store, request)` gives the steps of the server that answer the request.
Fault = Callable[["FaultyStore", Request], Steps]

_ERROR = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>of the tests</Message></Error>'
)
_XML = "Content-Type: application/xml"
_DATE = "Last-Modified: Mon, 30 Nov 2020 04:55:38 GMT"


def raw(*steps: Any) -> Fault:
    """Do just these steps."""
    return lambda store, request: steps


def answer(status: int, body: bytes = b"", *headers: str) -> Fault:
    return raw(respond(body, status, headers))


def slow_down() -> Fault:
    return answer(503, _ERROR % b"SlowDown", _XML)


def drop() -> Fault:
    """Close the connection without an answer."""
    return raw(CLOSE)


def hang() -> Fault:
    """Do not answer until the test lets it."""
    return lambda store, request: [Hold(store.released)]


def cut(share: float, then: str) -> Fault:
    """Send a right answer's head and a share of its body; then `"reset"`, `"close"` or `"hang"`."""

    def fault(store: FaultyStore, request: Request) -> Steps:
        head, mark, body = store.serve(request).partition(b"\r\n\r\n")
        yield head + mark + body[: int(len(body) * share)]
        yield {"reset": RESET, "close": CLOSE, "hang": Hold(store.released)}[then]

    return fault


def endless(head: bytes) -> Fault:
    """Send `head`, and then zeros until the client goes."""

    def fault(store: FaultyStore, request: Request) -> Steps:
        yield head
        while True:
            yield bytes(65536)
            store.zeros_sent += 65536

    return fault


class FaultyStore:
    """The server.

    Attributes:
        objects: what it serves, by key, in the bucket `b`.
        supports_ranges, sends_etags: what it can do.
        released: ends all that hangs; a connection stays open then, until the client closes it.
        zeros_sent: bytes of endless bodies.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.supports_ranges = True
        self.sends_etags = True
        self.released = threading.Event()
        self.zeros_sent = 0
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._lock = threading.Lock()
        self.server = FaultServer(self._answer)
        self.endpoint = self.server.url("")

    def s3(self, **options: object) -> StoreServer:
        """Return it as a bucket of S3."""
        given = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "AKIATESTS",
            "secret_access_key": "secret-of-the-tests",
            "client_options": {"allow_http": True},
        }
        return StoreServer("s3", "s3://b", self._put, "s3://b", {**given, **options})

    def http(self) -> StoreServer:
        """Return it as an HTTP server."""
        options = {"client_options": {"allow_http": True}}
        return StoreServer("http", f"{self.endpoint}/b", self._put, f"{self.endpoint}/b", options)

    def fail(self, key: str, *faults: Fault) -> None:
        """Let the next requests for `key` (`"*"`: for any key) fail so."""
        self._faults[key].extend(faults)

    @property
    def requests(self) -> list[Request]:
        return self.server.requests

    @property
    def faults_left(self) -> int:
        return sum(len(faults) for faults in self._faults.values())

    def wait_until_closed(self, seconds: float = 10.0) -> bool:
        """Return whether all connections have been closed, waiting for it."""
        deadline = time.monotonic() + seconds
        pause = threading.Event()  # never set
        while self.server.connections and time.monotonic() < deadline:
            pause.wait(0.01)
        return self.server.connections == 0

    def serve(self, request: Request) -> bytes:
        """Return the right answer."""
        data = self.objects.get(key_of(request))
        if data is None:
            return respond(_ERROR % b"NoSuchKey", 404, [_XML])
        headers = [_DATE, "Content-Type: application/octet-stream"]
        if self.sends_etags:
            headers.append(f'ETag: "{hashlib.md5(data).hexdigest()}"')
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.header("range") or "")
        if wanted is None or not self.supports_ranges:
            return respond(b"" if request.method == "HEAD" else data, 200, headers, len(data))
        start, end = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        if start >= len(data):
            return respond(b"", 416)
        return respond(
            data[start:end], 206, [f"Content-Range: bytes {start}-{end - 1}/{len(data)}", *headers]
        )

    def _put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def _answer(self, request: Request) -> Steps:
        with self._lock:
            faults = self._faults[key_of(request)] or self._faults["*"]
            fault = faults.popleft() if faults else None
        return [self.serve(request)] if fault is None else fault(self, request)


def key_of(request: Request) -> str:
    return unquote(request.target.partition("?")[0]).removeprefix("/b/")


@contextmanager
def run_faulty_store() -> Iterator[FaultyStore]:
    """Run a server until the block is left."""
    store = FaultyStore()
    with store.server:
        yield store
        store.released.set()
