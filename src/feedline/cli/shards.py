"""A folder of shards, for commands that look at every row: as rows, and shard by shard."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from feedline.cli.rows import RowFile
from feedline.errors import NdfError
from feedline.ndf.layout import NdfHeader
from feedline.ndf.positional import absolute_path
from feedline.ndf.shards import check_header, holds_index, read_index

__all__ = ["ShardRows", "open_rows"]


class ShardRows:
    """The rows of a folder of shards, from front to back; a shard is opened and checked when it is come to.

    Attributes:
        index: what the folder's index tells.
        header: sizes of all rows together.

    Raises:
        NdfError: the index is damaged; from `blocks` and `shard`: a shard is missing, or not what the index tells.
        OSError: there is no index.
    """

    def __init__(self, path: str | bytes | os.PathLike[str]) -> None:
        self._folder = absolute_path(path)
        self.index, _ = read_index(self._folder)
        self.header = NdfHeader(self.index.n, self.index.d, self.index.l)

    @property
    def width(self) -> int:
        """Values in a row: features and labels."""
        return self.header.d + self.header.l

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards."""
        return self.index.size_bytes

    @property
    def num_shards(self) -> int:
        """How many files there are."""
        return len(self.index.shards)

    def shard(self, number: int) -> RowFile:
        """Open a shard; its header and size are those of the index."""
        path = os.path.join(self._folder, self.index.shards[number].file)
        try:
            rows = RowFile(path)
        except FileNotFoundError:
            raise NdfError(
                f"{path!r} is missing: the index names it as shard {number} of {self.num_shards}",
                kind="missing",
                path=path,
            ) from None
        check_header(self.index, number, rows.header, path)
        return rows

    def check_checksum(self, number: int, sha256: str) -> None:
        """Raise an `NdfError` (`"changed"`) unless the index tells this checksum of a shard."""
        shard = self.index.shards[number]
        if shard.sha256 != sha256:
            path = os.path.join(self._folder, shard.file)
            raise NdfError(
                f"{path!r} is not what it was when it was written: its SHA-256 is {sha256}, the index has {shard.sha256}",
                kind="changed",
                path=path,
            )

    def blocks(self, start: int, stop: int) -> Iterator[npt.NDArray[np.float64]]:
        """Yield the rows from `start` to `stop` in blocks, as `RowFile.blocks` does."""
        first = 0
        for number, shard in enumerate(self.index.shards):
            low, high = max(start, first), min(stop, first + shard.rows)
            if low < high:
                yield from self.shard(number).blocks(low - first, high - first)
            first += shard.rows


def open_rows(path: str) -> RowFile | ShardRows:
    """Open an `.ndf` file, or a folder of shards."""
    return ShardRows(path) if holds_index(path) else RowFile(path)
