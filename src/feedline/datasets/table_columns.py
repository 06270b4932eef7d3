"""Columns of a group of rows, decoded so that a row of them is had by its number.

| column of the table | item | in a batch by `take` |
| --- | --- | --- |
| bool, ints, floats | NumPy scalar | yes |
| timestamps, dates, durations | `datetime64`, `timedelta64` (time zones: as UTC) | yes |
| lists of fixed size of these | array of shape `(k,)` | yes |
| other lists of these | array of shape `(k,)`, `k` by row | no |
| texts, bytes | `str`, `bytes` | no |
| dictionaries | as their values | as these |
| anything else | what pyarrow's `as_py()` gives | no |
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.datasets.arrays import RowSpec
from feedline.datasets.table_files import import_pyarrow

__all__ = ["Column", "decode_column", "row_spec_of"]

Array: TypeAlias = npt.NDArray[Any]


class Column:
    """A column whose rows are those of an array: numbers, times, and lists of fixed size of them.

    Attributes:
        values: shape `(n,)` or `(n, k)`; `None` where rows are of other kinds.
        size_bytes: of memory, about.
    """

    values: Array | None

    def __init__(self, values: Array) -> None:
        self.values = self._rows = values
        self.size_bytes = values.nbytes

    def item(self, row: int) -> Any:
        """Return the value of a row, the caller's own."""
        found = self._rows[row]
        return found.copy() if isinstance(found, np.ndarray) else found


class _Ragged(Column):
    """Lists of numbers, of any lengths."""

    def __init__(self, flat: Array, offsets: Array) -> None:
        self.values = None
        self._flat = flat
        self._offsets = offsets
        self.size_bytes = flat.nbytes + offsets.nbytes

    def item(self, row: int) -> Any:
        return self._flat[self._offsets[row] : self._offsets[row + 1]].copy()


class _Other(Column):
    """Texts, bytes, structures and the rest, kept as pyarrow has them."""

    def __init__(self, array: Any) -> None:
        self.values = None
        self._array = array
        self.size_bytes = array.nbytes

    def item(self, row: int) -> Any:
        return self._array[row].as_py()


def _dtype_of(kind: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype of values of a pyarrow type, or `None` if it has none."""
    types = import_pyarrow().types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    if types.is_timestamp(kind):
        return np.dtype(f"M8[{kind.unit}]")
    if types.is_date32(kind):
        return np.dtype("M8[D]")
    if types.is_date64(kind):
        return np.dtype("M8[ms]")
    if types.is_duration(kind):
        return np.dtype(f"m8[{kind.unit}]")
    return None


def _plain(kind: Any) -> Any:
    """Return the type as which values are stored: of an extension its storage, of a dictionary its values."""
    pyarrow = import_pyarrow()
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _plain(kind.storage_type)
    return _plain(kind.value_type) if pyarrow.types.is_dictionary(kind) else kind


def row_spec_of(kind: Any) -> RowSpec | None:
    """Return shape and dtype of a row of a column of the pyarrow type `kind`; `None` where `take` can't gather it."""
    types = import_pyarrow().types
    kind = _plain(kind)
    if types.is_fixed_size_list(kind):
        dtype = _dtype_of(_plain(kind.value_type))
        return None if dtype is None else RowSpec((kind.list_size,), dtype)
    dtype = _dtype_of(kind)
    return None if dtype is None else RowSpec((), dtype)


def decode_column(column: Any, where: str, first_row: int, fill: Any = None) -> Column:
    """Decode one column of a group.

    Args:
        column: a `pyarrow.ChunkedArray`.
        where: its name and file, for messages.
        first_row: number of its first row in the file, for messages.
        fill: the value for missing ones; `None` for none.

    Raises:
        ValueError: a value is missing (null), and there is nothing to fill it with, or it is one in a list.
    """
    pyarrow = import_pyarrow()
    types = pyarrow.types
    array = _joined(column, pyarrow)
    if fill is not None and array.null_count:
        array = array.fill_null(pyarrow.scalar(fill, array.type))
    _refuse_nulls(array, where, first_row)
    dtype = _dtype_of(array.type)
    if dtype is not None:
        return Column(_numbers(array, dtype))
    if types.is_fixed_size_list(array.type) or types.is_list(array.type) or types.is_large_list(array.type):
        flat = _joined(pyarrow.chunked_array([array.flatten()]), pyarrow)
        inner = _dtype_of(flat.type)
        if inner is not None:
            if flat.null_count:
                raise ValueError(
                    f"{where}: there are missing values (null) in its lists, which can't be numbers"
                )
            numbers = _numbers(flat, inner)
            if types.is_fixed_size_list(array.type):
                return Column(numbers.reshape(len(array), array.type.list_size))
            offsets = array.offsets.to_numpy()
            return _Ragged(numbers, (offsets - offsets[0]).astype(np.int64) if len(offsets) else offsets)
    return _Other(array)


def _joined(column: Any, pyarrow: Any) -> Any:
    """Return a column as one array, extensions as their storage, dictionaries as their values."""
    array = pyarrow.concat_arrays(column.chunks) if column.num_chunks else pyarrow.array([], column.type)
    while True:
        if isinstance(array.type, pyarrow.BaseExtensionType):
            array = array.storage
        elif pyarrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        else:
            return array


def _numbers(array: Any, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "Mm":
        # As ints of the same width: pyarrow's own conversion of times wants pandas.
        width = import_pyarrow().int32() if dtype == np.dtype("M8[D]") else import_pyarrow().int64()
        numbers: Array = array.view(width).to_numpy(zero_copy_only=False)
        return numbers.astype(np.int64, copy=False).view(dtype)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values.astype(dtype, copy=False)


def _refuse_nulls(array: Any, where: str, first_row: int) -> None:
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(
            f"{where}: {array.null_count} values are missing (null), the first in row {first_row + row}; give a value for "
            f"them, as fill_nulls={{...}}, or leave the column out"
        )
