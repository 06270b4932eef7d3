"""Rows streamed from an `.ndf` file: `NdfDataset`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.datasets.arrays import RowSpec
from feedline.datasets.indexing import check_index, check_indices
from feedline.datasets.kind import Named
from feedline.datasets.protocol import Allocate, Int64Array
from feedline.errors import NdfError, OptionError
from feedline.ndf.layout import NdfHeader
from feedline.ndf.positional import absolute_path
from feedline.ndf.reader import NdfReader

__all__ = ["NdfDataset", "check_row_dtype"]

Array: TypeAlias = npt.NDArray[Any]


class NdfDataset(Named):
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
        self.dtype = check_row_dtype(dtype)
        self.path = absolute_path(path)
        if not isinstance(mmap, bool):
            raise TypeError(f"mmap must be True or False, not {mmap!r}")
        self.mmap = mmap
        self._reader: NdfReader | None = NdfReader(self.path, mmap)
        self._header: NdfHeader = self._reader.header

    @property
    def n(self) -> int:
        """Rows in the file."""
        return self._header.n

    @property
    def d(self) -> int:
        """Features in a row."""
        return self._header.d

    @property
    def l(self) -> int:  # noqa: E743 - the format's own name
        """Labels in a row; may be 0."""
        return self._header.l

    @property
    def row_specs(self) -> tuple[RowSpec, RowSpec]:
        """Shape and dtype of a row, and of its labels."""
        return RowSpec((self.d,), self.dtype), RowSpec((self.l,), self.dtype)

    def __len__(self) -> int:
        return self._header.n

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        """Return `(row, labels)`, new arrays of shapes `(d,)` and `(l,)`."""
        place = check_index(index, self.n, "NdfDataset")
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            row = self._open().read_row(place).astype(self.dtype, copy=False)
        return row[: self.d], row[self.d :]

    def __getitems__(self, indices: Sequence[int] | Int64Array) -> list[tuple[Array, Array]]:
        """Return the items `indices`, in order, read together."""
        return list(zip(*self.take(check_indices(indices, self.n, "NdfDataset"), np.empty)))

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return (self[place] for place in range(self.n))

    def take(self, indices: Int64Array, allocate: Allocate) -> tuple[Array, Array]:
        """Return the batch `(rows, labels)` of the items `indices`, shapes `(b, d)` and `(b, l)`, in new memory.

        Raises:
            IndexError: an index is out of range; its attribute `position` tells the place.
            NdfError: the file was cut or written over.
        """
        places = check_indices(indices, self.n, "NdfDataset")
        x = allocate((len(places), self.d), self.dtype)
        y = allocate((len(places), self.l), self.dtype)
        self._open().gather(places, x, y)
        return x, y

    def take_into(self, indices: Int64Array, outs: Sequence[Array]) -> None:
        """Read the items `indices` into the caller's arrays `(x, y)`; raises as `take` does.

        They must be C-contiguous, of this dataset's dtype and of shapes `(b, d)` and `(b, l)`.
        """
        x, y = outs
        self._open().gather(check_indices(indices, self.n, "NdfDataset"), x, y)

    def prefetch(self, indices: Sequence[int] | Int64Array) -> None:
        """Let the system read the items `indices` ahead, if they are not in memory; a hint, returns at once."""
        reader = self._open()
        if not reader.skips_hint():
            reader.hint(check_indices(indices, self.n, "NdfDataset"))

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

    def __repr__(self) -> str:
        more = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        more += ", mmap=True" if self.mmap else ""
        return f"NdfDataset({self.path!r}{more})"


def check_row_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype if rows can be had in it.

    Raises:
        TypeError: it is `None`, or nothing that names a dtype.
        OptionError: it is a text that names none, or neither float64 nor float32.
    """
    # np.dtype(None) is float64, and a slip here.
    if dtype is None:
        raise TypeError("dtype must be 'float64' or 'float32', not None")
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        # NumPy's own words name neither the argument nor what it may be.
        kind = OptionError if isinstance(dtype, str) else TypeError
        raise kind(f"dtype must be 'float64' or 'float32', not {dtype!r}") from error
    if found not in (np.dtype("=f8"), np.dtype("=f4")):
        raise OptionError(f"dtype must be 'float64' or 'float32', not {dtype!r}")
    return found
