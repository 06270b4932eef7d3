"""`padded_collate`: items of unequal length, padded to the longest of the batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.collate.default import CONTAINERS, common_family, join_column
from feedline.collate.foreign import PAD_ADVICE, PAD_REFUSED, pad_jax_arrays, pad_tensors
from feedline.collate.mismatch import differing, refused, too_large
from feedline.collate.numeric import Memory, array_dtype
from feedline.errors import CollateError, OptionError

__all__ = ["PaddedCollate", "padded_collate"]

Leaf = Callable[[Sequence[Any], str, str], Any]

_SCALARS = (bool, int, float, complex, np.generic)


def padded_collate(pad_value: Any = 0, multiple_of: int = 1, with_lengths: bool = True) -> PaddedCollate:
    """Return a collate function that pads items of unequal length.

    | part of an item | values | lengths |
    | --- | --- | --- |
    | arrays `(n_i, *rest)`, tensors | `(b, n, *rest)`, padded along axis 0; `rest` must be equal | int64 `(b,)` |
    | lists of numbers, empty ones too | `(b, n)`, as 1-d arrays | int64 `(b,)` |
    | lists of text | a list of the lists | `None` |
    | scalars, text | as with `default_collate` | `None` |
    | tuples, other lists, mappings, dataclasses | the same, of batches | the same, of lengths |

    `n` is the longest length of the batch, rounded up. Dtypes follow the rules of `default_collate`; if all lists are
    empty, the dtype is that of `pad_value`.

    Args:
        pad_value: what fills the end of shorter items; must be representable in the dtype of every padded part.
        multiple_of: lengths are rounded up to a multiple of it.
        with_lengths: give `(values, lengths)`, `lengths` with the structure of `values`; without it `values` alone.

    Raises:
        OptionError: `multiple_of` is less than 1.
        TypeError: an argument has the wrong type.

    Determinism: the result depends on the items alone.
    Concurrency: the function may be called from several threads, and pickles.

    >>> values, lengths = padded_collate(pad_value=-1)([[1, 2, 3], [4]])
    >>> values
    array([[ 1,  2,  3],
           [ 4, -1, -1]])
    >>> lengths
    array([3, 1])
    >>> values, lengths = padded_collate()([{"x": [1], "y": 7}, {"x": [2, 3], "y": 8}])
    >>> lengths
    {'x': array([1, 2]), 'y': None}
    """
    return PaddedCollate(pad_value, multiple_of, with_lengths)


class PaddedCollate:
    """The collate function that `padded_collate` returns; see there."""

    __slots__ = ("multiple_of", "pad_value", "with_lengths")
    takes_memory = True

    def __init__(self, pad_value: Any, multiple_of: int, with_lengths: bool) -> None:
        if not isinstance(pad_value, (*_SCALARS, str, bytes)):
            raise TypeError(f"pad_value must be a scalar, not {type(pad_value).__name__} {pad_value!r}")
        if isinstance(multiple_of, bool) or not isinstance(multiple_of, (int, np.integer)):
            raise TypeError(f"multiple_of must be an int, not {type(multiple_of).__name__} {multiple_of!r}")
        if multiple_of < 1:
            raise OptionError(f"multiple_of must be at least 1, not {multiple_of}")
        if not isinstance(with_lengths, (bool, np.bool_)):
            raise TypeError(
                f"with_lengths must be a bool, not {type(with_lengths).__name__} {with_lengths!r}"
            )
        self.pad_value = pad_value
        self.multiple_of = int(multiple_of)
        self.with_lengths = bool(with_lengths)

    def __call__(self, items: Sequence[Any], memory: Memory | None = None) -> Any:
        """Return `(values, lengths)` of `items`, or `values` without `with_lengths`.

        Raises:
            CollateError: as `default_collate`, apart from unequal lengths; or `pad_value` is not representable.
            OverflowError: a Python int fits no integer dtype.
        """
        items = list(items)
        if not items:
            raise CollateError("can't collate a batch of zero items")

        def values_of(column: Sequence[Any], path: str, family: str) -> Any:
            return self._values(column, path, family, memory)

        values = _walk(items, "", values_of)
        return (values, _walk(items, "", _lengths)) if self.with_lengths else values

    def _values(self, column: Sequence[Any], path: str, family: str, memory: Memory | None) -> Any:
        if family == "texts":
            return list(column)
        if family == "list":
            return self._pad_lists(column, path, memory)
        if not _has_axes(column, family):
            return join_column(memory, column, path)
        _check_shapes(column, path)
        if family == "number":
            return self._pad_arrays(column, path, memory)
        return self._pad_foreign(column, path, family)

    def _pad_lists(self, column: Sequence[list[Any]], path: str, memory: Memory | None) -> npt.NDArray[Any]:
        lengths = _lengths(column, path, "list")
        flat = list(itertools.chain.from_iterable(column))
        if flat:
            numbers = _join_flat(flat, lengths, path)
        else:
            numbers = np.empty(0, np.asarray(self.pad_value).dtype)
        out = self._filled((len(column), self._length(lengths)), numbers.dtype, path, memory)
        out[np.arange(out.shape[1]) < lengths[:, None]] = numbers
        return out

    def _pad_arrays(self, column: Sequence[Any], path: str, memory: Memory | None) -> npt.NDArray[Any]:
        dtype = array_dtype(column, path)
        longest = self._length(_lengths(column, path, "number"))
        out = self._filled((len(column), longest, *column[0].shape[1:]), dtype, path, memory)
        for row, leaf in zip(out, column):
            row[: len(leaf)] = leaf
        return out

    def _pad_foreign(self, column: Sequence[Any], path: str, family: str) -> Any:
        longest = self._length(_lengths(column, path, family))
        if family == "tensor":
            return pad_tensors(column, path, longest, self.pad_value)
        for array in column:
            self._check_pad_value(np.dtype(array.dtype), path, len(column))
        return pad_jax_arrays(column, path, longest, self.pad_value)

    def _length(self, lengths: npt.NDArray[np.int64]) -> int:
        return -(-int(lengths.max()) // self.multiple_of) * self.multiple_of

    def _filled(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], path: str, memory: Memory | None
    ) -> npt.NDArray[Any]:
        self._check_pad_value(dtype, path, shape[0])
        out = np.empty(shape, dtype) if memory is None else memory.allocate(shape, dtype)
        out[...] = self.pad_value
        return out

    def _check_pad_value(self, dtype: np.dtype[Any], path: str, count: int) -> None:
        if not _is_representable(self.pad_value, dtype):
            raise refused(path, range(count), PAD_REFUSED.format(self.pad_value, dtype), PAD_ADVICE)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.pad_value, self.multiple_of, self.with_lengths))

    def __repr__(self) -> str:
        return (
            f"padded_collate(pad_value={self.pad_value!r}, multiple_of={self.multiple_of}, "
            f"with_lengths={self.with_lengths})"
        )


def _walk(column: Sequence[Any], path: str, leaf: Leaf) -> Any:
    """Join `column`, each leaf as `leaf(column, path, family)` has it; containers are kept."""
    family = common_family(column, path)
    if family == "list":
        family = _list_family(column)
    container = CONTAINERS.get("list" if family == "parts" else family)
    if container is None or family == "list":
        return leaf(column, path, family)
    return container(column, path, lambda part, where: _walk(part, where, leaf))


def _list_family(column: Sequence[list[Any]]) -> str:
    """Tell apart lists of numbers ("list"), of text ("texts"), and of anything else ("parts")."""
    kinds = set(map(type, itertools.chain.from_iterable(column)))
    if kinds and all(issubclass(kind, (str, bytes)) for kind in kinds):
        return "texts"
    return "list" if all(issubclass(kind, _SCALARS) for kind in kinds) else "parts"


def _lengths(column: Sequence[Any], path: str, family: str) -> Any:
    """Return the lengths of the items of a padded column, int64 of shape `(b,)`; `None` for another."""
    if family == "list" or _has_axes(column, family):
        return np.array(list(map(len, column)), np.int64)
    return None


def _has_axes(column: Sequence[Any], family: str) -> bool:
    return family in ("number", "tensor", "jax") and any(getattr(leaf, "ndim", 0) for leaf in column)


def _check_shapes(column: Sequence[Any], path: str) -> None:
    """Refuse arrays that differ in more than their length."""
    rests = [tuple(leaf.shape[1:]) if getattr(leaf, "ndim", 0) else None for leaf in column]
    if rests.count(rests[0]) != len(rests):
        shapes = [tuple(getattr(leaf, "shape", ())) for leaf in column]
        raise differing(
            path, "shapes", shapes, "Only axis 0 is padded; make the other axes equal in the transform"
        )


def _join_flat(flat: list[Any], lengths: npt.NDArray[np.int64], path: str) -> npt.NDArray[Any]:
    """Join the numbers of all lists to one array of shape `(k,)`; errors speak of the items, not of the numbers."""
    try:
        joined: npt.NDArray[Any] = join_column(None, flat, path)
        return joined
    except (CollateError, OverflowError) as error:
        places = np.repeat(np.arange(len(lengths)), lengths)
        positions = sorted({int(places[position]) for position in vars(error)["positions"]})
        made = refused(
            path, positions, "numbers that have no dtype in common with the others, or none at all", _KINDS
        )
        if isinstance(error, CollateError):
            raise made from error
        raise too_large(path, positions, "an int that fits no integer dtype") from error


_KINDS = "Bools, ints and floats are not mixed, except for ints that are exact as floats"


def _is_representable(value: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether `value` keeps its meaning in `dtype`; floats may be rounded."""
    if dtype.names is not None:
        return isinstance(value, (int, float)) and value == 0
    if isinstance(value, (str, bytes)) or dtype.kind in "US":
        kind, unit = ("U", 4) if isinstance(value, str) else ("S", 1)
        return isinstance(value, (str, bytes)) and dtype.kind == kind and len(value) * unit <= dtype.itemsize
    if isinstance(value, (np.datetime64, np.timedelta64)) or dtype.kind in "mM":
        same_kind = isinstance(value, np.generic) and value.dtype.kind == dtype.kind
        return same_kind and bool(np.isnat(value) or value.astype(dtype) == value)
    if dtype.kind == "b" or isinstance(value, (bool, np.bool_)):
        return dtype.kind in "biu" and value in (0, 1)
    try:
        return _holds_number(value, complex(value), dtype)
    except OverflowError:  # an int beyond all floats
        return False


def _holds_number(value: Any, number: complex, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "c":
        return True
    if number.imag:
        return False
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return math.isfinite(number.real) and value == int(value.real) and info.min <= value.real <= info.max
    with np.errstate(over="ignore"):
        held = float(np.array(number.real).astype(dtype))
    return math.isfinite(number.real) == math.isfinite(held)
