"""The content codings that a body may have though none was asked for, decoded under a limit."""

from __future__ import annotations

import zlib
from typing import Protocol

__all__ = ["Decoder", "decoder_of"]


class Decoder(Protocol):
    """Decodes a body piece by piece."""

    def decode(self, data: bytes, limit: int) -> bytes:
        """Return what `data` decodes to, `limit` bytes of it at most."""
        ...

    def complete(self) -> bool:
        """Tell whether what came was whole."""
        ...


def decoder_of(codings: list[bytes]) -> Decoder | None:
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
