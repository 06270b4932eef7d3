"""BMP (Windows bitmaps): 1 to 32 bits, palettes, bit fields, run lengths; bottom-up and top-down."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import ImageError
from feedline.transforms.images.formats.raster import Header, Raster

__all__ = ["BmpHeader", "decode", "read_header"]

_PLAIN, _RLE8, _RLE4, _FIELDS, _ALPHA_FIELDS = 0, 1, 2, 3, 6
_DEPTHS = {
    _PLAIN: (1, 2, 4, 8, 16, 24, 32),
    _RLE8: (8,),
    _RLE4: (4,),
    _FIELDS: (16, 32),
    _ALPHA_FIELDS: (16, 32),
}
_MASKS = {16: (0x7C00, 0x3E0, 0x1F, 0), 24: (0xFF0000, 0xFF00, 0xFF, 0), 32: (0xFF0000, 0xFF00, 0xFF, 0)}


@dataclass(slots=True)
class BmpHeader(Header):
    """What stands before the pixels.

    Attributes:
        depth: bits per pixel.
        packing: 0, 1, 2, 3 or 6 (plain, RLE8, RLE4, bit fields).
        top_down: whether the first row is the uppermost.
        masks: bits of red, green, blue and alpha where there is no palette.
        palette: uint8 (entries, 3), or `None`.
        pixels_at: where the pixels begin.
    """

    depth: int = 24
    packing: int = 0
    top_down: bool = False
    masks: tuple[int, int, int, int] = (0, 0, 0, 0)
    palette: npt.NDArray[np.uint8] | None = None
    pixels_at: int = 0

    @property
    def gray(self) -> bool:
        """Whether the palette is only the gray ramp, so that the picture is a gray one."""
        if self.palette is None:
            return False
        ramp = np.linspace(0, 255, len(self.palette)).astype(np.uint8) if len(self.palette) > 1 else None
        return ramp is not None and bool((self.palette == ramp[:, None]).all())


def read_header(data: memoryview, exif: bool) -> BmpHeader:
    """Read both headers and the palette.

    Raises:
        ImageError: `"truncated"`, `"corrupt"` or `"unsupported"`.
    """
    try:
        return _read(data)
    except struct.error:
        raise ImageError(f"the BMP ends in its header, after {len(data)} bytes", kind="truncated") from None


def _read(data: memoryview) -> BmpHeader:
    pixels_at, size = struct.unpack_from("<II", data, 10)
    packing = colours = 0
    if size == 12:
        width, height, _, depth = struct.unpack_from("<HHHH", data, 18)
        entry = 3
    else:
        width, height, _, depth = struct.unpack_from("<iiHH", data, 18)
        entry = 4
        if size >= 40:
            packing, _, _, _, colours = struct.unpack_from("<IIiiI", data, 30)
    if depth not in _DEPTHS.get(packing, ()):
        raise ImageError(
            f"BMP images of {depth} bits with compression {packing} are not decoded", kind="unsupported"
        )
    top_down, height = height < 0, abs(height)
    if packing in (_RLE8, _RLE4) and top_down:
        raise ImageError("the BMP is compressed and top-down, which can't be", kind="corrupt")
    masks = (0, 0, 0, 0)
    palette = None
    after = 14 + size
    if depth <= 8:
        count = min(colours or 2**depth, 2**depth)
        raw = bytes(data[after : after + entry * count])
        if len(raw) < entry * count:
            raise ImageError("the BMP ends in its palette", kind="truncated")
        palette = np.frombuffer(raw, np.uint8).reshape(count, entry)[:, 2::-1]
    else:
        masks = _masks(data, depth, packing, size)
    return BmpHeader(
        width,
        height,
        4 if masks[3] else 3,
        depth=depth,
        packing=packing,
        top_down=top_down,
        masks=masks,
        palette=palette,
        pixels_at=pixels_at,
    )


def _masks(data: memoryview, depth: int, packing: int, size: int) -> tuple[int, int, int, int]:
    if packing == _PLAIN:
        return _MASKS[depth]
    red, green, blue = struct.unpack_from("<III", data, 54)
    alpha = struct.unpack_from("<I", data, 66)[0] if size >= 56 or packing == _ALPHA_FIELDS else 0
    masks = (red, green, blue, alpha)
    for mask in masks:
        run = mask // (mask & -mask) if mask else 0
        if run & (run + 1) or mask >> depth:
            raise ImageError(f"the BMP has a bit field 0x{mask:x} of {depth} bits", kind="corrupt")
    return masks


def decode(data: memoryview, header: BmpHeader, mode: str | None) -> Raster:
    """Decode the pixels.

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    if header.packing in (_RLE8, _RLE4):
        indices = _run_lengths(bytes(data[header.pixels_at :]), header)
        return _from_palette(indices, header, mode)
    rows = _rows(data, header)
    if header.depth <= 8:
        return _from_palette(_unpacked(rows, header), header, mode)
    if header.masks == _MASKS.get(header.depth) and header.depth >= 24:
        step = header.depth // 8
        pixels = rows[:, : header.width * step].reshape(header.height, header.width, step)[..., 2::-1]
        return Raster(np.ascontiguousarray(pixels))
    words = rows[:, : header.width * header.depth // 8].copy().view(f"<u{header.depth // 8}")
    return Raster(_fields(words, header))


def _rows(data: memoryview, header: BmpHeader) -> npt.NDArray[np.uint8]:
    """Return the bytes of all rows, uppermost first, uint8 of shape (height, bytes in a row)."""
    used = (header.width * header.depth + 7) // 8
    stride = (used + 3) // 4 * 4
    need = stride * (header.height - 1) + used
    if header.pixels_at + need > len(data):
        raise ImageError(
            f"the BMP has {len(data)} bytes; its pixels go to byte {header.pixels_at + need}",
            kind="truncated",
        )
    flat = np.frombuffer(data[header.pixels_at :], np.uint8)
    rows = np.lib.stride_tricks.as_strided(flat, (header.height, used), (stride, 1), writeable=False)
    return rows if header.top_down else rows[::-1]


def _unpacked(rows: npt.NDArray[np.uint8], header: BmpHeader) -> npt.NDArray[np.uint8]:
    depth = header.depth
    if depth < 8:
        shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
        spread = (rows[..., None] >> shifts) & np.uint8(2**depth - 1)
        rows = spread.reshape(header.height, -1)[:, : header.width]
    return np.ascontiguousarray(rows)[..., None]


def _fields(words: npt.NDArray[Any], header: BmpHeader) -> npt.NDArray[np.uint8]:
    out = np.zeros((header.height, header.width, header.channels), np.uint8)
    for channel, mask in enumerate(header.masks[: header.channels]):
        if mask:
            low = mask & -mask
            # uint64, so that a field of 32 bits times 255 fits.
            values = ((words & words.dtype.type(mask)) // words.dtype.type(low)).astype(np.uint64)
            out[..., channel] = values * np.uint64(255) // np.uint64(mask // low)
    return out


def _from_palette(indices: npt.NDArray[np.uint8], header: BmpHeader, mode: str | None) -> Raster:
    colours = np.zeros((256, 3), np.uint8)
    if header.palette is not None:
        colours[: len(header.palette)] = header.palette
    if header.gray and mode != "P":
        return Raster(colours[:, 0][indices])
    return Raster(indices, colours)


def _run_lengths(packed: bytes, header: BmpHeader) -> npt.NDArray[np.uint8]:
    """Undo RLE8 and RLE4 (as the Windows documentation of BITMAPINFOHEADER describes them)."""
    width, height = header.width, header.height
    canvas = np.zeros((height, width), np.uint8)
    column = row = at = 0
    try:
        while row < height:
            count, value = packed[at], packed[at + 1]
            at += 2
            if count:
                line = _line(bytes([value]) * count, count, header.packing)
            elif value == 0:
                column, row = 0, row + 1
                continue
            elif value == 1:
                if row < height - 1:
                    raise IndexError
                break
            elif value == 2:
                column, row, at = column + packed[at], row + packed[at + 1], at + 2
                continue
            else:
                size = value if header.packing == _RLE8 else (value + 1) // 2
                literal = packed[at : at + size]
                if len(literal) < size:
                    raise IndexError
                line = _line(literal, value, header.packing)
                at += size + size % 2
            line = line[: max(width - column, 0)]
            canvas[row, column : column + len(line)] = line
            column += len(line)
    except IndexError:
        raise ImageError("the BMP's run lengths end before its last row", kind="truncated") from None
    return canvas[::-1, :, None]


def _line(packed: bytes, count: int, packing: int) -> npt.NDArray[np.uint8]:
    values = np.frombuffer(packed, np.uint8)
    if packing == _RLE8:
        return values
    return np.stack([values >> 4, values & 15], axis=1).reshape(-1)[:count]
