"""Rows of an `.ndf` file, by number: gathered into batches, hinted ahead, never loaded as a whole.

Note [gathering]
    A batch is read a block at a time: rows into a scratch block that fits into a core's cache, from there, split into
    features and labels and converted, into the batch. The extra copy is cheaper than what it saves: the buffers that
    the system calls fill are made once and used again, where the rows of a new batch would each need one or two.
    Neighbouring rows are one system call. A scratch block belongs to one call at a time (it is taken from a deque, and
    put back); there are as many as there were ever threads reading at once.

Note [changed files]
    After every gather (before it, from a map) the file's size and time of change are compared with those it had when it
    was opened: a file that was cut, or written over in place, is an error, never rows of two versions. A file that was deleted, or
    replaced by renaming another over it, goes on giving its old rows, for the descriptor is still open.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.errors import NdfError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader, check_file_size, unpack_header
from feedline.ndf.positional import OpenFile, hint_ranges, read_rows_by_call
from feedline.ndf.rowmap import RowMap

__all__ = ["NdfReader", "Scratch", "runs_of"]

Int64Array: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]

#: Half of a small core's second-level cache.
SCRATCH_BYTES = 256 * 1024
_MAX_SCRATCH_ROWS = 1024
_IS_LITTLE = sys.byteorder == "little"


class Scratch:
    """A block of rows, with one buffer for each, made once."""

    __slots__ = ("flat", "octets", "rows", "values")

    @staticmethod
    def rows_of(row_bytes: int) -> int:
        """Return how many rows a block has."""
        return max(1, min(_MAX_SCRATCH_ROWS, SCRATCH_BYTES // row_bytes))

    def __init__(self, num_rows: int, row_bytes: int) -> None:
        self.values = np.empty((num_rows, row_bytes // 8), "<f8")
        self.octets = self.values.view(np.uint8)
        self.flat = self.octets.reshape(-1).data
        self.rows = [[self.flat[at : at + row_bytes]] for at in range(0, num_rows * row_bytes, row_bytes)]


def runs_of(places: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return where runs of neighbouring rows (`p, p + 1, ...`) begin in `places`, and how long each is."""
    starts = np.concatenate(([0], np.flatnonzero(places[1:] != places[:-1] + 1) + 1))
    return starts, np.diff(starts, append=len(places))


