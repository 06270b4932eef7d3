"""A small object server on loopback that does what stores do on bad days: each request can be answered by a fault.

It speaks as much of S3 as a reader needs (GET and HEAD of `/bucket/key`, ranges, ETags), checks no signatures, and
serves an `HTTPStore` as well. It runs on an event loop of its own, in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from servers.stores import StoreServer

__all__ = [
    "FaultyStore",
    "Reply",
    "Request",
    "answer",
    "cut",
    "drop",
    "hang",
    "raw",
    "run_faulty_store",
    "slow_down",
]

_ERROR = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>of the tests</Message></Error>'
)
_DATE = "Last-Modified: Mon, 30 Nov 2020 04:55:38 GMT"


@dataclass(frozen=True)
class Request:
    """One request as it came: the key as it was meant, the target as it was sent, headers in lower case."""

    method: str
    target: str
    key: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """Bytes to send, and what happens to the connection then."""

    data: bytes
    then: Literal["keep", "close", "reset", "hang"] = "keep"


Fault = Callable[["FaultyStore", Request], Reply]


def answer(status: str, body: bytes = b"", *headers: str) -> Fault:
    """Answer with `status` (such as `"503 Slow Down"`), `body` and `headers`."""
    return lambda server, request: Reply(_head(status, len(body), *headers) + body)


def slow_down() -> Fault:
    return answer("503 Slow Down", _ERROR % b"SlowDown", "Content-Type: application/xml")


def raw(data: bytes, then: Literal["keep", "close", "reset", "hang"] = "keep") -> Fault:
    """Send just these bytes."""
    return lambda server, request: Reply(data, then)


def cut(share: float, then: Literal["close", "reset", "hang"]) -> Fault:
    """Send a right answer's head and a share of its body, and then no more."""

    def fault(server: FaultyStore, request: Request) -> Reply:
        whole = server.serve(request).data
        head, mark, body = whole.partition(b"\r\n\r\n")
        return Reply(head + mark + body[: int(len(body) * share)], then)

    return fault


def drop() -> Fault:
    """Close the connection without an answer."""
    return raw(b"", "close")


def hang() -> Fault:
    """Never answer."""
    return raw(b"", "hang")


def _head(status: str, length: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


@dataclass
class FaultyStore:
    """The server.

    Attributes:
        objects: what it serves, by key (in the bucket `b`).
        faults: what the next requests for a key get, before they are served rightly; `"*"` counts for every key.
        requests: what has been asked for, in order.
        open: connections that are open now; `closed` is set whenever one has ended.
    """

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    requests: list[Request] = field(default_factory=list)
    open: set[object] = field(default_factory=set)
    closed: threading.Condition = field(default_factory=threading.Condition)
    supports_ranges: bool = True
    sends_etags: bool = True

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

    def _put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def fail(self, key: str, *faults: Fault) -> None:
        self.faults[key].extend(faults)

    def asked(self, key: str) -> list[Request]:
        return [request for request in self.requests if request.key == key]

    def serve(self, request: Request) -> Reply:
        """Return the right answer."""
        data = self.objects.get(request.key)
        if data is None:
            body = _ERROR % b"NoSuchKey"
            return Reply(_head("404 Not Found", len(body), "Content-Type: application/xml") + body)
        headers = [_DATE, "Content-Type: application/octet-stream"]
        if self.sends_etags:
            headers.append(f'ETag: "{hashlib.md5(data).hexdigest()}"')
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if wanted is None or not self.supports_ranges:
            return self._whole(request, data, headers)
        start, end = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        if start >= len(data):
            return Reply(_head("416 Range Not Satisfiable", 0))
        span = f"Content-Range: bytes {start}-{end - 1}/{len(data)}"
        return Reply(_head("206 Partial Content", end - start, span, *headers) + data[start:end])

    def _whole(self, request: Request, data: bytes, headers: list[str]) -> Reply:
        body = b"" if request.method == "HEAD" else data
        return Reply(_head("200 OK", len(data), *headers) + body)

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        for key in (request.key, "*"):
            if self.faults[key]:
                return self.faults[key].popleft()(self, request)
        return self.serve(request)


async def _handle(server: FaultyStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    server.open.add(writer)
    try:
        while True:
            request = _parse(await reader.readuntil(b"\r\n\r\n"))
            reply = server.reply(request)
            writer.write(reply.data)
            await writer.drain()
            if reply.then == "hang":
                await reader.read()  # until the client goes
            if reply.then == "reset":
                await _until_sent(writer)
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            if reply.then != "keep":
                return
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        return  # the client has gone, or the server ends
    finally:
        writer.close()
        with server.closed:
            server.open.discard(writer)
            server.closed.notify_all()


async def _until_sent(writer: asyncio.StreamWriter) -> None:
    # A reset throws away what the receiver has not read yet. Only the receiver's kernel has to have it all here: what
    # is lost then, is lost on the way, as in a real network.
    while writer.transport.get_write_buffer_size():
        await asyncio.sleep(0)


def _parse(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    key = unquote(target.partition("?")[0]).removeprefix("/b/")
    return Request(method, target, key, headers)


@contextmanager
def run_faulty_store() -> Iterator[FaultyStore]:
    """Run a server until the block is left."""
    server = FaultyStore()
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(lambda r, w: _handle(server, r, w), "127.0.0.1", 0)
        server.endpoint = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        listener.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(
        target=lambda: loop.run_until_complete(main()), name="faulty store", daemon=True
    )
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()
        loop.close()
