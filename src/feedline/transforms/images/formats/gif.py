"""GIF 87a and 89a: the first frame, on a canvas of the screen's size.

The blocks are read here; Pillow's codec does the LZW.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from feedline.errors import ImageError
from feedline.transforms.images.formats.codec import run_codec
from feedline.transforms.images.formats.raster import Header, Raster

__all__ = ["GifHeader", "decode", "read_header"]

_IMAGE, _EXTENSION, _END, _CONTROL = 0x2C, 0x21, 0x3B, 0xF9


@dataclass(slots=True)
class GifHeader(Header):
    """What stands before the first frame's pixels.

    Attributes:
        background: palette index of the screen's background.
        table: the colours, local or global, three bytes each.
        transparent: palette index that is transparent, or `None`.
        box: (top, left, height, width) of the frame on the screen.
        interlaced: whether rows come in four passes.
        pixels_at: where the LZW data begins, with its code size.
    """

    background: int = 0
    table: bytes = b""
    transparent: int | None = None
    box: tuple[int, int, int, int] = (0, 0, 0, 0)
    interlaced: bool = False
    pixels_at: int = 0


def read_header(data: memoryview, exif: bool) -> GifHeader:
    """Read up to the pixels of the first frame.

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    try:
        return _read(data)
    except (struct.error, IndexError):
        raise ImageError(
            f"the GIF ends after {len(data)} bytes, before its first frame", kind="truncated"
        ) from None


def _read(data: memoryview) -> GifHeader:
    width, height, flags, background = struct.unpack_from("<HHBB", data, 6)
    at = 13
    table = b""
    if flags & 0x80:
        table = bytes(data[at : at + (6 << (flags & 7))])
        at += 6 << (flags & 7)
    transparent = None
    while True:
        block = data[at]
        if block == _EXTENSION:
            if data[at + 1] == _CONTROL and data[at + 2] == 4:
                transparent = data[at + 6] if data[at + 3] & 1 else None
            at = _after_blocks(data, at + 2)
        elif block == _IMAGE:
            break
        elif block == _END:
            raise ImageError("the GIF has no frame", kind="corrupt")
        else:
            raise ImageError(f"the GIF has no block at byte {at}, where one must be", kind="corrupt")
    left, top, columns, rows, flags = struct.unpack_from("<HHHHB", data, at + 1)
    at += 10
    if flags & 0x80:
        table = bytes(data[at : at + (6 << (flags & 7))])
        at += 6 << (flags & 7)
    # Frames may reach over the screen that the file declares: the canvas grows, as in Pillow and browsers.
    width, height = max(width, left + columns), max(height, top + rows)
    if not rows or not columns:
        raise ImageError(f"the GIF's first frame has {columns} x {rows} pixels", kind="corrupt")
    channels = 3 if transparent is None else 4
    return GifHeader(
        width,
        height,
        channels,
        background=background,
        table=table,
        transparent=transparent,
        box=(top, left, rows, columns),
        interlaced=bool(flags & 0x40),
        pixels_at=at,
    )


def _after_blocks(data: memoryview, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1


def decode(data: memoryview, header: GifHeader, mode: str | None) -> Raster:
    """Decode the first frame.

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    if header.pixels_at >= len(data):
        raise ImageError(f"the GIF ends after {len(data)} bytes, before its pixels", kind="truncated")
    bits = data[header.pixels_at]
    if not 1 <= bits <= 11:
        raise ImageError(f"the GIF's codes begin with {bits} bits; 1 to 11 are possible", kind="corrupt")
    top, left, rows, columns = header.box
    packed = bytes(data[header.pixels_at + 1 :])
    frame = run_codec("gif", "P", columns, rows, packed, bits, int(header.interlaced), -1, what="GIF")
    pixels = frame
    if (rows, columns) != (header.height, header.width):
        around = header.background if header.transparent is None else header.transparent
        pixels = np.full((header.height, header.width, 1), around, np.uint8)
        pixels[top : top + rows, left : left + columns] = frame
    return Raster(pixels, _palette(header))


def _palette(header: GifHeader) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    palette = np.zeros((256, header.channels), np.uint8)
    entries = np.frombuffer(header.table[: len(header.table) // 3 * 3], np.uint8).reshape(-1, 3)
    if len(entries):
        palette[: len(entries), :3] = entries
    else:
        palette[:, :3] = np.arange(256, dtype=np.uint8)[:, None]
    if header.transparent is not None:
        palette[:, 3] = 255
        palette[header.transparent, 3] = 0
    return palette
