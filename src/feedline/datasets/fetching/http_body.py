"""The answer to one request: its headers, and a body that is stopped at a cap, measured, and decoded under the cap."""

from __future__ import annotations

import re
import zlib
from typing import Protocol

from feedline.datasets.fetching.attempts import Failure

__all__ = ["Receiver"]

_STATUS = re.compile(rb"HTTP/[0-9.]+ +([0-9]{3})")
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]+)", re.IGNORECASE | re.MULTILINE)
# What an encoder may add to data that does not shrink: far more than any real one does.
_ENCODING_SLACK_BYTES = 64 * 1024
# What may come with an error or a redirect, whose body nobody wants, before the connection is given up.
_MAX_DISCARDED_BYTES = 64 * 1024


class Receiver:
    """Takes the header lines and the body of one answer.

    The client calls `on_header` with each header line and `on_body` with each piece of the body. When one of them
    returns 0 the client has to stop: `is_too_large` tells whether the body is over the cap, or not wanted.

    Attributes:
        received: bytes of the body that came, before decoding.
        stopped: whether a call has returned 0.
    """

    __slots__ = ("_encoded", "_headers", "_lines", "_max_bytes", "_pieces", "_status", "received", "stopped")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lines: list[bytes] = []
        self._pieces: list[bytes] = []
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._encoded = False
        self._status = 0
        self.received = 0
        self.stopped = False

    @staticmethod
    def read_limit(max_bytes: int) -> int:
        """Return how many bytes of a body are ever read: an encoded one may be larger than it decodes to."""
        return max_bytes + _ENCODING_SLACK_BYTES

    def on_header(self, line: bytes) -> int | None:
        """Take a header line; stop at the end of the headers if they tell a length over the cap."""
        self._lines.append(line)
        return self._at_end_of_headers() if line in (b"\r\n", b"\n") else None

    def on_body(self, piece: bytes) -> int | None:
        """Take a piece of the body; stop when there are more than the cap allows."""
        self._pieces.append(piece)
        self.received += len(piece)
        limit = self._max_bytes if self._is_item else _MAX_DISCARDED_BYTES
        if self.received > limit and not self._encoded:
            self.stopped = True
        return 0 if self.stopped else None

    def _at_end_of_headers(self) -> int | None:
        if not self._is_item:
            return None
        # Nearly no answer has a coding, or is too long: looking for the names is cheaper than reading all headers.
        head = b"".join(self._lines)
        self._encoded = b"content-encoding" in head.lower() and bool(_codings(self.headers))
        length = _LENGTH.search(head)
        if length is None or self._encoded or int(length[1][:20]) <= self._max_bytes:
            return None
        self.stopped = (self.declared_length or 0) > self._max_bytes
        return 0 if self.stopped else None

    @property
    def _is_item(self) -> bool:
        status = self.status
        return 200 <= status < 300 and status not in (204, 205, 206)

    @property
    def is_too_large(self) -> bool:
        """Whether the body of an item was stopped at the cap."""
        return self.stopped and self._is_item

    @property
    def progress(self) -> int:
        """A number that changes whenever something comes."""
        return len(self._lines) + len(self._pieces)

    @property
    def status(self) -> int:
        """The status of the last answer that began, or 0: interim answers (1xx) may come before the final one."""
        if self._status < 200:
            for line in self._lines:
                if line.startswith(b"HTTP/") and (match := _STATUS.match(line)) is not None:
                    self._status = int(match[1])
        return self._status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Name (lower case) and value of each header of the last answer."""
        if self._headers is None:
            self._headers = _parse(self._lines)
        return self._headers

    @property
    def declared_length(self) -> int | None:
        """The `Content-Length`, where it counts: not beside a `Transfer-Encoding`."""
        length = None
        for name, value in self.headers:
            if name == b"transfer-encoding":
                return None
            if name == b"content-length" and value.isdigit():
                length = int(value[:20])
        return length

    def finish(self) -> bytes | Failure:
        """Return the whole body, when the client has read all of it; an empty one where the status asks for none."""
        if not self._is_item:
            return b""
        if self._encoded:
            return self._decoded(_codings(self.headers))
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return body if len(body) <= self._max_bytes else self.too_large()

    def too_large(self) -> Failure:
        """Return the failure of a body that is too large, as far as its size is known."""
        length = self.declared_length
        size = f"it has {length} bytes" if length is not None else f"at least {self.received} bytes came"
        return Failure("too_large", f"the body is larger than max_bytes={self._max_bytes}: {size}")

    def _decoded(self, codings: list[bytes]) -> bytes | Failure:
        decoder = _decoder(codings)
        if decoder is None:
            named = b", ".join(codings).decode("latin-1")[:80]
            return Failure("encoding", f"the body is encoded as {named!r}, which can't be decoded")
        decoded: list[bytes] = []
        room = self._max_bytes + 1
        for piece in self._pieces:
            try:
                decoded.append(decoder.decode(piece, room))
            except zlib.error as error:
                return Failure("encoding", f"the compressed body is corrupt: {error}")
            room -= len(decoded[-1])
            if room <= 0:
                break
        if room <= 0:
            limit = self._max_bytes
            return Failure(
                "too_large",
                f"the body is larger than max_bytes={limit}: {self.received} bytes decode to more",
            )
        if not decoder.complete():
            return Failure(
                "truncated", f"the compressed body ends early, after {self.received} bytes", passing=True
            )
        return b"".join(decoded)


def _parse(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers of the last answer in `lines`; trailers of a chunked body, after the empty line, are left out."""
    start = max((place for place, line in enumerate(lines) if line.startswith(b"HTTP/")), default=len(lines))
    headers: list[tuple[bytes, bytes]] = []
    for line in lines[start + 1 :]:
        if line in (b"\r\n", b"\n"):
            break
        name, colon, value = line.partition(b":")
        if line[:1] in b" \t" and headers:  # obsolete folding
            headers[-1] = (headers[-1][0], headers[-1][1] + b" " + line.strip())
        elif colon:
            headers.append((name.strip().lower(), value.strip(b" \t\r\n")))
    return headers


