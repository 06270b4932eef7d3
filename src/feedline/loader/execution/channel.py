"""Messages with descriptors over a socket: a length, a body, and perhaps open files.

`send` and `receive` block and are the worker's; `Outbox` and `Inbox` never block and are for whoever talks to many.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque

__all__ = ["MAX_DESCRIPTORS", "Inbox", "Outbox", "receive", "send"]

#: Descriptors in one message; Linux takes up to 253.
MAX_DESCRIPTORS = 64
_HEADER = struct.Struct("<QI")
_CHUNK = 1 << 20
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def _control(descriptors: list[int]) -> list[tuple[int, int, bytes]]:
    if not descriptors:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())]


def _received(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def send(channel: socket.socket, body: bytes | list[bytes], descriptors: list[int] | None = None) -> None:
    """Send a message; blocks until the system has taken it. `body` may come in parts."""
    parts = [body] if isinstance(body, bytes) else body
    header = _HEADER.pack(sum(map(len, parts)), len(descriptors or ()))
    if sum(map(len, parts)) <= _CHUNK:
        header, parts = header + b"".join(parts), []
    sent = channel.sendmsg([header], _control(descriptors or []))
    channel.sendall(memoryview(header)[sent:])
    for part in parts:
        channel.sendall(part)


def receive(channel: socket.socket) -> tuple[bytearray, list[int]]:
    """Return the next message and its descriptors; blocks until it is there.

    Raises:
        EOFError: the other end is closed.
    """
    inbox = Inbox(channel)
    while True:
        inbox.read()
        for message in inbox.messages:
            return message
        if inbox.ended:
            raise EOFError("the other end of the channel is closed")


class Outbox:
    """Sends messages as far as the socket takes them.

    Args:
        channel: non-blocking.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._parts: deque[tuple[memoryview, list[int]]] = deque()

    def put(self, parts: list[bytes], descriptors: list[int] | None = None) -> None:
        """Queue a message. Its descriptors are closed here once they are sent."""
        header = _HEADER.pack(sum(map(len, parts)), len(descriptors or ()))
        self._parts.append((memoryview(header), descriptors or []))
        self._parts.extend((memoryview(part), []) for part in parts if part)

    def flush(self) -> bool:
        """Send what can be sent now; true when nothing is left.

        Raises:
            OSError: the other end is gone.
        """
        while self._parts:
            part, descriptors = self._parts[0]
            try:
                sent = self._channel.sendmsg([part], _control(descriptors))
            except BlockingIOError:
                return False
            for descriptor in descriptors:
                os.close(descriptor)
            if sent == len(part):
                self._parts.popleft()
            else:
                self._parts[0] = (part[sent:], [])
        return True

    def drop(self) -> None:
        """Forget what is queued, and close its descriptors."""
        for _, descriptors in self._parts:
            for descriptor in descriptors:
                os.close(descriptor)
        self._parts.clear()

    @property
    def is_empty(self) -> bool:
        """Whether everything is sent."""
        return not self._parts


class Inbox:
    """Receives messages as they come.

    Attributes:
        messages: whole ones, (body, descriptors); the reader takes them out.
        ended: the other end is closed.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._header = bytearray()
        self._body: bytearray | None = None
        self._filled = 0
        self._wanted = 0
        self._descriptors: list[int] = []
        self.messages: deque[tuple[bytearray, list[int]]] = deque()
        self.ended = False

    def read(self) -> None:
        """Read what is there, one message at most. Blocks only if the socket does."""
        if self._body is None:
            self._read_header()
            if self._body is None:
                return
        while self._filled < len(self._body):
            try:
                count = self._channel.recv_into(memoryview(self._body)[self._filled :])
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if count == 0:
                self.ended = True
                return
            self._filled += count
        self.messages.append((self._body, self._descriptors))
        self._body, self._descriptors, self._filled = None, [], 0

    def _read_header(self) -> None:
        room = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self._channel.recvmsg(_HEADER.size - len(self._header), room, _CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        # Out of descriptors, the system drops some in silence: whoever reads the message misses them.
        self._descriptors += _received(ancillary)
        if not data:
            self.ended = True
            return
        self._header += data
        if len(self._header) == _HEADER.size:
            length, _ = _HEADER.unpack(self._header)
            self._header.clear()
            self._body = bytearray(length)

    def close(self) -> None:
        """Close the descriptors of messages that nobody took."""
        for _, descriptors in self.messages:
            for descriptor in descriptors:
                os.close(descriptor)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self.messages.clear()
        self._descriptors = []
