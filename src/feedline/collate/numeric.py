"""Columns of numbers: Python's, NumPy's scalars and arrays, to one array.

The quick functions here and the general `join_numbers` give equal results where both apply; a test proves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from feedline.collate.mismatch import differing, refused, too_large

__all__ = ["Memory", "array_dtype", "join_bools", "join_floats", "join_ints", "join_numbers", "stack_arrays"]

Array = npt.NDArray[Any]

#: Batches of up to so many bytes are joined as bytes; larger ones go to memory from the pool, which is worth its cost then.
JOIN_BYTES = 256 * 1024

_dtype_of = attrgetter("dtype")
_shape_of = attrgetter("shape")
_ndim_of = attrgetter("ndim")

_RAGGED = "Make them equal in the transform, use padded_collate(), or collate_fn=list"


class Memory(Protocol):
    """Where a batch's memory comes from (`feedline.collate.buffers.BatchMemory` is one)."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Array:
        """Return C-contiguous, writable memory."""
        ...

    def match(self, leaves: Sequence[Any], /) -> Array | None:
        """Return the block whose rows `leaves` are, or `None`."""
        ...


def stack_arrays(column: Sequence[Array], path: str, memory: Memory | None) -> Array:
    """Stack arrays, each exactly of type `np.ndarray`, on a new axis 0."""
    first = column[0]
    count = len(column)
    dtype: np.dtype[Any] = first.dtype
    if (
        list(map(_dtype_of, column)).count(dtype) != count
        or not dtype.isnative
        or dtype.hasobject
        or not _equal_shapes(column, first, count)
    ):
        return join_numbers(column, path, memory)
    if memory is not None:
        block = memory.match(column)
        if block is not None:
            return block
    shape = (count, *first.shape)
    if 0 < first.nbytes * count <= JOIN_BYTES:
        try:
            return np.ndarray(shape, dtype, bytearray().join(column))  # type: ignore[arg-type]
        except (TypeError, BufferError, ValueError):
            pass  # not contiguous, or a dtype that the buffer protocol doesn't know
    out = _allocate(shape, dtype, memory)
    if first.ndim:
        np.concatenate(column, out=out.reshape(shape[0] * shape[1], *shape[2:]))
    else:
        out[:] = column
    return out


def _equal_shapes(column: Sequence[Array], first: Array, count: int) -> bool:
    if first.ndim == 1:  # the same, without making a tuple for each item
        return (
            list(map(_ndim_of, column)).count(1) == count
            and list(map(len, column)).count(len(first)) == count
        )
    return list(map(_shape_of, column)).count(first.shape) == count


def _allocate(shape: tuple[int, ...], dtype: np.dtype[Any], memory: Memory | None) -> Array:
    return np.empty(shape, dtype) if memory is None else memory.allocate(shape, dtype)


def join_ints(column: Sequence[int], path: str, memory: Memory | None = None) -> Array:
    """Make int64, or uint64 if all fit only there."""
    try:
        return np.array(column, np.int64)
    except OverflowError:
        pass
    if min(column) >= 0 and max(column) < 1 << 64:
        return np.array(column, np.uint64)
    low, high = (0, (1 << 64) - 1) if max(column) >= 1 << 63 else (-(1 << 63), (1 << 63) - 1)
    bad = [position for position, value in enumerate(column) if not low <= value <= high]
    raise too_large(
        path, bad, f"ints {min(column)} to {max(column)} fit neither int64 nor uint64, as they are"
    )


def join_floats(column: Sequence[float], path: str, memory: Memory | None = None) -> Array:
    """Make float64."""
    return np.array(column, np.float64)


def join_bools(column: Sequence[bool], path: str, memory: Memory | None = None) -> Array:
    """Make bool."""
    return np.array(column, np.bool_)


def join_numbers(column: Sequence[Any], path: str, memory: Memory | None) -> Array:
    """Join any mixture of Python numbers, NumPy scalars and arrays (also of subclasses), by the rules.

    Raises:
        CollateError: shapes differ, or kinds that are not mixed; an array of objects; a masked array.
        OverflowError: a Python int fits no dtype, or not that of the NumPy ints beside it.
    """
    shapes = [leaf.shape if hasattr(leaf, "shape") else () for leaf in column]
    shape = shapes[0]
    if shapes.count(shape) != len(shapes):
        raise differing(path, "shapes", shapes, _RAGGED)
    numpy_leaves = [leaf for leaf in column if isinstance(leaf, (np.ndarray, np.generic))]
    if len(numpy_leaves) == len(column):
        dtype = array_dtype(column, path)
    else:
        _refuse_unusable(column, path)
        dtype = _dtype_with_python(column, numpy_leaves, path)
    out = _allocate((len(column), *shape), dtype, memory)
    for position, leaf in enumerate(column):
        out[position, ...] = leaf
    return out


