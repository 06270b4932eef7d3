"""The compiled ways to resample, each for what it does fast and right; `resample.py` chooses.

Note [passes]
    `cykooz.resizer` (the Rust library `fast_image_resize`) has Pillow's filters, but always goes through an image
    vertically first. Filters with negative lobes are therefore asked for in two calls, one an axis, in the order of the
    note [order of passes] in `convolution.py`. The bilinear filter can't overshoot: one call, at most 1 level away.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import MissingExtraError
from feedline.transforms.images.convolution import vertical_first

__all__ = ["cv2_module", "fast_engine", "linear_into", "packed", "pillow_into"]

Box = tuple[float, float, float, float]

# OpenCV refuses or truncates longer sides in some of its code paths.
_CV2_SIDE = 32766
_LINEAR = 1  # cv2.INTER_LINEAR

_PIXELS = {np.dtype(np.uint8): "U8", np.dtype(np.uint16): "U16", np.dtype(np.float32): "F32"}


@cache
def cv2_module() -> Any:
    """Return OpenCV, or raise the error that tells how to install it."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError.of("image processing", "images") from error
    return cv2


def packed(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `image`, or a copy where its pixels do not lie side by side within a row (flipped views, say)."""
    _, _, channels = image.shape
    item = image.itemsize
    if image.strides[1:] == (channels * item, item) and image.strides[0] >= image.shape[1] * channels * item:
        return image
    return np.ascontiguousarray(image)


def linear_into(image: npt.NDArray[Any], out: npt.NDArray[Any]) -> bool:
    """Resize all of `image` into `out` without antialiasing, bilinear, by OpenCV; tell whether that was possible."""
    height, width, _ = out.shape
    if max(image.shape[0], image.shape[1], height, width) > _CV2_SIDE or not out.flags.c_contiguous:
        return False
    cv2_module().resize(packed(image), (width, height), out, interpolation=_LINEAR)
    return True


def pillow_into(image: npt.NDArray[Any], box: Box, out: npt.NDArray[Any], filter: str) -> None:
    """Resize the part `box` of `image` into `out`, antialiased, by Pillow: whole `uint8` images, or channel by channel."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.of("image processing", "images") from error
    resample = {
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "lanczos3": Image.Resampling.LANCZOS,
    }[filter]
    if out.dtype == np.uint8:
        whole = Image.fromarray(np.ascontiguousarray(image if image.shape[2] > 1 else image[..., 0]))
        out[...] = np.asarray(_pillow_passes(whole, box, out.shape[:2], resample)).reshape(out.shape)
        return
    for channel in range(out.shape[2]):
        plane = Image.fromarray(np.ascontiguousarray(image[..., channel]))
        out[..., channel] = np.asarray(_pillow_passes(plane, box, out.shape[:2], resample))


def _pillow_passes(image: Any, box: Box, size: tuple[int, ...], resample: Any) -> Any:
    top, left, rows, columns = box
    height, width = size
    mode = image.mode
    if mode in ("LA", "RGBA"):
        # As `Image.resize` does; here, so that it is done once for both passes.
        image = image.convert({"LA": "La", "RGBA": "RGBa"}[mode])
    # Note [order of passes] in convolution.py: explicit, since it is not the same in all versions of Pillow.
    if vertical_first((rows, columns), (height, width)):
        image = image.resize((image.width, height), resample, box=(0, top, image.width, top + rows))
        image = image.resize((width, height), resample, box=(left, 0, left + columns, height))
    else:
        image = image.resize((width, image.height), resample, box=(left, 0, left + columns, image.height))
        image = image.resize((width, height), resample, box=(0, top, width, top + rows))
    return image if image.mode == mode else image.convert(mode)


class _FastEngine(threading.local):
    """`cykooz.resizer` with its memory, one for each thread.

    Kept between calls: the library's own buffers, the last result's image, and the options.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.resizer = library.Resizer()
        self.options: dict[tuple[str, bool], Any] = {}
        self.kinds: dict[tuple[np.dtype[Any], int], Any] = {}
        self.target: Any = None
        self.target_key: Any = None

    def resize_into(
        self, image: npt.NDArray[Any], box: Box | None, out: npt.NDArray[Any], filter: str, antialias: bool
    ) -> None:
        """Resize the part `box` of `image` (all of it: `None`), each channel on its own, into `out`."""
        rows, columns, channels = image.shape
        kind = self._kind(out.dtype, channels)
        if self.target_key != (*out.shape[:2], kind):
            self.target = self.library.ImageData(out.shape[1], out.shape[0], kind)
            self.target_key = (*out.shape[:2], kind)
        source = self.library.ImageData(columns, rows, kind, image.tobytes())
        if box is None and filter == "bilinear":
            self.resizer.resize(source, self.target, self._options(filter, antialias))
        else:
            whole = (0.0, 0.0, float(rows), float(columns))
            self._by_axes(source, box or whole, kind, out.shape[:2], filter, antialias)
        out[...] = np.frombuffer(self.target.get_buffer(), out.dtype).reshape(out.shape)

    def _kind(self, dtype: np.dtype[Any], channels: int) -> Any:
        kind = self.kinds.get((dtype, channels))
        if kind is None:
            name = _PIXELS[dtype] if channels == 1 else f"{_PIXELS[dtype]}x{channels}"
            kind = self.kinds[dtype, channels] = self.library.PixelType[name]
        return kind

    def _by_axes(
        self, source: Any, box: Box, kind: Any, size: tuple[int, ...], filter: str, antialias: bool
    ) -> None:
        height, width = size
        top, left, rows, columns = box
        if filter != "bilinear" and (left, columns) != (0, width) and (top, rows) != (0, height):
            if vertical_first((rows, columns), (height, width)):
                middle = self.library.ImageData(source.width, height, kind)
                first, box = (top, 0.0, rows, float(source.width)), (0.0, left, float(height), columns)
            else:
                middle = self.library.ImageData(width, source.height, kind)
                first, box = (0.0, left, float(source.height), columns), (top, 0.0, rows, float(width))
            self.resizer.resize(source, middle, self._options_for(first, source, filter, antialias))
            source = middle
        self.resizer.resize(source, self.target, self._options_for(box, source, filter, antialias))

    def _options(self, filter: str, antialias: bool) -> Any:
        options = self.options.get((filter, antialias))
        if options is None:
            options = self.options[filter, antialias] = self._new_options(filter, antialias)
        return options

    def _options_for(self, box: Box, source: Any, filter: str, antialias: bool) -> Any:
        options = self._options(filter, antialias)
        if box == (0.0, 0.0, source.height, source.width):
            return options
        options = options.copy()
        options.crop_box = self.library.CropBox(left=box[1], top=box[0], width=box[3], height=box[2])
        return options

    def _new_options(self, filter: str, antialias: bool) -> Any:
        library = self.library
        options = library.ResizeOptions(use_alpha=False)
        algorithm = library.Algorithm.convolution if antialias else library.Algorithm.interpolation
        kernel = library.FilterType["catmull_rom" if filter == "bicubic" else filter]
        options.rust_options = options.rust_options.set_resize_alg(algorithm.value, kernel.value, 2)
        return options


@cache
def fast_engine() -> _FastEngine | None:
    """Return the engine on `cykooz.resizer`, or `None` where it is not installed (it has no wheels for some systems)."""
    try:
        import cykooz_resizer  # type: ignore[import-untyped]
    except ImportError:
        return None
    return _FastEngine(cykooz_resizer)
