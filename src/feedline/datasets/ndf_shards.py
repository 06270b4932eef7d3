"""Rows streamed from a folder of `.ndf` files with an index: `NdfShards`."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.datasets.bounded_cache import BoundedCache
from feedline.datasets.indexing import runs_by_part
from feedline.datasets.ndf_rows import Array, NdfRows
from feedline.datasets.protocol import Int64Array
from feedline.errors import NdfError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader
from feedline.ndf.reader import NdfReader, Scratch
from feedline.ndf.shards import INDEX_NAME, ShardIndex, check_header, read_index

__all__ = ["NdfShards"]


class NdfShards(NdfRows):
    """The rows of a folder of shards, as `feedline convert` writes it: many `.ndf` files that read as one dataset.

    Args:
        path: the folder, `str`, `bytes` or `PathLike`; `index.json` in it tells the files.
        dtype: `"float64"`, as on disk, bit for bit; or `"float32"`, converted while rows are gathered.
        mmap: map the files instead of reading by position; only for files that nobody changes (see `NdfDataset`).

    Building it reads the index alone. A shard is opened, and its header and size are compared with the index, when a
    row of it is first asked for; at most `max_open_files` stay open, those used last. Items and batches are as those
    of `NdfDataset`.

    Attributes:
        n: rows in all shards. d: features in a row. l: labels in a row.
        path: the folder, absolute.
        dtype: of rows and labels.
        index: the index, as it was when the dataset was built.

    Raises:
        NdfError: the index is damaged (`"bad_index"`). When rows are read: a shard is gone (`"missing"`), cut
            (`"truncated_rows"`), or is not, or no more, what it was (`"changed"` and the other kinds of `NdfDataset`);
            `path` names it. What only a checksum tells, `feedline verify` finds.
        OSError: there is no index, or a file can't be opened.
        OptionError: `dtype` is something else.

    Determinism: an item depends on its index and the files alone.
    Concurrency: any number of threads and processes may read. It pickles as its path and sizes, however many shards
    there are, and reads the index again where it is unpickled, at the first read; another index is an `NdfError` then.

    >>> import tempfile
    >>> from feedline.convert import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.arange(20.0).reshape(10, 2))
    ...     _ = convert(f"{folder}/rows.npy", f"{folder}/corpus", rows_per_shard=4)
    ...     dataset = NdfShards(f"{folder}/corpus")
    ...     len(dataset), dataset.num_shards, dataset[-1][0]
    (10, 3, array([18., 19.]))
    """

    #: Shards that stay open. Systems allow a process 256 open files and more, and a map takes a second descriptor.
    max_open_files = 96

    def __init__(self, path: Any, dtype: npt.DTypeLike = "float64", mmap: bool = False) -> None:
        super().__init__(path, dtype, mmap)
        index, data = read_index(self.path)
        self._header = NdfHeader(index.n, index.d, index.l)
        self._digest = hashlib.sha256(data).hexdigest()
        self._shards: _OpenShards | None = _OpenShards(self.path, index, mmap, self.max_open_files)

    @property
    def index(self) -> ShardIndex:
        """The index: names, sizes and checksums of all shards."""
        return self._open().index

    @property
    def num_shards(self) -> int:
        """How many files there are."""
        return len(self.index.shards)

    def close(self) -> None:
        """Close all files; the next read opens them again. Not needed: they close when the dataset goes."""
        self._shards = None

    def _open(self) -> _OpenShards:
        # Two threads may open at once: the last one's stay, the other's close with its call.
        shards = self._shards
        if shards is None:
            index, data = read_index(self.path)
            if hashlib.sha256(data).hexdigest() != self._digest:
                path = os.path.join(self.path, INDEX_NAME)
                raise NdfError(
                    f"{path!r} is another index by now: it has {index.n} rows in {len(index.shards)} shards, the "
                    f"dataset was made with {self.n} rows; make a new NdfShards",
                    kind="changed",
                    path=path,
                )
            shards = self._shards = _OpenShards(self.path, index, self.mmap, self.max_open_files)
        elif shards.is_foreign():
            # See Note [cache and fork] in `feedline.datasets.bounded_cache`.
            shards = self._shards = shards.for_this_process()
        return shards

    def __getstate__(self) -> dict[str, Any]:
        names = ("path", "mmap", "_header", "_digest")
        return {name: getattr(self, name) for name in names} | {"dtype": self.dtype.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dtype = np.dtype(state["dtype"])
        self._shards = None


class _OpenShards:
    """An index, where each shard begins, and the readers of those used last.

    Concurrency: any number of threads. Belongs to one process; `for_this_process` makes another one's.
    """

    def __init__(self, folder: str, index: ShardIndex, mmap: bool, max_open_files: int) -> None:
        self.folder = folder
        self.index = index
        stops = np.cumsum([shard.rows for shard in index.shards], dtype=np.int64)
        self.starts: Int64Array = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
        self._stops: Int64Array = stops
        self._mmap = mmap
        self._max_open_files = max_open_files
        self._readers: BoundedCache[int, NdfReader] = BoundedCache(max_open_files)
        self._scratch: deque[Scratch] = deque()
        # A shard that was closed, and is opened again, must still be the file that it was. Threads may write a stamp at
        # the same time: both found the same one, or the next comparison tells.
        self._stamps: dict[int, tuple[int, int]] = {}

    def is_foreign(self) -> bool:
        return self._readers.is_foreign()

    def for_this_process(self) -> _OpenShards:
        fresh = _OpenShards(self.folder, self.index, self._mmap, self._max_open_files)
        fresh._stamps = dict(self._stamps)
        return fresh

    def number_of(self, place: int) -> int:
        # Empty shards stop where they start, so `side="right"` passes over them.
        return int(np.searchsorted(self._stops, place, side="right"))

    def reader(self, number: int) -> NdfReader:
        return self._readers.get(number, self._open)

    def read_row(self, place: int) -> Array:
        """Return the row at `place`, as `NdfReader.read_row` does."""
        number = self.number_of(place)
        return self.reader(number).read_row(place - int(self.starts[number]))

    def _open(self, number: int) -> NdfReader:
        path = os.path.join(self.folder, self.index.shards[number].file)
        try:
            reader = NdfReader(path, self._mmap, self._scratch)
        except FileNotFoundError:
            raise NdfError(
                f"{path!r} is missing: the index names it as shard {number} of {len(self.index.shards)}",
                kind="missing",
                path=path,
            ) from None
        check_header(self.index, number, reader.header, path)
        if self._stamps.setdefault(number, reader.file.stamp) != reader.file.stamp:
            raise NdfError(
                f"{path!r} was written to, or replaced, since it was first opened; make a new NdfShards",
                kind="changed",
                path=path,
            )
        return reader

    def gather(self, places: Int64Array, x: Array, y: Array) -> None:
        """Read the rows `places`, all in [0, n), into `x` and `y`, as `NdfReader.gather` does."""
        if len(places) == 0:
            return
        low, high = self.number_of(int(places.min())), self.number_of(int(places.max()))
        if low == high:
            self.reader(low).gather(places - self.starts[low], x, y)
            return
        # Sorted, the rows of a shard lie side by side, in the order of the file; then each goes to its place.
        order = np.argsort(places, kind="stable")
        if not self._mmap:
            self._gather_by_blocks(places[order], order, x, y)
            return
        xs, ys = np.empty_like(x), np.empty_like(y)
        for number, start, stop in runs_by_part(self._stops, places[order]):
            inner = places[order[start:stop]] - self.starts[number]
            self.reader(number).gather(inner, xs[start:stop], ys[start:stop])
        x[order], y[order] = xs, ys

    def _gather_by_blocks(self, ordered: Int64Array, order: Int64Array, x: Array, y: Array) -> None:
        # See Note [gathering] in `feedline.ndf.reader`; here a block has rows of many files.
        d, row_bytes = self.index.d, self.index.header(0).row_bytes
        size = Scratch.rows_of(row_bytes)
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = Scratch(size, row_bytes)
        for first in range(0, len(ordered), size):
            part = ordered[first : first + size]
            numbers = np.searchsorted(self._stops, part, side="right")
            offsets = ((part - self.starts[numbers]) * row_bytes + HEADER_BYTES).tolist()
            for number, start, stop in runs_by_part(self._stops, part):
                reader = self.reader(number)
                reader.read_rows(scratch.rows[start:stop], offsets[start:stop])
                reader.check_unchanged()
            spots = order[first : first + size]
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                x[spots] = scratch.values[: len(part), :d]
                y[spots] = scratch.values[: len(part), d:]
        # Not in a `finally`: after an error the block is simply dropped.
        self._scratch.append(scratch)

    def hint(self, places: Int64Array) -> None:
        """Hint the rows `places`; of the shards, at most as many as can be open."""
        if len(places) == 0:
            return
        ordered = np.sort(places)
        for number, start, stop in runs_by_part(self._stops, ordered)[: self._max_open_files]:
            try:
                reader = self.reader(number)
            except (NdfError, OSError):
                # It will be the error of the batch that reads the shard, if one ever does.
                continue
            if not reader.skips_hint():
                reader.hint(ordered[start:stop] - self.starts[number])
