"""EXIF orientation: read it, and turn images upright.

The tag (274) has values 1 to 8 (Exif 2.32, section 4.6.4). Whatever is undefined or broken counts as upright: the
pixels are there, only a hint is not.
"""

from __future__ import annotations

import struct
from typing import Any

from feedline.transforms.images.image_type import Image

__all__ = ["orientation_of", "stored_box", "swaps_sides", "turn_upright", "upright_box"]

_TAG = 274
_SHORT, _LONG = 3, 4
_MAX_ENTRIES = 1000
# After the transposition that four of the eight need, what is left is a flip of rows, of columns, or of both.
_FLIPS_ROWS = frozenset({3, 4, 7, 8})
_FLIPS_COLUMNS = frozenset({2, 3, 6, 7})

Box = tuple[float, float, float, float]


def orientation_of(block: Any) -> int:
    """Return the orientation (1 to 8) in `block`, a TIFF structure as EXIF holds it; 1 for anything broken."""
    data = bytes(block)
    if data.startswith(b"Exif\0\0"):
        data = data[6:]
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, start)
        for entry in range(min(count, _MAX_ENTRIES)):
            tag, kind, _ = struct.unpack_from(order + "HHI", data, start + 2 + 12 * entry)
            if tag == _TAG:
                form = {_SHORT: "H", _LONG: "I"}.get(kind)
                if form is None:
                    return 1
                (value,) = struct.unpack_from(order + form, data, start + 10 + 12 * entry)
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:
        return 1
    return 1


def swaps_sides(orientation: int) -> bool:
    """Tell whether width and height change places when an image of `orientation` is turned upright."""
    return orientation >= 5


def turn_upright(image: Image, orientation: int) -> Image:
    """Return `image` (HWC, as stored) turned upright: itself, or a view of it."""
    if swaps_sides(orientation):
        image = image.transpose(1, 0, 2)
    if orientation in _FLIPS_ROWS:
        image = image[::-1]
    if orientation in _FLIPS_COLUMNS:
        image = image[:, ::-1]
    return image


def stored_box(box: Box, height: float, width: float, orientation: int) -> Box:
    """Return where `box` (top, left, height, width) of the upright image lies in the stored one.

    `height` and `width` are the upright image's.
    """
    top, left, rows, columns = _flipped(box, height, width, orientation)
    return (left, top, columns, rows) if swaps_sides(orientation) else (top, left, rows, columns)


def upright_box(box: Box, height: float, width: float, orientation: int) -> Box:
    """Undo `stored_box`: `box` lies in the stored image; `height` and `width` are still the upright image's."""
    top, left, rows, columns = box
    if swaps_sides(orientation):
        top, left, rows, columns = left, top, columns, rows
    return _flipped((top, left, rows, columns), height, width, orientation)


def _flipped(box: Box, height: float, width: float, orientation: int) -> Box:
    top, left, rows, columns = box
    if orientation in _FLIPS_ROWS:
        top = height - top - rows
    if orientation in _FLIPS_COLUMNS:
        left = width - left - columns
    return top, left, rows, columns
