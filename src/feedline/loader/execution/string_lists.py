"""Long lists of strings (paths, texts) in a form that is written several times as fast as by pickle as it comes.

Pickle looks every string up in a table of what it has written already, which for millions of them is most of the time until
the first batch. Here they are written without, in pieces: each is looked at and written while the processor's cache has
it, and neither side ever has all of the bytes in memory of its own, whose pages would cost more than the work. The other
side is told of pieces as they are written, and may read on.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

__all__ = ["MIN_STRINGS", "Begun", "Packed", "TextFile", "pack_strings", "unpack_strings"]

#: Shorter lists are left to pickle.
MIN_STRINGS = 20_000
_SAMPLE = 1_000
#: Strings in one piece.
_PIECE = 2_048
#: Pieces of which the other side is told at once.
_TOLD = 16


class Packed(NamedTuple):
    """A list of strings, packed.

    Attributes:
        lengths: bytes of each piece.
        data: the pieces, one behind the other; or where they lie in a file.
    """

    lengths: list[int]
    data: pickle.PickleBuffer | int


class _Sink(Protocol):
    def write(self, data: Any, /) -> Any: ...

    def tell(self) -> int: ...


def pack_strings(values: list[Any], file: TextFile | None = None) -> Packed | None:
    """Pack `values`, into `file` if there is one, if all are `str`, or all `bytes`.

    Returns:
        What `unpack_strings` takes; `None` for lists of anything else, and for those that hold the same object many
        times, which pickle keeps one.

    Raises:
        OSError: there is no room in the file.
    """
    if type(values[0]) not in (str, bytes):
        return None
    sample = values[:: max(1, len(values) // _SAMPLE)]
    if len(set(map(id, sample))) < len(sample):
        return None
    memory = io.BytesIO()
    sink: _Sink = memory if file is None else file
    start = sink.tell()
    lengths: list[int] = []
    told = 0
    for length in _write(values, sink):
        if length is None:
            return None
        lengths.append(length)
        if file is not None and file.tell_pieces is not None and len(lengths) - told >= _TOLD:
            file.tell_pieces(start, lengths[told:])
            told = len(lengths)
    return Packed(lengths, pickle.PickleBuffer(memory.getvalue()) if file is None else start)


def _write(values: list[Any], sink: _Sink) -> Iterator[int | None]:
    """Write `values` piece by piece, and yield the bytes of each; `None` for one that has something else in it."""
    pickler = pickle.Pickler(sink, protocol=5)
    pickler.fast = True
    kinds = {type(values[0])}
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        if set(map(type, piece)) != kinds:
            yield None
            return
        before = sink.tell()
        pickler.dump(piece)
        yield sink.tell() - before


def unpack_strings(packed: Packed, file: TextFile | None = None) -> list[Any]:
    """Return the list again; `file` is the one that it was packed into."""
    lengths, data = packed
    if isinstance(data, int):
        assert file is not None
        return file.read_list(data, lengths)
    values: list[Any] = []
    with memoryview(data) as view:
        start = 0
        for length in lengths:
            values += pickle.loads(view[start : start + length])
            start += length
    return values


@dataclass(slots=True)
class Begun:
    """A list of which the first pieces have been read.

    Attributes:
        position: where the next piece lies.
        pieces: how many have been read.
        values: what was in them.
    """

    position: int
    pieces: int = 0
    values: list[Any] = field(default_factory=list)


class TextFile:
    """A file that packed lists are appended to, and read from by position: processes may share its descriptor.

    Args:
        descriptor: is the caller's to close.
        begun: lists that were read in part, by where they begin.

    Attributes:
        tell_pieces: is called with where a list begins and with the bytes of its next pieces, when these are written.
    """

    def __init__(self, descriptor: int, begun: dict[int, Begun] | None = None) -> None:
        self._descriptor = descriptor
        self._end = 0
        self.begun = {} if begun is None else begun
        self.tell_pieces: Callable[[int, list[int]], None] | None = None

    def tell(self) -> int:
        """Return where the next bytes will lie."""
        return self._end

    def write(self, data: Any) -> int:
        """Append all of `data`.

        Raises:
            OSError: there is no room.
        """
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.pwrite(self._descriptor, view[done:], self._end + done)
        self._end += done
        return done

    def read_on(self, start: int, lengths: list[int]) -> list[Any]:
        """Read the next pieces of the list that begins at `start`; return what there is of it by now."""
        begun = self.begun.setdefault(start, Begun(start))
        # Not into a mapping of the file: each of its pages would be looked up, to be used once.
        buffer = memoryview(bytearray(max(lengths, default=0)))
        for length in lengths:
            self._read_into(buffer[:length], begun.position)
            begun.values += pickle.loads(buffer[:length])
            begun.position += length
            begun.pieces += 1
        return begun.values

    def read_list(self, start: int, lengths: list[int]) -> list[Any]:
        """Return the list that begins at `start`, and forget it."""
        begun = self.begun.get(start)
        values = self.read_on(start, lengths if begun is None else lengths[begun.pieces :])
        del self.begun[start]
        return values

    def _read_into(self, view: memoryview, position: int) -> None:
        """Fill `view` with what lies at `position`.

        Raises:
            EOFError: the file is shorter.
        """
        while view:
            count = os.preadv(self._descriptor, [view], position)
            if not count:
                raise EOFError("the file of packed strings is shorter than it was")
            view, position = view[count:], position + count
