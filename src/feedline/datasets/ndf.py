"""Rows streamed from an `.ndf` file: `NdfDataset`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.datasets.ndf_rows import NdfRows
from feedline.datasets.protocol import Int64Array
from feedline.errors import NdfError
from feedline.ndf.reader import NdfReader

__all__ = ["NdfDataset"]


class NdfDataset(NdfRows):
    """The rows of an `.ndf` file; a batch reads only the rows that it needs.

    Args:
        path: the file, `str`, `bytes` or `PathLike`.
        dtype: `"float64"`, as on disk, bit for bit; or `"float32"`, converted while rows are gathered (values beyond
            its range become infinities, signalling NaNs quiet ones).
        mmap: map the file instead of reading by position: faster for files in the page cache, and only for files that
            nobody changes, since a process that reads a map of a file that was cut ends with a signal.

    An item is always `(row, labels)`, of shapes `(d,)` and `(l,)`; batches are of shapes `(b, d)` and `(b, l)`, also
    where `l` is 0.

    Attributes:
        n: rows. d: features in a row. l: labels in a row.
        path: the file, absolute.
        dtype: of rows and labels.

    Raises:
        NdfError: the file is not what it promises: `kind` tells the cause. When rows are read, too, if the file was
            cut or written over in the meantime (`"truncated_rows"`, `"changed"`). One that was deleted, or replaced
            by renaming, goes on giving its old rows.
        OSError: it can't be opened; a directory says so.
        OptionError: `dtype` is something else.

    Determinism: an item depends on its index and the file alone.
    Concurrency: any number of threads and processes may read. It pickles as its path and sizes, and opens the file
    again where it is unpickled, at the first read; a file of other sizes is an `NdfError` then. After a fork the child
    goes on reading the same file.

    >>> import numpy as np, tempfile
    >>> from feedline.ndf.save import save_ndf
    >>> with tempfile.NamedTemporaryFile(suffix=".ndf") as file:
    ...     save_ndf(file.name, np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
    ...     dataset = NdfDataset(file.name)
    ...     dataset[1]
    (array([2., 3.]), array([1.]))
    """

    def __init__(self, path: Any, dtype: npt.DTypeLike = "float64", mmap: bool = False) -> None:
        super().__init__(path, dtype, mmap)
        self._reader: NdfReader | None = NdfReader(self.path, mmap)
        self._header = self._reader.header

    def prefetch(self, indices: Sequence[int] | Int64Array) -> None:
        """Let the system read the items `indices` ahead, if they are not in memory; a hint, returns at once."""
        reader = self._open()
        if not reader.skips_hint():
            reader.hint(self._places(indices))

    def close(self) -> None:
        """Close the file; the next read opens it again. Not needed: it closes when the dataset goes."""
        self._reader = None

    def _open(self) -> NdfReader:
        # Two threads may open at once: the last one's reader stays, the other's closes with its call. See
        # Note [descriptors] in `feedline.ndf.positional`.
        reader = self._reader
        if reader is None or (reader.file.pid != os.getpid() and not reader.file.survives_fork()):
            reader = NdfReader(self.path, self.mmap)
            if reader.header != self._header:
                raise NdfError(
                    f"{self.path!r} is another file by now: it has {reader.header}, it had {self._header}; "
                    f"make a new NdfDataset",
                    kind="changed",
                    path=self.path,
                )
            self._reader = reader
        return reader

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "dtype": self.dtype.name, "mmap": self.mmap, "header": self._header}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path, self.mmap, self._header = state["path"], state["mmap"], state["header"]
        self.dtype = np.dtype(state["dtype"])
        self._reader = None
