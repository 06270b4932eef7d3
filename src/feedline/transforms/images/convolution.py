"""Separable resampling in NumPy alone: the reference for all faster ways, and the way out where there is none.

Note [taps]
    Output pixel `i` of an axis is a weighted sum of a few input pixels ("taps"). With `scale = length / size_out`, its
    centre lies at `start + (i + 0.5) * scale` of the input; the filter, stretched by `scale` where the image shrinks
    and is antialiased, gives the weights, which are then made to sum up to 1. Taps outside of the image are left out.
    This is Pillow's rule (`Resample.c`, `precompute_coeffs`).

Note [order of passes]
    An image is resampled along one axis, then along the other, and integer images are rounded and clipped after each.
    With filters that overshoot, the order shows at hard edges (by tens of levels in noise). The order here is that of
    Pillow 13: horizontally first, unless the height shrinks by more than twice as many pixels as the width does.
    It is the same whatever way of resampling is taken, and whatever Pillow is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["FILTERS", "Filter", "convolve_into", "nearest_into", "taps", "vertical_first"]

Filter = Literal["nearest", "bilinear", "bicubic", "lanczos3"]
FILTERS: tuple[str, ...] = ("nearest", "bilinear", "bicubic", "lanczos3")

_Floats = npt.NDArray[np.float64]


def _bilinear(x: _Floats) -> _Floats:
    return np.clip(1.0 - np.abs(x), 0.0, None)


def _bicubic(x: _Floats) -> _Floats:
    a = -0.5
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos3(x: _Floats) -> _Floats:
    return np.where(np.abs(x) < 3.0, np.sinc(x) * np.sinc(x / 3.0), 0.0)


# filter -> (half its width in pixels, its weights)
_KERNELS: dict[str, tuple[float, Callable[[_Floats], _Floats]]] = {
    "bilinear": (1.0, _bilinear),
    "bicubic": (2.0, _bicubic),
    "lanczos3": (3.0, _lanczos3),
}


def taps(
    size_in: int, start: float, length: float, size_out: int, filter: str, antialias: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the input pixels and their weights for every output pixel of one axis (note [taps]).

    Returns:
        `(places, weights)`, both of shape `(size_out, taps)`; places beyond a pixel's last tap repeat with weight 0.
    """
    reach, kernel = _KERNELS[filter]
    scale = length / size_out
    stretch = max(scale, 1.0) if antialias else 1.0
    support = reach * stretch
    centres = start + (np.arange(size_out) + 0.5) * scale
    first = np.clip((centres - support + 0.5).astype(np.int64), 0, size_in - 1)
    last = np.clip((centres + support + 0.5).astype(np.int64), 1, size_in)
    count = int((last - first).max())
    places = first[:, None] + np.arange(count)
    weights = kernel((places - centres[:, None] + 0.5) / stretch)
    weights[places >= last[:, None]] = 0.0
    sums = weights.sum(axis=1, keepdims=True)
    weights /= np.where(sums == 0.0, 1.0, sums)
    return np.minimum(places, size_in - 1), weights.astype(np.float32)


def _pass(
    image: npt.NDArray[Any], places: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], axis: int
) -> Any:
    shape = [1, 1, 1]
    shape[axis] = len(places)
    result: Any = None
    for tap in range(places.shape[1]):
        part = np.take(image, places[:, tap], axis=axis) * weights[:, tap].reshape(shape)
        result = part if result is None else np.add(result, part, out=result)
    return result


def vertical_first(size: tuple[float, float], new: tuple[int, int]) -> bool:
    """Tell whether (height, width) `size` becomes `new` by the vertical pass first (note [order of passes])."""
    return new[0] < size[0] and size[0] - new[0] > 2 * (size[1] - new[1])


def _rounded(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.kind == "f":
        return values
    top = np.iinfo(dtype).max
    return np.clip(np.floor(values + 0.5), 0, top)


def convolve_into(
    image: npt.NDArray[Any],
    box: tuple[float, float, float, float],
    out: npt.NDArray[Any],
    filter: str,
    antialias: bool,
) -> None:
    """Resample the part `box` (top, left, height, width) of `image`, shape (h, w, c), into `out`, shape (H, W, c)."""
    spans = ((box[0], box[2]), (box[1], box[3]))
    result = image.astype(np.float32)
    for axis in (0, 1) if vertical_first(box[2:], out.shape[:2]) else (1, 0):
        start, length = spans[axis]
        size, new = image.shape[axis], out.shape[axis]
        if (start, length) != (0, new) or size != new:
            result = _rounded(
                _pass(result, *taps(size, start, length, new, filter, antialias), axis), out.dtype
            )
    out[...] = result


def nearest_into(
    image: npt.NDArray[Any], box: tuple[float, float, float, float], out: npt.NDArray[Any]
) -> None:
    """Give every pixel of `out` the pixel of `image` in which its centre lies.

    A centre on the border of two pixels is right in either; it falls where Pillow's running sum lets it fall.
    """
    top, left, height, width = box
    rows = _nearest(image.shape[0], top, height, out.shape[0])
    columns = _nearest(image.shape[1], left, width, out.shape[1])
    # Rows first: whole rows copy fast, single pixels do not.
    np.take(image[rows], columns, axis=1, out=out, mode="clip")


def _nearest(size_in: int, start: float, length: float, size_out: int) -> npt.NDArray[np.int64]:
    step = length / size_out
    steps = np.full(size_out, step)
    steps[0] = start + step * 0.5
    # `accumulate` adds one after the other, as Pillow does; a product would fall differently on borders.
    return np.clip(np.add.accumulate(steps).astype(np.int64), 0, size_in - 1)
