"""Colour: gray, RGB and RGBA from each other, as Pillow's `convert` makes them.

Alpha is dropped, never blended; where it is missing it is 255; gray is luma with ITU-R 601-2 weights in fixed point.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import ImageError
from feedline.transforms.images.formats.raster import Raster
from feedline.transforms.images.image_type import Image, ImageKind, ImageStep
from feedline.transforms.protocol import ItemContext

__all__ = ["ToGray", "ToRgb", "ToRgba", "as_mode", "cmyk_to_rgb", "to_gray", "to_rgb", "to_rgba"]

_UINT8 = frozenset({"uint8"})
# A sum of these times 255 is below 2^24, so float32 holds every product and sum exactly: as the integers, and faster.
_LUMA = np.array([19595, 38470, 7471], np.float32)
_HALF = np.float32(2**15)


def to_gray(image: Image) -> Image:
    """Return uint8 of shape (height, width, 1): `(19595 R + 38470 G + 7471 B + 2^15) >> 16`; alpha is dropped.

    `image` is uint8 of shape (height, width, 1 to 4 channels).
    """
    if image.shape[2] <= 2:
        return np.ascontiguousarray(image[..., :1])
    luma: npt.NDArray[np.float32] = image[..., 0] * _LUMA[0]
    luma += image[..., 1] * _LUMA[1]
    luma += image[..., 2] * _LUMA[2]
    luma += _HALF
    luma *= np.float32(2**-16)
    return luma.astype(np.uint8)[..., None]


def to_rgb(image: Image) -> Image:
    """Return uint8 of shape (height, width, 3): gray is repeated, alpha is dropped."""
    channels = image.shape[2]
    if channels >= 3:
        return np.ascontiguousarray(image[..., :3])
    out = np.empty((*image.shape[:2], 3), image.dtype)
    out[...] = image[..., :1]
    return out


def to_rgba(image: Image) -> Image:
    """Return uint8 of shape (height, width, 4): gray is repeated, missing alpha is 255."""
    channels = image.shape[2]
    if channels == 4:
        return np.ascontiguousarray(image)
    out = np.empty((*image.shape[:2], 4), image.dtype)
    out[..., :3] = image[..., :3] if channels == 3 else image[..., :1]
    out[..., 3] = image[..., 1] if channels == 2 else 255
    return out


def to_gray_alpha(image: Image) -> Image:
    """Return uint8 of shape (height, width, 2): luma, and alpha (255 where it is missing)."""
    out = np.empty((*image.shape[:2], 2), image.dtype)
    out[..., :1] = to_gray(image)
    out[..., 1] = image[..., -1] if image.shape[2] in (2, 4) else 255
    return out


_CONVERSIONS = {"L": to_gray, "LA": to_gray_alpha, "RGB": to_rgb, "RGBA": to_rgba}


def as_mode(raster: Raster, mode: str | None) -> Image:
    """Return the image of `raster` in `mode`: its own form (`None`), a colour mode, or the palette indices ("P").

    Raises:
        ImageError: `"unsupported"`: mode "P" of an image without a palette.
    """
    pixels = raster.pixels
    if mode == "P":
        if raster.palette is None:
            raise ImageError(
                'mode="P" asks for palette indices, but the image has no palette', kind="unsupported"
            )
        return pixels
    if raster.palette is not None:
        pixels = _coloured(pixels, raster.palette)
    if mode is None:
        return pixels
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    return _CONVERSIONS[mode](pixels)


def _coloured(indices: npt.NDArray[Any], palette: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    # Colours as words of four bytes: one gather of numbers is many times faster than one of rows.
    words = np.zeros((256, 4), np.uint8)
    words[:, : palette.shape[1]] = palette
    found = np.take(words.view(np.uint32)[:, 0], indices[..., 0])
    pixels = found.view(np.uint8).reshape(*indices.shape[:2], 4)
    return pixels if palette.shape[1] == 4 else np.ascontiguousarray(pixels[..., : palette.shape[1]])


def cmyk_to_rgb(inks: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return RGB of the same height and width from `inks`, uint8 (height, width, 4): (255 - C)(255 - K) / 255.

    Rounded as Pillow does it; no colour management.
    """
    light = (255 - inks[..., 3:]).astype(np.uint16)
    product = inks[..., :3] * light + np.uint16(128)
    return (light - ((product + (product >> 8)) >> 8)).astype(np.uint8)


class _Conversion(ImageStep):
    dtypes = _UINT8

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToRgb(_Conversion):
    """Make an image RGB, as Pillow's `convert("RGB")`: gray is repeated, alpha is dropped, not blended.

    Takes uint8 of shape (height, width, 1 to 4 channels), gives uint8 (height, width, 3).

    >>> import numpy as np
    >>> ToRgb()(np.full((1, 1, 1), 7, np.uint8)).tolist()
    [[[7, 7, 7]]]
    """

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image as RGB: the same array if it is RGB already."""
        return image if image.shape[2] == 3 else to_rgb(image)

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind with three channels."""
        return kind.with_(channels=frozenset({3}))


class ToRgba(_Conversion):
    """Make an image RGBA, as Pillow's `convert("RGBA")`: gray is repeated, missing alpha is 255.

    Takes uint8 of shape (height, width, 1 to 4 channels), gives uint8 (height, width, 4).
    """

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image as RGBA: the same array if it is RGBA already."""
        return image if image.shape[2] == 4 else to_rgba(image)

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind with four channels."""
        return kind.with_(channels=frozenset({4}))


class ToGray(_Conversion):
    """Make an image gray, as Pillow's `convert("L")`: luma, alpha is dropped.

    Takes uint8 of shape (height, width, 1 to 4 channels), gives uint8 (height, width, 1) with values
    `(19595 R + 38470 G + 7471 B + 2^15) >> 16`.
    """

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image as gray: the same array if it is gray already."""
        return image if image.shape[2] == 1 else to_gray(image)

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind with one channel."""
        return kind.with_(channels=frozenset({1}))
