"""`NdfRows`: what one `.ndf` file and a folder of them share as datasets, and the check of their `dtype`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.datasets.arrays import RowSpec
from feedline.datasets.indexing import check_index, check_indices
from feedline.datasets.kind import Named
from feedline.datasets.protocol import Allocate, Int64Array
from feedline.errors import OptionError
from feedline.ndf.layout import NdfHeader
from feedline.ndf.positional import absolute_path

__all__ = ["Array", "NdfRows", "ReadsRows", "check_row_dtype"]

Array: TypeAlias = npt.NDArray[Any]


class ReadsRows(Protocol):
    """Reads rows by their places, all of them in [0, n)."""

    def read_row(self, place: int) -> Array:
        """Return a row, features and labels, as it is on disk, in memory of its own."""
        ...

    def gather(self, places: Int64Array, x: Array, y: Array) -> None:
        """Read the rows `places` into `x` and `y`."""
        ...

    def hint(self, places: Int64Array) -> None:
        """Let the system read the rows `places` ahead."""
        ...


class NdfRows(Named, ABC):
    """Rows `(x, y)` of `.ndf` files.

    Args:
        path: the file or the folder.
        dtype: `"float64"` or `"float32"`.
        mmap: map files instead of reading by position.

    Attributes:
        n: rows. d: features in a row. l: labels in a row.
        path: made absolute.
        dtype: of rows and labels.
    """

    #: The sizes of all rows together.
    _header: NdfHeader

    def __init__(self, path: Any, dtype: npt.DTypeLike, mmap: bool) -> None:
        self.dtype = check_row_dtype(dtype)
        self.path = absolute_path(path)
        if not isinstance(mmap, bool):
            raise TypeError(f"mmap must be True or False, not {mmap!r}")
        self.mmap = mmap

    @abstractmethod
    def _open(self) -> ReadsRows:
        """Return what reads the rows in this process."""

    @property
    def n(self) -> int:
        """Rows, of all files together."""
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
        return self.n

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        """Return `(row, labels)`, new arrays of shapes `(d,)` and `(l,)`."""
        place = check_index(index, self.n, type(self).__name__)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            row = self._open().read_row(place).astype(self.dtype, copy=False)
        return row[: self.d], row[self.d :]

    def __getitems__(self, indices: Sequence[int] | Int64Array) -> list[tuple[Array, Array]]:
        """Return the items `indices`, in order, read together."""
        return list(zip(*self.take(self._places(indices), np.empty)))

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return (self[place] for place in range(self.n))

    def take(self, indices: Int64Array, allocate: Allocate) -> tuple[Array, Array]:
        """Return the batch `(rows, labels)` of the items `indices`, shapes `(b, d)` and `(b, l)`, in new memory.

        Raises:
            IndexError: an index is out of range; its attribute `position` tells the place.
            NdfError: a file is missing, or was cut or written over.
        """
        places = self._places(indices)
        x = allocate((len(places), self.d), self.dtype)
        y = allocate((len(places), self.l), self.dtype)
        self._open().gather(places, x, y)
        return x, y

    def take_into(self, indices: Int64Array, outs: Sequence[Array]) -> None:
        """Read the items `indices` into the caller's arrays `(x, y)`; raises as `take` does.

        They must be C-contiguous, of this dataset's dtype and of shapes `(b, d)` and `(b, l)`.
        """
        x, y = outs
        self._open().gather(self._places(indices), x, y)

    def prefetch(self, indices: Sequence[int] | Int64Array) -> None:
        """Let the system read the items `indices` ahead, if they are not in memory; a hint, returns at once."""
        self._open().hint(self._places(indices))

    def _places(self, indices: Sequence[int] | Int64Array) -> Int64Array:
        return check_indices(indices, self.n, type(self).__name__)

    def __repr__(self) -> str:
        more = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        more += ", mmap=True" if self.mmap else ""
        return f"{type(self).__name__}({self.path!r}{more})"


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
