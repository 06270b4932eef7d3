"""What comes out of a sampler, made fit for a dataset: plain ints, or keys that can be looked up."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_index_array", "as_key"]


def as_key(value: Any, position: int) -> Any:
    """Return `value` as a plain int if it is integer-like, else unchanged if it is a hashable key.

    `position` is its place in the order, for the message.

    Raises:
        TypeError: a float, a bool, `None`, an array or an unhashable value.
        IndexError: a negative int.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(
            f"the sampler gave {value!r} at position {position}: a bool is no index; "
            f"for a mask, use numpy.flatnonzero(mask)"
        )
    try:
        number = operator.index(value)
    except TypeError:
        return _as_other_key(value, position)
    if number < 0:
        raise IndexError(f"the sampler gave the negative index {number} at position {position}")
    return number


def _as_other_key(value: Any, position: int) -> Any:
    # A 0-d tensor of floats hashes by its address: no key that a dataset could know.
    is_array = hasattr(value, "__array__") and not isinstance(value, np.str_ | np.bytes_ | np.datetime64)
    if value is None or isinstance(value, float) or is_array or not _hashable(value):
        hint = "; batches of indices go to batch_sampler=" if isinstance(value, (list, np.ndarray)) else ""
        raise TypeError(
            f"the sampler gave {value!r} ({type(value).__name__}) at position {position}; "
            f"an index is an int or another hashable key{hint}"
        )
    return value


def _hashable(value: Any) -> bool:
    # A tuple is a Hashable by its type and yet fails with a list inside.
    if not isinstance(value, Hashable):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def as_index_array(values: Any, position: int) -> npt.NDArray[np.int64]:
    """Return a slice of an order as a 1-d int64 array.

    Raises:
        TypeError: it is no 1-d array of integers.
        IndexError: there is a negative one; the message names its place in the order.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise TypeError(
            f"an order's slice must be a 1-d array of integers; at position {position} it is "
            f"{array.ndim}-d of {array.dtype}"
        )
    if array.size and array.dtype.kind == "i" and array.min() < 0:
        place = int(np.argmax(array < 0))
        raise IndexError(
            f"the sampler gave the negative index {int(array[place])} at position {position + place}"
        )
    return array.astype(np.int64, copy=False)
