"""The answer to one request: its headers, and a body that is stopped at a cap, measured, and decoded under the cap."""

from __future__ import annotations

import re
import zlib

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.http_decoding import decoder_of

__all__ = ["Head", "Receiver"]

_END_OF_HEADERS = (b"\r\n", b"\n")

_STATUS = re.compile(rb"HTTP/[0-9.]+ +([0-9]{3})")
# What an encoder may add to data that does not shrink: far more than any real one does.
_ENCODING_SLACK_BYTES = 64 * 1024
# What may come with an error or a redirect, whose body nobody wants, before the connection is given up.
_MAX_DISCARDED_BYTES = 64 * 1024


class Head:
    """The header lines of an answer, taken apart only if somebody asks."""

    __slots__ = ("_lines",)

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Name (lower case) and value of each header of the last answer."""
        return _parse(self._lines)


class Receiver:
    """Takes the header lines and the body of one answer, and after `reset()` of the next one.

    The client calls `on_header` with each header line and `on_body` with each piece of the body. When one of them
    returns 0 the client has to stop: `is_too_large` tells whether the body is over the cap, or not wanted.

    Attributes:
        stopped: whether a call has returned 0.
    """

    __slots__ = (
        "_counted",
        "_encoded",
        "_first",
        "_is_counted",
        "_is_item",
        "_lines",
        "_max_bytes",
        "_pieces",
        "_status",
        "stopped",
    )

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Be as new; what was given out stays as it is."""
        self._lines: list[bytes] = []
        self._pieces: list[bytes] = []
        self._first = (
            0  # the line that the last answer begins with: interim ones (1xx) may come before the final one
        )
        self._status = 0
        self._is_item = False
        self._encoded = False
        self._is_counted = True
        self._counted = 0
        self.stopped = False

    @staticmethod
    def read_limit(max_bytes: int) -> int:
        """Return how many bytes of a body are ever read: an encoded one may be larger than it decodes to."""
        return max_bytes + _ENCODING_SLACK_BYTES

    def on_header(self, line: bytes) -> int | None:
        """Take a header line; stop at the end of the headers if they tell a length over the cap."""
        self._lines.append(line)
        return self._at_end_of_headers() if line in _END_OF_HEADERS else None

    def on_body(self, piece: bytes) -> int | None:
        """Take a piece of the body; stop when there are more than the cap allows."""
        self._pieces.append(piece)
        return self._count(len(piece)) if self._is_counted else None

    def _count(self, size: int) -> int | None:
        self._counted += size
        limit = self._max_bytes if self._is_item else _MAX_DISCARDED_BYTES
        if not self._encoded and self._counted > limit:
            self.stopped = True
        return 0 if self.stopped else None

    def _at_end_of_headers(self) -> int | None:
        if self._status:  # the end of the trailers
            return None
        status = _status_of(self._lines[self._first])
        if 100 <= status < 200:
            self._first = len(self._lines)
            return None
        self._status = status
        if not 200 <= status < 300 or status in (204, 205, 206):
            return None
        self._is_item = True
        # Nearly no answer has a coding, or is too long: looking for the names is cheaper than reading all headers.
        head = b"".join(self._lines).lower()
        if b"-encoding:" not in head:
            length = _only_length(head)
            if length is not None and length <= self._max_bytes:
                # The client reads no more than the length that was promised: there is nothing to count.
                self._is_counted = False
                return None
        self._encoded = bool(_codings(self.headers))
        self.stopped = not self._encoded and (self.declared_length or 0) > self._max_bytes
        return 0 if self.stopped else None

    @property
    def received(self) -> int:
        """Bytes of the body that came, before decoding."""
        return sum(map(len, self._pieces))

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
        """The status of the last answer that began, or 0."""
        if self._status or self._first >= len(self._lines):
            return self._status
        return _status_of(self._lines[self._first])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Name (lower case) and value of each header of the last answer."""
        return _parse(self._lines)

    @property
    def head(self) -> Head:
        """The headers, for whoever outlives the next `reset()`."""
        return Head(self._lines)

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
        decoder = decoder_of(codings)
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


def _status_of(line: bytes) -> int:
    if line[:13] == b"HTTP/1.1 200 ":
        return 200
    match = _STATUS.match(line)
    return 0 if match is None else int(match[1])


def _only_length(head: bytes) -> int | None:
    """Return the value of the one `Content-Length` in `head`, header lines in lower case; `None` for none or several."""
    _, mark, after = head.partition(b"\ncontent-length:")
    if not mark or b"\ncontent-length" in after:
        return None
    value = after.partition(b"\n")[0].strip(b" \t\r")
    return int(value[:20]) if value.isdigit() else None


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
