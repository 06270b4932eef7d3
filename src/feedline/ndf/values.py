"""Values that may go into a row: what float64 holds exactly, and nothing else."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError

__all__ = ["Array", "as_rows", "copy_exactly"]

Array: TypeAlias = npt.NDArray[Any]
#: Up to here every int has a float64 of its own.
_EXACT = 2**53


def as_rows(name: str, given: Any, width: int | None = None) -> Array:
    """Return `given` as an array of rows, shape `(k, width)`; a 1-d array is one column. No value is converted yet.

    Args:
        name: what it is called, for the messages.
        given: an array, or a list of rows.
        width: values in a row; `None` takes any.

    Raises:
        TypeError: complex numbers, texts, dates, objects, floats of more than 64 bits, or a masked array.
        OptionError: another number of axes or values in a row, or an int that float64 can't hold exactly.
    """
    array = as_numbers(name, given)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2:
        raise OptionError(
            f"{name} must have the shape (rows, values) or (rows,), not {array.shape}; flatten what is in a row"
        )
    if width is not None and array.shape[1] != width:
        raise OptionError(f"{name} has {array.shape[1]} values in a row, where {width} are expected")
    return array


def as_numbers(name: str, given: Any) -> Array:
    """Return `given` as an array whose values float64 can hold exactly; raises as `as_rows` does."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask can't be written: fill it first, with .filled(...)"
        )
    array = np.asarray(given)
    if array.size == 0 and not isinstance(given, np.ndarray):
        # An empty list has no type of its own.
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(
            f"{name} has the type {array.dtype}: rows hold float64, into which only ints, bools and floats of up to "
            f"64 bits can be converted exactly"
        )
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        _check_exact(name, array)
    return array


def _check_exact(name: str, array: Array) -> None:
    if array.size == 0 or (int(array.max()) <= _EXACT and int(array.min()) >= -_EXACT):
        return
    large = np.argwhere((array > _EXACT) | (array < -_EXACT) if array.dtype.kind == "i" else array > _EXACT)
    for place in large:
        value = int(array[tuple(place)])
        if int(float(value)) != value:
            raise OptionError(
                f"{name}{place.tolist()} is {value}, which float64 can't hold exactly (ints are exact up to 2**53)"
            )


def copy_exactly(values: Array, into: Array) -> None:
    """Copy checked `values` into float64 memory, bit for bit where they are float64 already."""
    # A signalling NaN of fewer bits becomes a quiet one, which NumPy would report as invalid.
    with np.errstate(invalid="ignore"):
        np.copyto(into, values, casting="same_kind")
