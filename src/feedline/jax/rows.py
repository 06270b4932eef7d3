"""Rows of a process's batch: how many there are, padded to how many there shall be, and whether JAX can hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.collate.leaves import map_leaves

__all__ = ["check_fits", "padded", "rows_of"]

Array = npt.NDArray[Any]


def rows_of(batch: Any) -> int:
    """Return the length of axis 0 of the batch's arrays.

    Raises:
        ValueError: it has no array with an axis 0, or their lengths differ.
    """
    lengths: set[int] = set()

    def note(leaf: Any) -> Any:
        if getattr(leaf, "ndim", 0) and not isinstance(leaf, (str, bytes)):
            lengths.add(len(leaf))
        return leaf

    map_leaves(note, batch)
    if len(lengths) != 1:
        told = (
            f"arrays with {', '.join(map(str, sorted(lengths)))} rows"
            if lengths
            else "no array with an axis 0"
        )
        raise ValueError(f"a batch is sharded along axis 0 of its arrays; this one has {told}")
    return lengths.pop()


def padded(array: Array, rows: int) -> Array:
    """Return `array` with zeros up to `rows` rows; itself, if it has as many."""
    if len(array) == rows:
        return array
    out = np.zeros((rows, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


def check_fits(array: Array, target: np.dtype[Any]) -> None:
    """Raise an `OverflowError` if integers of `array` don't fit `target`, to which JAX would cut them in silence."""
    if array.dtype == target or array.dtype.kind not in "iu" or not array.size:
        return
    limits = np.iinfo(target)
    low, high = int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        raise OverflowError(
            f"integers from {low} to {high} don't fit {target}, which JAX makes of {array.dtype}: set "
            f"jax.config.update('jax_enable_x64', True), or choose another dtype in the transform"
        )
