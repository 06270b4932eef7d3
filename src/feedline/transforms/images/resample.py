"""`resize_into`: one part of an image, resampled into memory that exists already.

Note [alpha]
    In `uint8` and `uint16` images with two or four channels the last one is alpha. Colours count by their alpha, as in
    Pillow: what can't be seen must not bleed into what can. `float32` images have no known range, so all their channels
    are resampled on their own; so does the filter `nearest`, which mixes nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.transforms.images.convolution import FILTERS, convolve_into, nearest_into
from feedline.transforms.images.engines import fast_engine, linear_into, pillow_into

__all__ = ["check_filter", "resize_into", "smooths"]

Box = tuple[float, float, float, float]


def check_filter(filter: str, step: str) -> str:
    """Return `filter` if it is one.

    Raises:
        OptionError: it is not; the message names those that are.
    """
    if filter not in FILTERS:
        choices = ", ".join(repr(name) for name in FILTERS)
        raise OptionError(f"{step}: filter must be one of {choices}, not {filter!r}")
    return filter


def smooths(filter: str, antialias: bool) -> bool:
    """Tell whether all pixels count where an image shrinks, so that it may be decoded at a reduced scale."""
    return antialias and filter != "nearest"


def resize_into(
    image: npt.NDArray[Any],
    box: Box,
    out: npt.NDArray[Any],
    filter: str = "bilinear",
    antialias: bool = True,
) -> None:
    """Resample the part `box` of `image` into `out`; equals cutting the part out and resizing that.

    Args:
        image: shape `(height, width, channels)`, `uint8`, `uint16` or `float32`; any strides, never written to.
        box: `(top, left, height, width)` in pixels, within the image; whole numbers, or not (then pixels at the border
            count by their share).
        out: shape `(new_height, new_width, channels)`, the same dtype, writable.
        filter: `"nearest"`, `"bilinear"`, `"bicubic"` or `"lanczos3"`.
        antialias: widen the filter where the image shrinks, as Pillow always does.

    The result is within 2, 3 and 4 levels of 255 of Pillow's for the bilinear, bicubic and Lanczos filters,
    antialiased; the same filters in float32 for `float32` images (note [alpha] in the module for alpha channels).

    Concurrency: any number of threads; each keeps buffers of its own for the next call.
    """
    part, inner = _cut(image, box)
    if filter == "nearest":
        nearest_into(part, inner or _whole(part), out)
    elif inner is None and part.shape == out.shape:
        out[...] = part
    elif out.shape[2] in (2, 4) and out.dtype != np.float32:
        _with_alpha(part, inner, out, filter, antialias)
    else:
        _channels(part, inner, out, filter, antialias)


def _cut(image: npt.NDArray[Any], box: Box) -> tuple[npt.NDArray[Any], Box | None]:
    """Return the smallest view that holds `box`, and where it lies in that; `None` if it is all of it."""
    top, left, height, width = box
    if type(top) is type(left) is type(height) is type(width) is int:
        return image[top : top + height, left : left + width], None
    first_row, first_column = math.floor(top), math.floor(left)
    end_row, end_column = math.ceil(top + height), math.ceil(left + width)
    part = image[max(first_row, 0) : end_row, max(first_column, 0) : end_column]
    inner = (float(top - first_row), float(left - first_column), float(height), float(width))
    return part, None if inner == _whole(part) else inner


def _whole(part: npt.NDArray[Any]) -> Box:
    return 0.0, 0.0, float(part.shape[0]), float(part.shape[1])


def _channels(
    part: npt.NDArray[Any], inner: Box | None, out: npt.NDArray[Any], filter: str, antialias: bool
) -> None:
    # Where no side shrinks there is nothing to smooth.
    if (
        filter == "bilinear"
        and inner is None
        and (not antialias or _grows(part, out))
        and linear_into(part, out)
    ):
        return
    fast = fast_engine()
    if fast is not None:
        fast.resize_into(part, inner, out, filter, antialias)
    elif antialias:
        pillow_into(part, inner or _whole(part), out, filter)
    else:
        convolve_into(part, inner or _whole(part), out, filter, antialias)


def _grows(part: npt.NDArray[Any], out: npt.NDArray[Any]) -> bool:
    return bool(part.shape[0] <= out.shape[0] and part.shape[1] <= out.shape[1])


def _with_alpha(
    part: npt.NDArray[Any], inner: Box | None, out: npt.NDArray[Any], filter: str, antialias: bool
) -> None:
    if out.dtype == np.uint8 and antialias:
        # Pillow itself: its rounding of colours times alpha shows where alpha is low, and can't be had elsewhere.
        pillow_into(part, inner or _whole(part), out, filter)
        return
    top = float(np.iinfo(out.dtype).max)
    weighted = part.astype(np.float32)
    weighted[..., :-1] *= weighted[..., -1:] / np.float32(top)
    result = np.empty(out.shape, np.float32)
    _channels(weighted, inner, result, filter, antialias)
    alpha = result[..., -1:]
    seen = alpha > 0.0
    np.divide(result[..., :-1] * np.float32(top), alpha, out=result[..., :-1], where=seen)
    result[..., :-1] *= seen
    out[...] = np.clip(np.floor(result + np.float32(0.5)), 0.0, top)
