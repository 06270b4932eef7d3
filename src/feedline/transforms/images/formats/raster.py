"""What the format modules hand over: a header before the pixels, then the pixels as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

__all__ = ["Header", "Raster"]


@dataclass(slots=True)
class Header:
    """What a file declares.

    Attributes:
        width: columns as stored.
        height: rows as stored.
        channels: of the decoded image, in its own form (palettes count as the colours that they stand for).
        itemsize: bytes per value, 1 or 2.
        orientation: EXIF orientation, 1 to 8.
    """

    width: int
    height: int
    channels: int
    itemsize: int = 1
    orientation: int = 1


@dataclass(slots=True)
class Raster:
    """Pixels as they are stored.

    Attributes:
        pixels: uint8 or uint16 of shape (height, width, channels): gray, gray and alpha, RGB or RGBA; palette
            indices of shape (height, width, 1) where there is a palette.
        palette: uint8 of shape (256, 3) or (256, 4), or `None`.
    """

    pixels: npt.NDArray[Any]
    palette: npt.NDArray[Any] | None = None