class NdfReader:
    """An open, checked `.ndf` file.

    Args:
        path: the file, absolute.
        mmap: gather from a memory map instead of by positional reads. Faster for files in the page cache; a file that
            is cut meanwhile ends the process with a signal, so it is for files that nobody changes.
        scratch: blocks to gather through, to be shared by readers of rows of one width; by default its own.

    Raises:
        OSError: the file can't be opened, or is a directory.
        NdfError: it is not what it promises.

    Concurrency: any number of threads may read at once. Belongs to one process.
    """

    def __init__(self, path: str, mmap: bool = False, scratch: deque[Scratch] | None = None) -> None:
        self.file = OpenFile(path)
        head = np.empty(HEADER_BYTES, np.uint8)
        got = self.file.read_into([head.data], 0)
        self.header: NdfHeader = unpack_header(head[:got].tobytes(), path, self.file.size)
        check_file_size(self.header, self.file.size, path)
        self._map = RowMap(self.file, self.header) if mmap and self.header.n else None
        self._scratch_rows = Scratch.rows_of(self.header.row_bytes)
        self._free: deque[Scratch] = deque() if scratch is None else scratch
        self._warm_for = 0

    def gather(self, places: Int64Array, x: Array, y: Array) -> None:
        """Read the rows `places`: features into `x`, labels into `y`.

        Args:
            places: row numbers, int64, shape `(b,)`, all in [0, n).
            x: C-contiguous, shape `(b, d)`, float64 or float32.
            y: likewise, shape `(b, l)`.

        Raises:
            NdfError: the file was cut or written over since it was opened; what `x` and `y` hold is undefined then.
        """
        if self._map is not None:
            # Before, since touching what was cut off would end the process; the next batch's check comes after this one.
            self.check_unchanged()
        if len(places):
            whole = self._as_whole_rows(x, y)
            if whole is not None and self._map is not None:
                self._map.gather(places, whole)
            elif whole is not None and _is_one_run(places):
                self._read_run(int(places[0]), whole.reshape(-1).data)
            else:
                self._gather_by_blocks(places, x, y)
        if self._map is None:
            self.check_unchanged()

    def _as_whole_rows(self, x: Array, y: Array) -> Array | None:
        # Where one of the two is empty, the other is the rows as they lie on disk, if dtype and byte order agree.
        rows = x if not self.header.l else y if not self.header.d else None
        if rows is None or rows.dtype != np.float64 or not _IS_LITTLE:
            return None
        return rows.view(np.uint8)

    def _read_run(self, first: int, into: memoryview) -> None:
        offset = HEADER_BYTES + first * self.header.row_bytes
        if self.file.read_into([into], offset) != len(into):
            raise self._cut()

    def _gather_by_blocks(self, places: Int64Array, x: Array, y: Array) -> None:
        d = self.header.d
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = Scratch(self._scratch_rows, self.header.row_bytes)
        for start in range(0, len(places), self._scratch_rows):
            part = places[start : start + self._scratch_rows]
            stop = start + len(part)
            self._fill(part, scratch)
            if d:
                _convert(scratch.values[: len(part), :d], x[start:stop])
            if self.header.l:
                _convert(scratch.values[: len(part), d:], y[start:stop])
        # Not in a `finally`: after an error the block is simply dropped.
        self._free.append(scratch)

    def _fill(self, places: Int64Array, scratch: Scratch) -> None:
        row_bytes = self.header.row_bytes
        if self._map is not None:
            self._map.gather(places, scratch.octets[: len(places)])
            return
        if _has_neighbours(places):
            for start, count in zip(*(part.tolist() for part in runs_of(places))):
                into = scratch.flat[start * row_bytes : (start + count) * row_bytes]
                self._read_run(int(places[start]), into)
            return
        offsets = (places * row_bytes + HEADER_BYTES).tolist()
        self.read_rows(scratch.rows, offsets)

    def read_rows(self, buffers: Sequence[list[memoryview]], offsets: list[int]) -> None:
        """Read the row at each byte of `offsets` into the buffer at its place, one call each; buffers may be more.

        Whether the file has changed is not looked at: call `check_unchanged` afterwards.

        Raises:
            NdfError: the file has become shorter.
        """
        row_bytes = self.header.row_bytes
        if read_rows_by_call(self.file, buffers, offsets) == len(offsets) * row_bytes:
            return
        # Some row came in parts, or the file is shorter by now: told apart one by one.
        for row, offset in zip(buffers, offsets):
            if self.file.read_into(row, offset) != row_bytes:
                raise self._cut()

    def read_row(self, place: int) -> Array:
        """Return row `place`, a new float64 array of shape `(d + l,)`, features first."""
        if self._map is not None:
            self.check_unchanged()
        row = np.empty((1, self.header.d + self.header.l), "<f8")
        if self._map is not None:
            self._map.gather(np.array([place], np.int64), row.view(np.uint8))
        else:
            self._read_run(place, row.view(np.uint8).reshape(-1).data)
            self.check_unchanged()
        native: Array = row[0].astype(np.float64, copy=False)
        return native

    def skips_hint(self) -> bool:
        """Tell whether the next hint can be left out: nothing was missing for a while, and one of four looks again."""
        if self._warm_for < 16:
            return False
        # Threads may lose a count to each other, which changes nothing but when somebody looks again.
        self._warm_for += 1
        return self._warm_for % 4 != 0

    def hint(self, places: Int64Array) -> None:
        """Ask the system to read the rows `places` ahead, unless they seem to be in memory; returns at once."""
        # Hints for what is in memory already cost a third of the reads themselves, and gain nothing. A few rows, spread
        # over all, are probed.
        probes = 8 if self._warm_for < 16 else 4
        row_bytes = self.header.row_bytes
        some = places[:: max(1, -(-len(places) // probes))].tolist()
        if self.file.are_resident([HEADER_BYTES + place * row_bytes for place in some]):
            self._warm_for += 1
            return
        self._warm_for = 0
        offsets = places * row_bytes + HEADER_BYTES
        if _has_neighbours(places):
            starts, counts = runs_of(places)
            hint_ranges(self.file, offsets[starts], counts * row_bytes)
        else:
            hint_ranges(self.file, offsets, repeat(row_bytes))

    def check_unchanged(self) -> None:
        """Raise an `NdfError` if the file was cut or written to since it was opened (see the note in the module)."""
        if not self.file.is_unchanged():
            raise self._cut()

    def _cut(self) -> NdfError:
        path = self.file.path
        size = self.file.current_size()
        promised = self.header.file_bytes
        if size < promised:
            told = f"it has {size} bytes of the {promised} that it had"
            kind = "truncated_rows"
        else:
            told = f"it was written to, and may hold other rows now ({size} bytes, {promised} when it was opened)"
            kind = "changed"
        return NdfError(
            f"{path!r} changed while it was read: {told}; write a new file and rename it over the old one instead, "
            f"as NdfWriter does",
            kind=kind,
            path=path,
        )


def _is_one_run(places: Int64Array) -> bool:
    return int(places[-1]) - int(places[0]) == len(places) - 1 and bool((places[1:] == places[:-1] + 1).all())


def _has_neighbours(places: Int64Array) -> bool:
    """Tell whether at least half of the rows follow the one before, so that finding runs is worth its cost."""
    return len(places) > 1 and 2 * int(np.count_nonzero(places[1:] == places[:-1] + 1)) >= len(places)


def _convert(rows: Array, into: Array) -> None:
    if into.dtype == np.float64:
        np.copyto(into, rows)
        return
    # Values beyond float32 become infinities, and signalling NaNs quiet ones; neither is worth a warning per batch.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        np.copyto(into, rows, casting="same_kind")
