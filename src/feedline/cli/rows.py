"""Reading an `.ndf` file from front to back, in blocks, for commands that look at every row.

A loader gathers scattered rows; these commands read stretches of neighbours, and the fastest way to do so is one large
read after the other into the same memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.errors import NdfError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader, check_file_size, unpack_header
from feedline.ndf.positional import OpenFile, absolute_path

__all__ = ["ColumnSummary", "RowFile", "Summary"]

BLOCK_BYTES = 4 * 2**20


class RowFile:
    """An `.ndf` file whose header and size have been checked.

    Attributes:
        header: its sizes.
        head: the bytes of its header.

    Raises:
        NdfError: it is not a whole `.ndf` file.
        OSError: it can't be opened.
    """

    def __init__(self, path: str | bytes | os.PathLike[str]) -> None:
        self._file = OpenFile(absolute_path(path))
        head = bytearray(HEADER_BYTES)
        got = self._file.read_into([memoryview(head)], 0)
        self.head = bytes(head[:got])
        self.header: NdfHeader = unpack_header(self.head, self._file.path)
        check_file_size(self.header, self._file.size, self._file.path)

    @property
    def width(self) -> int:
        """Values in a row: features and labels."""
        return self.header.d + self.header.l

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return self.header.file_bytes

    def blocks(self, start: int, stop: int) -> Iterator[npt.NDArray[np.float64]]:
        """Yield the rows from `start` to `stop` in blocks of shape `(k, d + l)`, float64, at most 4 MiB or one row each.

        Each block is a view of the same memory, valid until the next one is asked for.

        Raises:
            NdfError: the file has been cut since it was opened.
        """
        rows = max(1, min(BLOCK_BYTES // self.header.row_bytes, stop - start))
        memory = np.empty((rows, self.width), "<f8")
        for first in range(start, stop, rows):
            block = memory[: min(rows, stop - first)]
            got = self._file.read_into([block.data.cast("B")], HEADER_BYTES + first * self.header.row_bytes)
            if got < block.nbytes:
                raise NdfError(
                    f"{self._file.path!r} was cut while it was read: row {first + got // self.header.row_bytes} of "
                    f"{self.header.n} is not there any more",
                    kind="truncated_rows",
                    path=self._file.path,
                )
            yield block


@dataclass(frozen=True)
class ColumnSummary:
    """What was seen in one column; `minimum`, `maximum` and `mean` are of finite values, NaN if there are none."""

    minimum: float
    maximum: float
    mean: float
    nan: int
    infinite: int


class Summary:
    """Minimum, maximum, mean and counts of NaN and infinities per column, over blocks of rows.

    >>> seen = Summary(2)
    >>> seen.add(np.array([[1.0, np.nan], [3.0, np.inf], [5.0, 2.0]]))
    >>> seen.columns()[0].mean, seen.columns()[1].nan, seen.columns()[1].maximum
    (3.0, 1, 2.0)
    """

    def __init__(self, width: int) -> None:
        self.rows = 0
        self._minimum = np.full(width, np.inf)
        self._maximum = np.full(width, -np.inf)
        self._half_mean = np.zeros(width)
        self._finite = np.zeros(width, np.int64)
        self._nan = np.zeros(width, np.int64)

    def add(self, block: npt.NDArray[np.float64]) -> None:
        """Take the rows of `block`, shape `(k, width)`, into account."""
        finite = np.isfinite(block)
        counts = finite.sum(axis=0)
        self.rows += len(block)
        self._finite += counts
        self._nan += np.isnan(block).sum(axis=0)
        np.minimum(self._minimum, np.min(block, axis=0, where=finite, initial=np.inf), out=self._minimum)
        np.maximum(self._maximum, np.max(block, axis=0, where=finite, initial=-np.inf), out=self._maximum)
        # Half the mean is kept, and moves by what the block adds: the sum of values near the largest float would
        # overflow, and their mean by its rounding; half of it can't.
        weights = 1 / np.maximum(self._finite, 1)
        self._half_mean *= 1 - counts * weights
        self._half_mean += np.sum(np.where(finite, block, 0.0) * (0.5 * weights), axis=0)

    def columns(self) -> list[ColumnSummary]:
        """Return the summary of each column."""
        nothing = self._finite == 0
        infinite = self.rows - self._finite - self._nan
        with np.errstate(over="ignore"):
            mean = np.clip(2 * self._half_mean, self._minimum, self._maximum)
        facts = (np.where(nothing, np.nan, fact) for fact in (self._minimum, self._maximum, mean))
        rows = zip(*(array.tolist() for array in (*facts, self._nan, infinite)))
        return [ColumnSummary(*row) for row in rows]
