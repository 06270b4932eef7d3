"""The answer to one request, as it comes in: headers, and a body that is capped, measured and decoded on the way."""

from __future__ import annotations

import zlib
from typing import Protocol

from feedline.datasets.fetching.attempts import Failure

__all__ = ["Receiver"]

# What may come with an answer whose body nobody wants (an error, a redirect) before the connection is given up.
_MAX_DISCARDED_BYTES = 64 * 1024
# Encoded data that yields nothing (empty gzip members, empty blocks) ends here, beyond what any honest encoder adds.
_MAX_BARREN_BYTES = 1024 * 1024


class Receiver:
    """Takes the header lines and the body of one answer.

    `lines` is filled by the client; `write` is called with each piece of the body. When `write` refuses one, `stopped`
    is True and the rest need not be read: either `failure` tells why, or the answer has all that is wanted.

    Attributes:
        lines: raw header lines; an interim answer (1xx) may come before the final one.
        size: bytes of the body that were taken, decoded.
        received: bytes of the body as they came.
        failure: why the body is refused, or `None`.
    """

    __slots__ = (
        "_decoder",
        "_max_bytes",
        "_pieces",
        "_started",
        "_wanted",
        "failure",
        "headers",
        "lines",
        "received",
        "size",
        "status",
        "stopped",
    )

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._decoder: _Decoder | None = None
        self._started = False
        self._wanted = False
        self.lines: list[bytes] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.size = 0
        self.received = 0
        self.failure: Failure | None = None
        self.stopped = False

    def write(self, piece: bytes) -> int:
        """Take a piece of the body; return its length, or 0 to stop the transfer."""
        if not self._started:
            self.start()
        if self.failure is None:
            self.received += len(piece)
            self._take(piece)
        if self.failure is not None:
            self.stopped = True
        return 0 if self.stopped else len(piece)

    def start(self) -> None:
        """Read the header lines: all are there when the first piece of the body comes, or when the answer ends."""
        self._started = True
        self.status, self.headers = _parse(self.lines)
        self._wanted = 200 <= self.status < 300 and self.status not in (204, 205, 206)
        if not self._wanted:
            return
        length = self.declared_length
        codings = _codings(self.headers)
        if codings:
            self._decoder = _decoder(codings)
            if self._decoder is None:
                named = b", ".join(codings).decode("latin-1")[:80]
                self.failure = Failure(
                    "encoding", f"the body is encoded as {named!r}, which can't be decoded"
                )
        elif length is not None and length > self._max_bytes:
            self.failure = self._too_large(f"it has {length} bytes")

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
        """Return the whole body when the transfer has ended well."""
        if not self._started:
            self.start()
        if self.failure is not None:
            return self.failure
        if self._decoder is not None and not self._decoder.complete(self.received):
            return Failure(
                "truncated", f"the compressed body ends early, after {self.received} bytes", passing=True
            )
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def _take(self, piece: bytes) -> None:
        if not self._wanted:
            self.stopped = self.received > _MAX_DISCARDED_BYTES
            return
        if self._decoder is not None:
            self._decode(piece, self._decoder)
            return
        self.size += len(piece)
        if self.size > self._max_bytes:
            self.failure = self._too_large(f"more than {self._max_bytes} bytes came")
        else:
            self._pieces.append(piece)

    def _decode(self, piece: bytes, decoder: _Decoder) -> None:
        try:
            decoded = decoder.decode(piece, self._max_bytes + 1 - self.size)
        except zlib.error as error:
            self.failure = Failure("encoding", f"the compressed body is corrupt: {error}")
            return
        self.size += len(decoded)
        if self.size > self._max_bytes:
            self.failure = self._too_large(
                f"{self.received} compressed bytes give more than {self._max_bytes}"
            )
        elif self.received - self.size > _MAX_BARREN_BYTES + self._max_bytes // 8:
            self.failure = Failure(
                "encoding", f"the compressed body grows without end: {self.received} bytes give {self.size}"
            )
        else:
            self._pieces.append(decoded)

    def _too_large(self, why: str) -> Failure:
        return Failure("too_large", f"the body is larger than max_bytes={self._max_bytes}: {why}")


def _parse(lines: list[bytes]) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Return status and headers of the last answer in `lines`: interim answers come before it, trailers are none of ours."""
    start = max((place for place, line in enumerate(lines) if line.startswith(b"HTTP/")), default=None)
    if start is None:
        return 0, []
    fields = lines[start].split(None, 2)
    status = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
    headers: list[tuple[bytes, bytes]] = []
    for line in lines[start + 1 :]:
        if line in (b"\r\n", b"\n"):
            break
        name, colon, value = line.partition(b":")
        if colon:
            headers.append((name.strip().lower(), value.strip(b" \t\r\n")))
        elif headers and line[:1] in b" \t":
            headers[-1] = (headers[-1][0], headers[-1][1] + b" " + line.strip())
    return status, headers


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

    def complete(self, received: int) -> bool: ...


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

    def complete(self, received: int) -> bool:
        return self._fresh and (self._members > 0 or received == 0)


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

    def complete(self, received: int) -> bool:
        return self._inflate.eof or received == 0