def array_dtype(column: Sequence[Any], path: str) -> np.dtype[Any]:
    """Return the dtype that NumPy arrays or scalars of one rank are joined in.

    Raises:
        CollateError: there is none; an array of objects; a masked array.
    """
    _refuse_unusable(column, path)
    dtypes = [leaf.dtype for leaf in column]
    return _common_dtype(dtypes, path, bools_are_ints=column[0].ndim > 0, shown=dtypes)


def _refuse_unusable(column: Sequence[Any], path: str) -> None:
    bad = [
        p
        for p, leaf in enumerate(column)
        if getattr(leaf, "dtype", None) is not None and leaf.dtype.hasobject
    ]
    if bad:
        what = f"{type(column[bad[0]]).__name__} of dtype {column[bad[0]].dtype}"
        raise refused(path, bad, what, "Give it a numeric dtype in the transform, or use collate_fn=list")
    bad = [p for p, leaf in enumerate(column) if isinstance(leaf, np.ma.MaskedArray)]
    if bad:
        advice = "Its mask would be lost: use .filled(), or give .data and .mask as two parts"
        raise refused(path, bad, type(column[bad[0]]).__name__, advice)


def _common_dtype(
    dtypes: Sequence[np.dtype[Any]], path: str, bools_are_ints: bool, shown: Sequence[Any]
) -> np.dtype[Any]:
    """Return the native dtype that all of `dtypes` promote to, as NumPy has it, without changes of kind.

    Integers become no floats, and nothing becomes text or a date. With `bools_are_ints=False` bools become no
    integers either. `shown` has what the error tells of each item.

    Raises:
        CollateError: there is none.
    """
    try:
        joined = np.result_type(*set(dtypes))
        kept = all(_keeps_kind(dtype, joined, bools_are_ints) for dtype in dtypes)
    except (TypeError, ValueError):
        kept = False
    if not kept:
        advice = "Integers are not turned into floats, nor kinds mixed: choose one dtype in the transform"
        raise differing(path, "dtypes", shown, advice)
    return joined.newbyteorder("=")


_UPWARDS = {"b": "iufcV", "u": "i", "f": "cV", "V": "fc"}


def _keeps_kind(source: np.dtype[Any], target: np.dtype[Any], bools_are_ints: bool) -> bool:
    if source.kind == target.kind:
        # Both "V": structured ones go to structured ones; the others are numbers of an extension.
        return (source.names is None) == (target.names is None)
    if source.names is not None or target.names is not None:
        return False
    if source.kind == "b" and not bools_are_ints:
        return False
    return target.kind in _UPWARDS.get(source.kind, "")


def _dtype_with_python(column: Sequence[Any], numpy_leaves: Sequence[Any], path: str) -> np.dtype[Any]:
    """The dtype of a column of scalars of which some or all are Python's."""
    python = [(p, leaf) for p, leaf in enumerate(column) if not isinstance(leaf, (np.ndarray, np.generic))]
    ints = [(p, leaf) for p, leaf in python if isinstance(leaf, int) and not isinstance(leaf, bool)]
    dtypes = [leaf.dtype for leaf in numpy_leaves]
    dtypes += [
        _python_dtype(leaf) for _, leaf in python if not isinstance(leaf, int) or isinstance(leaf, bool)
    ]
    if not dtypes:
        return join_ints([leaf for _, leaf in ints], path).dtype
    shown = list(map(_type_name, column))
    joined = _common_dtype(dtypes, path, bools_are_ints=False, shown=shown)
    if not ints:
        return joined
    if joined.kind in "iu":
        info = np.iinfo(joined)
        bad = [p for p, leaf in ints if not info.min <= leaf <= info.max]
        if bad:
            raise too_large(
                path, bad, f"int {column[bad[0]]} does not fit {joined}, the dtype of the others,"
            )
        return joined
    if joined.kind not in "fcV" or joined.names is not None:
        raise differing(
            path, "types", [_type_name(leaf) for leaf in column], "Choose one type in the transform"
        )
    bad = [p for p, leaf in ints if not _is_exact(leaf, joined)]
    if bad:
        what = f"int {column[bad[0]]} is not exact in {joined}, the dtype of the others,"
        raise refused(path, bad, what, "Make it a float in the transform, if that is meant")
    return joined


def _python_dtype(leaf: Any) -> np.dtype[Any]:
    for kind, dtype in ((bool, np.bool_), (float, np.float64), (complex, np.complex128)):
        if isinstance(leaf, kind):
            return np.dtype(dtype)
    raise TypeError(f"{type(leaf).__name__} is no number")


def _type_name(leaf: Any) -> str:
    return str(leaf.dtype) if isinstance(leaf, (np.ndarray, np.generic)) else type(leaf).__name__


def _is_exact(value: int, dtype: np.dtype[Any]) -> bool:
    try:
        with np.errstate(over="ignore"):
            converted = complex(np.array(float(value)).astype(dtype)).real
    except OverflowError:
        return False
    return math.isfinite(converted) and int(converted) == value
