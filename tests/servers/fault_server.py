"""An HTTP server on loopback that answers exactly as a test says, well-formed or not.

`FaultServer(answer)` calls `answer(request)` for each request, on the connection's thread, and does what the result
tells: a sequence of steps, or one.

| step | what the server does |
| --- | --- |
| `bytes` | sends them as they are |
| `Hold(event)` | waits until the test sets the event, or the server closes |
| `Trickle(data, seconds)` | sends one byte at a time with pauses, until the client has gone |
| `RESET` | drops the connection with a TCP reset |
| `CLOSE` | ends the connection in good order (FIN) |

After the steps the connection waits for the next request. With a `greeting` the server sends that as soon as somebody
connects, and closes: it speaks another protocol.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CLOSE", "RESET", "FaultServer", "Hold", "Request", "Trickle", "redirect", "respond"]

RESET = "reset"
CLOSE = "close"
_DEADLINE_SECONDS = 30.0


@dataclass(frozen=True)
class Hold:
    event: threading.Event


@dataclass(frozen=True)
class Trickle:
    data: bytes
    seconds: float


@dataclass
class Request:
    """One request as it came: the target is what stood in the request line."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    connection: int
    arrived: float = field(default_factory=time.monotonic)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


def respond(
    body: bytes = b"", status: int = 200, headers: Iterable[str] = (), length: int | str | None = None
) -> bytes:
    """A well-formed answer; `length` lies about the body, `"none"` leaves Content-Length out."""
    lines = [f"HTTP/1.1 {status} Reason", *headers]
    if length != "none":
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def redirect(location: str | bytes | None, status: int = 302) -> bytes:
    text = location.encode("utf-8") if isinstance(location, str) else location
    line = b"" if text is None else b"Location: " + text + b"\r\n"
    return b"HTTP/1.1 %d Moved\r\n%sContent-Length: 0\r\n\r\n" % (status, line)


Answer = Any  # bytes, or an iterable of steps


class FaultServer:
    """See the module. A context manager; `requests` has all that came, in order."""

    def __init__(
        self,
        answer: Callable[[Request], Answer] | Answer,
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        greeting: bytes = b"",
    ) -> None:
        self._answer = answer if callable(answer) else lambda request: answer
        self._tls = tls
        self._greeting = greeting
        self._listener = socket.create_server((host, 0), backlog=512)
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[Request] = []
        self.handshakes_failed = 0
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def url(self, target: str = "/", host: str | None = None, user: str = "") -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{user}{host or self.host}:{self.port}{target}"

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        with self._lock:
            return len(self._connections)

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._connections.values())
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(_DEADLINE_SECONDS)

    def _accept(self) -> None:
        number = 0
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.settimeout(_DEADLINE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
        except OSError:
            self.handshakes_failed += 1
            connection.close()
            return
        with self._lock:
            self._connections[number] = connection
        try:
            if self._greeting:
                connection.sendall(self._greeting)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)
                return
            self._talk(connection, number)
        except OSError:
            pass  # the client went away, which is what some tests want
        finally:
            connection.close()
            with self._lock:
                del self._connections[number]

    def _talk(self, connection: socket.socket, number: int) -> None:
        pending = b""
        while not self._closing.is_set():
            while b"\r\n\r\n" not in pending:
                received = connection.recv(65536)
                if not received:
                    return
                pending += received
            head, _, pending = pending.partition(b"\r\n\r\n")
            request = _parse(head, number)
            with self._lock:
                self.requests.append(request)
            steps = self._answer(request)
            for step in [steps] if isinstance(steps, (bytes, str, Hold, Trickle)) else steps:
                if not self._do(connection, step):
                    return

    def _do(self, connection: socket.socket, step: Any) -> bool:
        if isinstance(step, bytes):
            connection.sendall(step)
        elif isinstance(step, Hold):
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while not step.event.wait(0.02) and not self._closing.is_set() and time.monotonic() < deadline:
                pass
        elif isinstance(step, Trickle):
            for byte in step.data:
                if self._closing.wait(step.seconds):
                    return False
                connection.sendall(bytes([byte]))
        elif step == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        elif step == CLOSE:
            connection.shutdown(socket.SHUT_WR)
            return False
        else:
            raise ValueError(f"unknown step {step!r}")
        return True


def _parse(head: bytes, number: int) -> Request:
    first, *rest = head.decode("latin-1").split("\r\n")
    method, _, tail = first.partition(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in rest)]
    return Request(method, tail.rpartition(" ")[0], headers, number)
