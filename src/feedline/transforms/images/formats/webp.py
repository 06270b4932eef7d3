"""WebP, lossy and lossless, through OpenCV's libwebp; of an animation the first frame.

Pillow's file class asks `Image.MAX_IMAGE_PIXELS`, which anybody may have changed; OpenCV asks nobody.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.errors import ImageError, MissingExtraError
from feedline.transforms.images.exif import orientation_of
from feedline.transforms.images.formats.raster import Header, Raster

__all__ = ["WebpHeader", "decode", "read_header"]


@dataclass(slots=True)
class WebpHeader(Header):
    """What stands before the pixels.

    Attributes:
        end: where the file ends by its own word; what comes after is ignored.
    """

    end: int = 0


def read_header(data: memoryview, exif: bool) -> WebpHeader:
    """Read the size and whether there is alpha; the orientation only if `exif`.

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    try:
        width, height, alpha = _size(data[:end])
    except (struct.error, IndexError):
        raise ImageError(
            f"the WebP has only {len(data)} bytes, less than a header", kind="truncated"
        ) from None
    orientation = _orientation(data[:end]) if exif and bytes(data[12:16]) == b"VP8X" else 1
    return WebpHeader(width, height, 4 if alpha else 3, orientation=orientation, end=end)


def _size(data: memoryview) -> tuple[int, int, bool]:
    name = bytes(data[12:16])
    if len(name) < 4:
        raise IndexError
    if name == b"VP8X":
        flags = data[20]
        sides = int.from_bytes(data[24:30], "little") if len(data) >= 30 else None
        if sides is None:
            raise IndexError
        return (sides & 0xFFFFFF) + 1, (sides >> 24) + 1, bool(flags & 0x10)
    if name == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature == 0x2F:
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1)
    if name == b"VP8 ":
        start, width, height = struct.unpack_from("<3sHH", data, 23)
        if start == b"\x9d\x01\x2a":
            return width & 0x3FFF, height & 0x3FFF, False
    raise ImageError(f"the WebP has no picture where it must be, but {name!r}", kind="corrupt")


def _orientation(data: memoryview) -> int:
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        if name == b"EXIF":
            return orientation_of(data[at + 8 : at + 8 + length])
        at += 8 + length + (length & 1)
    return 1


def decode(data: memoryview, header: WebpHeader, mode: str | None) -> Raster:
    """Decode the pixels: RGB, or RGBA where the file says that it has alpha.

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    if header.end > len(data):
        raise ImageError(
            f"the WebP has {len(data)} bytes of the {header.end} that it declares", kind="truncated"
        )
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError.of("decoding WebP", "images") from error
    pixels: Any
    try:
        pixels = cv2.imdecode(np.frombuffer(data[: header.end], np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ImageError(f"the WebP can't be decoded: {error}", kind="corrupt") from None
    if pixels is None or pixels.shape[:2] != (header.height, header.width):
        raise ImageError("the WebP can't be decoded: its picture is damaged", kind="corrupt")
    if pixels.shape[2] == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    else:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGBA)
    if pixels.shape[2] > header.channels:
        pixels = np.ascontiguousarray(pixels[..., : header.channels])
    return Raster(pixels)
