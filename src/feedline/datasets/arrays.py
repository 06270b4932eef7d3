"""Rows of arrays that lie in memory, or in a memory map: `ArrayDataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.datasets.indexing import check_index, check_indices
from feedline.datasets.kind import Named
from feedline.datasets.protocol import Allocate, Int64Array
from feedline.errors import OptionError

__all__ = ["ArrayDataset", "RowSpec"]

Array: TypeAlias = npt.NDArray[Any]
_Gather: TypeAlias = Callable[[Int64Array, int, Array, Any], Any]


class RowSpec(NamedTuple):
    """What one column of a batch looks like: `shape` of a row, and the `dtype` in the batch (native byte order)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class ArrayDataset(Named):
    """Rows of arrays of equal length along axis 0, held by reference, never copied.

    Args:
        x: an array of shape `(n, ...)`, or a dict of named arrays. Any dtype, strides and byte order; anything
            that NumPy sees as an array without a copy is taken (a memory map, a CPU tensor). Lists are refused.
        y: a second array of shape `(n, ...)`, such as the labels.

    Attributes:
        arrays: the arrays, in order.
        row_names: their names, if they were given as a dict; else `None`.

    An item is a tuple of rows, `(x[i],)` or `(x[i], y[i])`, or a dict of rows; of a 1-d array, a NumPy scalar. Rows
    are views of the arrays. A batch is one vectorised gather per array into new memory, in native byte order, equal
    bit for bit to the collated items.

    Raises:
        TypeError: something is not an array, `y` is given beside a dict, or a name is not a `str`.
        OptionError: an array has no axis 0, or the lengths differ, or the dict is empty.

    Determinism: an item depends on its index and the arrays alone.
    Concurrency: any number of threads may read; the arrays must not be written meanwhile. Pickles with its arrays.

    >>> import numpy as np
    >>> dataset = ArrayDataset(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
    >>> dataset[1]
    (array([2., 3.]), np.int64(1))
    >>> len(ArrayDataset({"image": np.zeros((5, 8, 8)), "label": np.zeros(5)}))
    5
    """

    #: Groups of at least so many rows make a gather worth its start.
    take_rows = 4096

    def __init__(self, x: Any, y: Any = None) -> None:
        if isinstance(x, Mapping):
            if y is not None:
                raise TypeError(
                    "y can't be given beside a dict of arrays: put it into the dict, under a name"
                )
            if not x:
                raise OptionError("ArrayDataset needs at least one array, not an empty dict")
            self.row_names: tuple[str, ...] | None = tuple(_check_name(name) for name in x)
            given = [(f"[{name!r}]", array) for name, array in x.items()]
        else:
            self.row_names = None
            given = [("x", x)] if y is None else [("x", x), ("y", y)]
        self.arrays: tuple[Array, ...] = tuple(_check_array(label, array) for label, array in given)
        lengths = [len(array) for array in self.arrays]
        if len(set(lengths)) > 1:
            told = ", ".join(f"{label} has {n}" for (label, _), n in zip(given, lengths))
            raise OptionError(f"arrays must have equal lengths along axis 0: {told}")
        self._length = lengths[0]
        self._plan()

    def _plan(self) -> None:
        # How each array is gathered; made from the arrays, so never pickled.
        self._gathers: list[_Gather] = [_gather_of(array) for array in self.arrays]
        self._specs = tuple(RowSpec(a.shape[1:], a.dtype.newbyteorder("=")) for a in self.arrays)
        self._can_take = all(_stacks_as_it_is(a.dtype) for a in self.arrays)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Return item `index`: views of its rows."""
        place = check_index(index, self._length, "ArrayDataset")
        return self._pack([array[place] for array in self.arrays])

    def __getitems__(self, indices: Sequence[int] | Int64Array) -> list[Any]:
        """Return the items `indices`, in order; as `__getitem__`, checked once for all."""
        places = check_indices(indices, self._length, "ArrayDataset").tolist()
        arrays = self.arrays
        return [self._pack([array[place] for array in arrays]) for place in places]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(self._length))

    def _pack(self, parts: list[Any]) -> Any:
        return tuple(parts) if self.row_names is None else dict(zip(self.row_names, parts))

    @property
    def take(self) -> Callable[[Int64Array, Allocate], Any] | None:
        """`take(indices, allocate)`: the batch of the items `indices`, one gather per array.

        `None` where collation does more than stack: texts and objects. See `feedline.datasets.protocol`.
        """
        return self._take if self._can_take else None

    @property
    def take_into(self) -> Callable[[Int64Array, Sequence[Array]], None] | None:
        """`take_into(indices, outs)`: gather into the caller's arrays, one for each array, in order.

        Each must be C-contiguous, of shape `(len(indices), *spec.shape)` and dtype `spec.dtype` for its `RowSpec` in
        `row_specs`; nothing is allocated for contiguous arrays. `None` where `take` is.
        """
        return self._take_into if self._can_take else None

    @property
    def row_specs(self) -> tuple[RowSpec, ...]:
        """Shape of a row and dtype in the batch, for each array in order."""
        return self._specs

    def _take(self, indices: Int64Array, allocate: Allocate) -> Any:
        places = check_indices(indices, self._length, "ArrayDataset")
        outs = [allocate((len(places), *spec.shape), spec.dtype) for spec in self._specs]
        for gather, out in zip(self._gathers, outs):
            # mode="clip" with `out` avoids NumPy's buffered path; the places are checked, so nothing is ever clipped.
            gather(places, 0, out, "clip")
        return self._pack(outs)

    def _take_into(self, indices: Int64Array, outs: Sequence[Array]) -> None:
        places = check_indices(indices, self._length, "ArrayDataset")
        for gather, out in zip(self._gathers, outs):
            gather(places, 0, out, "clip")

    def __getstate__(self) -> dict[str, Any]:
        return {"arrays": self.arrays, "names": self.row_names, "length": self._length}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.arrays, self.row_names, self._length = state["arrays"], state["names"], state["length"]
        self._plan()

    def __repr__(self) -> str:
        labels = self.row_names if self.row_names is not None else ("x", "y")
        told = ", ".join(f"{label}: {a.dtype} {a.shape}" for label, a in zip(labels, self.arrays))
        return f"ArrayDataset({told})"


def _check_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"names of arrays must be str, not {type(name).__name__} {name!r}")
    return name


def _check_array(label: str, given: Any) -> Array:
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            f"{label} is a masked array, whose mask a batch would lose: fill it first, with .filled(...)"
        )
    if not isinstance(given, np.ndarray) and not hasattr(given, "__array__"):
        raise TypeError(
            f"{label} must be an array, not {type(given).__name__}: ArrayDataset holds arrays by reference, and "
            f"copies nothing; convert it once, with np.asarray"
        )
    array = np.asarray(given)
    if array.ndim == 0:
        raise OptionError(f"{label} must have rows along axis 0; it is a single value, {array!r}")
    return array


def _stacks_as_it_is(dtype: np.dtype[Any]) -> bool:
    """Tell whether stacking rows of `dtype` gives that dtype, in native byte order."""
    if dtype.hasobject or dtype.kind not in "biufcmMV":
        return False
    native = dtype.newbyteorder("=")
    # Stacking packs structures with padding: these are left to the collation.
    return bool(np.result_type(native, native) == native)


def _gather_of(array: Array) -> _Gather:
    """Return the fastest correct way to gather rows of `array`, called as `array.take` is."""
    if not (array.flags.c_contiguous and array.dtype.isnative and array.size):
        # `take` would first copy the whole of a strided array. Indexing copies only the rows, and the assignment
        # swaps their bytes where they are not in native order.
        return lambda places, axis, out, mode: np.copyto(out, array[places])
    if array.flags.aligned:
        return array.take
    # `take` would first copy the whole of an unaligned array, too: its bytes are aligned.
    source = array.reshape(-1).view(np.uint8).reshape(len(array), -1)
    return lambda places, axis, out, mode: source.take(
        places, axis, out.reshape(-1).view(np.uint8).reshape(len(places), source.shape[1]), mode
    )
