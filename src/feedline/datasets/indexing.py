"""What an index is: ints of any kind, negative ones as a list's; nothing wraps, nothing is rounded."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.datasets.protocol import Int64Array

__all__ = ["check_index", "check_indices", "index_error", "runs_by_part"]


def index_error(index: int, length: int, what: str, position: int | None = None) -> IndexError:
    """Return the `IndexError` for `index`; with `position`, its place among the indices asked for, as an attribute."""
    place = "" if position is None else f" (place {position} of the indices)"
    rule = f"valid are {-length} to {length - 1}" if length else "it is empty"
    error = IndexError(f"index {index}{place} is out of range for {what} of {length} items: {rule}")
    if position is not None:
        error.position = position  # type: ignore[attr-defined]
    return error


def check_index(index: Any, length: int, what: str) -> int:
    """Return `index` as a plain int in [0, length), negative ones counted from the end.

    Args:
        index: an int, a NumPy int, or anything with `__index__`.
        length: number of items.
        what: the dataset's name, for the messages.

    Raises:
        TypeError: it is a bool, a float or no number at all.
        IndexError: it is below `-length` or not below `length`.
    """
    if isinstance(index, (bool, np.bool_)):
        raise TypeError(f"an index of {what} must be an int, not {index!r}")
    try:
        number = operator.index(index)
    except TypeError:
        raise TypeError(f"an index of {what} must be an int, not {type(index).__name__} {index!r}") from None
    if not -length <= number < length:
        raise index_error(number, length, what)
    return number + length if number < 0 else number


def _as_int64(indices: Any, what: str) -> Int64Array:
    # An empty list becomes a float array, which is no mistake of the caller's.
    array = np.asarray(indices)
    if array.ndim != 1:
        raise TypeError(f"indices of {what} must be one list of ints, not of shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        if array.dtype.kind != "O":
            raise TypeError(f"indices of {what} must be ints, not {array.dtype}")
        # Ints beyond 64 bits, or a mixture: judged one by one, so that the message tells which is wrong.
        array = np.array([_small_int(index, what, i) for i, index in enumerate(indices)], np.int64)
    elif array.dtype == np.uint64 and int(array.max()) > 2**63 - 1:
        raise index_error(int(array.max()), 2**63, what, int(array.argmax()))
    return array.astype(np.int64, copy=False)


def _small_int(index: Any, what: str, position: int) -> int:
    if isinstance(index, (bool, np.bool_)) or not hasattr(index, "__index__"):
        raise TypeError(f"indices of {what} must be ints, not {type(index).__name__} {index!r}")
    number = operator.index(index)
    if not -(2**63) <= number < 2**63:
        raise index_error(number, 2**63, what, position)
    return number


def check_indices(indices: npt.ArrayLike, length: int, what: str) -> Int64Array:
    """Return `indices` as an int64 array of shape `(b,)`, all in [0, length), negative ones counted from the end.

    The array given is returned itself when nothing had to change; it is never modified.

    Raises:
        TypeError: they are bools, floats, not one-dimensional, or no numbers.
        IndexError: one is out of range; its attribute `position` tells the first such place.
    """
    if (
        type(indices) is np.ndarray
        and indices.dtype == np.int64
        and indices.ndim == 1
        and indices.size
        # Seen as unsigned, a negative index is larger than any length: one reduction tells that nothing is to do.
        and np.maximum.reduce(indices.view(np.uint64)) < length
    ):
        return indices
    array = _as_int64(indices, what)
    if array.size == 0:
        return array
    low = int(array.min())
    if low < -length or int(array.max()) >= length:
        wrong = (array < -length) | (array >= length)
        position = int(wrong.argmax())
        raise index_error(int(array[position]), length, what, position)
    return np.where(array < 0, array + length, array) if low < 0 else array


def runs_by_part(stops: Int64Array, ordered: Int64Array) -> list[tuple[int, int, int]]:
    """Return (part, start, stop) for each run `ordered[start:stop]` that lies in one part.

    Args:
        stops: where each part ends, ascending, shape `(parts,)`; a part begins where the one before ends.
        ordered: sorted places, all in [0, stops[-1]), at least one.

    >>> runs_by_part(np.array([2, 2, 5]), np.array([0, 1, 1, 4]))
    [(0, 0, 3), (2, 3, 4)]
    """
    # Empty parts stop where they start, so `side="right"` passes over them.
    numbers = np.searchsorted(stops, ordered, side="right")
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(ordered)]
    return [(int(numbers[start]), start, stop) for start, stop in pairwise(edges)]
