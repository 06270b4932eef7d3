"""`Decode`: bytes to an image, whatever the format, or an `ImageError` that tells its kind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from feedline.errors import ImageError, OptionError
from feedline.transforms.images.color import as_mode
from feedline.transforms.images.exif import turn_upright
from feedline.transforms.images.formats import bmp, gif, jpeg, png, tiff, webp
from feedline.transforms.images.formats.raster import Header, Raster
from feedline.transforms.images.image_type import Image, ImageKind, map_first
from feedline.transforms.images.limits import DecodeLimits
from feedline.transforms.images.sniff import Format, format_of
from feedline.transforms.protocol import ItemContext, Transform

__all__ = ["MODES", "Decode", "Opened", "name_file", "read_source"]

MODES = ("L", "LA", "RGB", "RGBA", "P")
_DEFAULT_LIMITS = DecodeLimits()
_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "P": 1}
_FORMATS: dict[Format, ModuleType] = {
    "JPEG": jpeg,
    "PNG": png,
    "WebP": webp,
    "TIFF": tiff,
    "BMP": bmp,
    "GIF": gif,
}


def read_source(source: Any) -> memoryview:
    """Return the bytes of `source` as a flat view: of a bytes-like object without a copy, else of what is read.

    Paths (`str`, `PathLike`) are read whole and closed, also on errors; file objects (anything with `read`) are read
    from where they stand to their end, and left open there.

    Raises:
        TypeError: `source` is none of these.
    """
    if isinstance(source, (bytes, bytearray)):
        return memoryview(source)
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return memoryview(file.read())
    if hasattr(source, "read"):
        return read_source(source.read())
    try:
        view = memoryview(source)
    except TypeError:
        raise TypeError(
            f"Decode takes an encoded image (bytes, a path, a binary file), or a tuple that begins with one, "
            f"not {type(source).__name__}"
        ) from None
    if view.ndim > 1:
        # Encoded bytes have one axis; with more of them these are pixels, gray ones where there are two.
        dtype = getattr(source, "dtype", view.format)
        raise TypeError(
            f"Decode takes an encoded image (bytes, a path, a binary file), but got an array of shape {view.shape} "
            f"and dtype {dtype}: that is decoded already, so leave Decode out"
        )
    return view.cast("B")


@dataclass(slots=True)
class Opened:
    """An encoded image whose header is read and within the limits.

    Attributes:
        data: the bytes.
        format: which format they are in.
        header: what they declare.
    """

    data: memoryview
    format: Format
    header: Any

    @property
    def upright_size(self) -> tuple[int, int]:
        """Height and width after the orientation that `header` tells is undone."""
        header: Header = self.header
        size = header.height, header.width
        return size[::-1] if header.orientation >= 5 else size


class Decode(Transform):
    """Decode an encoded image: JPEG, PNG, WebP, TIFF, BMP, or the first frame of a GIF.

    The format is told from the content. The image keeps its own form: 1 (gray), 2 (gray and alpha), 3 (RGB) or 4
    (RGBA) channels; a palette becomes RGB or RGBA, CMYK becomes RGB, a transparent colour (PNG, GIF) becomes an alpha
    channel; 16-bit samples are kept as `uint16`, all others are `uint8`, 1-bit ones as 0 and 255. Bytes after the end
    are ignored, bytes before the start are not.

    Args:
        mode: `"L"`, `"LA"`, `"RGB"` or `"RGBA"`: always uint8 in this form (16-bit values shifted right by 8, alpha
            dropped or 255, gray as luma; of a JPEG the luma that is stored). `"P"`: the raw palette indices, shape
            (height, width, 1). `None`: the image's own form.
        limits: the largest size that is decoded, checked on the header before memory is taken.
        exif: turn the image upright as its EXIF orientation (TIFF: tag 274) tells, before anything else. Undefined
            and broken EXIF counts as upright. By default the pixels come as they are stored.
        fast: let libjpeg use its fast, less exact DCT and chroma upsampling, about a tenth faster; the pixels then
            differ by a few levels from other decoders'.

    Gives uint8 or uint16 of shape (height, width, 1 to 4), C-contiguous memory of its own. Takes bytes-like objects,
    paths and binary files (read to the end, left open), alone or as the first part of a tuple.

    Raises:
        OptionError, TypeError: when built, for options.
        ImageError: with `kind` `"empty"`, `"not_an_image"` (shows the first bytes), `"truncated"`, `"corrupt"`,
            `"too_large"` or `"unsupported"`.

    Determinism: depends on the bytes alone; Pillow's global switches are neither set nor trusted.

    Concurrency: may be called on any number of threads; decoders release the GIL. For WebP OpenCV is called, and may
    use its own threads.

    >>> Decode("RGB")
    Decode('RGB')
    >>> Decode()(b"<html>no image</html>")
    Traceback (most recent call last):
    feedline.errors.ImageError: 21 bytes that are no JPEG, ... but an HTML page ...
    """

    takes_context = True

    def __init__(
        self,
        mode: str | None = None,
        limits: DecodeLimits = _DEFAULT_LIMITS,
        exif: bool = False,
        *,
        fast: bool = False,
    ) -> None:
        if mode is not None and mode not in MODES:
            raise OptionError(f"mode must be None or one of {', '.join(MODES)}, not {mode!r}")
        if not isinstance(limits, DecodeLimits):
            raise TypeError(f"limits must be a DecodeLimits, not {type(limits).__name__} {limits!r}")
        for name, value in (("exif", exif), ("fast", fast)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be a bool, not {value!r}")
        self.mode = mode
        self.limits = limits
        self.exif = exif
        self.fast = fast

    def __call__(self, item: Any, context: ItemContext | None = None) -> Any:
        """Return the decoded image, or for a tuple the tuple with its first part decoded."""
        return map_first(item, lambda source: self._decode(source, context))

    def _decode(self, source: Any, context: ItemContext | None) -> Image:
        try:
            return self.pixels(self.open(read_source(source)), context)
        except ImageError as error:
            name_file(error, source)
            raise

    def open(self, data: memoryview) -> Opened:
        """Read the header of `data` and check it against the limits.

        Raises:
            ImageError: as the class tells.
        """
        name = format_of(data)
        header: Header = _FORMATS[name].read_header(data, self.exif)
        own = header.channels * header.itemsize
        asked = 0 if self.mode is None else _CHANNELS[self.mode]
        self.limits.check(header.width, header.height, max(own, asked), name)
        return Opened(data, name, header)

    def pixels(self, opened: Opened, context: ItemContext | None = None) -> Image:
        """Decode all pixels of `opened`, in this step's mode, turned upright if it is to.

        The memory is new, or the context's, used before but seen by nobody any more.

        Raises:
            ImageError: as the class tells.
        """
        module = _FORMATS[opened.format]
        if opened.format == "JPEG":
            take = None if context is None else partial(_temporary, context)
            pixels = jpeg.decode_rows(opened.data, opened.header, self.mode, fast=self.fast, scratch=take)
            raster = Raster(pixels)
        else:
            raster = module.decode(opened.data, opened.header, self.mode)
        return np.ascontiguousarray(turn_upright(as_mode(raster, self.mode), opened.header.orientation))

    def plan(self, steps: tuple[Any, ...], place: int) -> tuple[Any, int] | None:
        """Decode no more than the step after this one needs, where it tells (see `plan.py`)."""
        from feedline.transforms.images.plan import plan_decode

        return plan_decode(self, steps, place)

    def follow(self, state: Any) -> ImageKind:
        """Tell what this step gives; it may not follow a step that gives an image.

        Raises:
            OptionError: the step before gives an image, decoded already.
        """
        if isinstance(state, ImageKind):
            raise OptionError(f"{self!r} takes encoded bytes, but the steps before it give a decoded image")
        if self.mode is None:
            return ImageKind("HWC", frozenset({"uint8", "uint16"}))
        return ImageKind("HWC", frozenset({"uint8"}), frozenset({_CHANNELS[self.mode]}))

    def __repr__(self) -> str:
        parts = [] if self.mode is None else [repr(self.mode)]
        if self.limits != _DEFAULT_LIMITS:
            parts.append(f"limits={self.limits!r}")
        parts += [f"{name}=True" for name in ("exif", "fast") if getattr(self, name)]
        return f"Decode({', '.join(parts)})"


def _temporary(context: ItemContext, size: int) -> Image:
    return context.temporary((size,), np.uint8)


def name_file(error: ImageError, source: Any) -> None:
    """Name the file in the message of `error`, where `source` is one."""
    if isinstance(source, (bytes, bytearray)):
        return
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if isinstance(name, (str, os.PathLike)):
        error.args = (f"{os.fsdecode(name)}: {error.args[0]}",)