def _codings(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    named = [
        coding.strip().lower()
        for name, value in headers
        if name == b"content-encoding"
        for coding in value.split(b",")
    ]
    return [coding for coding in named if coding not in (b"", b"identity")]


class _Decoder(Protocol):
    def decode(self, data: bytes, limit: int) -> bytes: ...

    def complete(self) -> bool: ...


def _decoder(codings: list[bytes]) -> _Decoder | None:
    """Return what decodes `codings` (in the order they were applied), or `None`: other codings, and one over another, are not known."""
    if codings in ([b"gzip"], [b"x-gzip"]):
        return _Gzip()
    return _Deflate() if codings == [b"deflate"] else None


class _Gzip:
    """gzip (RFC 1952), several members one after another too; zeros may pad the end."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._fresh = True  # nothing of the present member has come
        self._members = 0

    def decode(self, data: bytes, limit: int) -> bytes:
        pieces = []
        while data and limit > 0:
            if self._fresh and self._members:
                data = data.lstrip(b"\0")
                if not data:
                    break
            piece = self._inflate.decompress(data, limit)
            self._fresh = False
            pieces.append(piece)
            limit -= len(piece)
            data = self._inflate.unused_data or self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
                self._fresh = True
                self._members += 1
        return b"".join(pieces)

    def complete(self) -> bool:
        return self._fresh


class _Deflate:
    """deflate as RFC 9110 means it (a zlib stream), or as some servers send it (without the zlib wrapper)."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj()
        self._head = b""

    def decode(self, data: bytes, limit: int) -> bytes:
        if len(self._head) < 2:
            self._head += data
            if len(self._head) < 2:
                return b""
            data = self._head
            wrapped = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        return self._inflate.decompress(data, limit)

    def complete(self) -> bool:
        return self._inflate.eof or not self._head
