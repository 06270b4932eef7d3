"""PNG (ISO/IEC 15948): every colour type, every depth, with and without interlacing.

The chunks are read here, checked with their checksums; Pillow's codec inflates and unfilters the pixels. Sixteen bits
are kept: Pillow has no mode for most such pictures, so that they are decoded as twice as many bytes.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import ImageError
from feedline.transforms.images.exif import orientation_of
from feedline.transforms.images.formats.codec import run_codec
from feedline.transforms.images.formats.raster import Header, Raster

__all__ = ["PngHeader", "decode", "read_header"]

_GRAY, _RGB, _PALETTE, _GRAY_ALPHA, _RGBA = 0, 2, 3, 4, 6
_DEPTHS = {
    _GRAY: (1, 2, 4, 8, 16),
    _RGB: (8, 16),
    _PALETTE: (1, 2, 4, 8),
    _GRAY_ALPHA: (8, 16),
    _RGBA: (8, 16),
}
_CHANNELS = {_GRAY: 1, _RGB: 3, _PALETTE: 3, _GRAY_ALPHA: 2, _RGBA: 4}
# (depth, colour type) -> mode and raw mode of Pillow's codec.
_MODES = {
    (1, _GRAY): ("1", "1"),
    (2, _GRAY): ("L", "L;2"),
    (4, _GRAY): ("L", "L;4"),
    (8, _GRAY): ("L", "L"),
    (16, _GRAY): ("I;16", "I;16B"),
    (8, _RGB): ("RGB", "RGB"),
    (1, _PALETTE): ("P", "P;1"),
    (2, _PALETTE): ("P", "P;2"),
    (4, _PALETTE): ("P", "P;4"),
    (8, _PALETTE): ("P", "P"),
    (8, _GRAY_ALPHA): ("LA", "LA"),
    (8, _RGBA): ("RGBA", "RGBA"),
}
_KNOWN_CRITICAL = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})


@dataclass(slots=True)
class PngHeader(Header):
    """What stands before the pixels.

    Attributes:
        depth: bits per sample, 1 to 16.
        colour: colour type, 0, 2, 3, 4 or 6.
        interlaced: 0 or 1 (Adam7).
        palette: the PLTE chunk.
        transparency: the tRNS chunk, or `None`.
        pixels_at: where the first IDAT chunk begins.
    """

    depth: int = 8
    colour: int = 0
    interlaced: int = 0
    palette: bytes = b""
    transparency: bytes | None = None
    pixels_at: int = 0


def read_header(data: memoryview, exif: bool) -> PngHeader:
    """Read the chunks before the pixels (and, if `exif`, look for the orientation in all).

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    chunks = _chunks(data, 8)
    name, start, end = next(chunks)
    if name != b"IHDR" or end - start != 13:
        raise ImageError("the PNG does not begin with its header", kind="corrupt")
    width, height, depth, colour, compression, filters, interlaced = struct.unpack_from(
        ">IIBBBBB", data, start
    )
    if depth not in _DEPTHS.get(colour, ()) or compression or filters or interlaced > 1:
        raise ImageError(
            f"the PNG's header is impossible: depth {depth}, colour type {colour}, compression {compression}, "
            f"filters {filters}, interlacing {interlaced}",
            kind="corrupt",
        )
    facts: dict[str, Any] = {"palette": b"", "transparency": None, "orientation": 1}
    for name, start, end in chunks:
        if name == b"IDAT":
            facts.setdefault("pixels_at", start - 8)
            if not exif:
                break
        elif name == b"IEND":
            break
        elif name == b"PLTE" and "pixels_at" not in facts:
            facts["palette"] = bytes(data[start:end])
        elif name == b"tRNS" and "pixels_at" not in facts:
            facts["transparency"] = bytes(data[start:end])
        elif name == b"eXIf" and exif:
            facts["orientation"] = orientation_of(data[start:end])
    if "pixels_at" not in facts:
        raise ImageError("the PNG has no pixels", kind="corrupt")
    if colour == _PALETTE and (
        not facts["palette"] or len(facts["palette"]) % 3 or len(facts["palette"]) > 768
    ):
        raise ImageError(
            f"the PNG has a palette of {len(facts['palette'])} bytes; a palette has 3 to 768, in threes",
            kind="corrupt",
        )
    alpha = facts["transparency"] is not None and colour in (_GRAY, _RGB, _PALETTE)
    channels = _CHANNELS[colour] + alpha
    itemsize = 2 if depth == 16 else 1
    return PngHeader(
        width, height, channels, itemsize, depth=depth, colour=colour, interlaced=interlaced, **facts
    )


def _chunks(data: memoryview, at: int) -> Any:
    """Yield (name, start, end) of every chunk's content; those that matter are checked."""
    size = len(data)
    while True:
        if at + 12 > size:
            raise ImageError(f"the PNG ends after {size} bytes, without its end mark", kind="truncated")
        length, name = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if length >= 2**31 or not name.isalpha():
            raise ImageError(f"the PNG has no chunk at byte {at}, where one must be", kind="corrupt")
        if end + 4 > size:
            raise ImageError(
                f"the PNG ends after {size} bytes, inside a chunk that goes to byte {end + 4}",
                kind="truncated",
            )
        critical = not name[0] & 0x20
        if critical or name in (b"tRNS", b"eXIf"):
            if critical and name not in _KNOWN_CRITICAL:
                raise ImageError(f"the PNG has an unknown critical chunk {name!r}", kind="unsupported")
            (expected,) = struct.unpack_from(">I", data, end)
            if zlib.crc32(data[at + 4 : end]) != expected:
                raise ImageError(
                    f"the PNG's chunk {name!r} at byte {at} has a wrong checksum", kind="corrupt"
                )
        yield name, at + 8, end
        at = end + 4


def decode(data: memoryview, header: PngHeader, mode: str | None) -> Raster:
    """Decode the pixels.

    Raises:
        ImageError: `"truncated"` or `"corrupt"`.
    """
    parts = []
    for name, start, end in _chunks(data, header.pixels_at):
        if name == b"IDAT":
            parts.append(data[start:end])
        elif name == b"IEND":
            break
    packed = parts[0] if len(parts) == 1 else b"".join(parts)
    if header.depth == 16 and header.colour != _GRAY:
        pixels = _sixteen(packed, header)
    else:
        pixels = _run(packed, header, *_MODES[header.depth, header.colour])
    # The codec is content with a stream that ends early, and leaves zeros: then, and only then, all is counted.
    if header.interlaced or not pixels[-1].any():
        _check_size(packed, header)
    if header.colour == _PALETTE:
        return Raster(pixels, _palette(header))
    if header.transparency is not None and header.colour in (_GRAY, _RGB):
        pixels = _with_key(pixels, header)
    return Raster(pixels)


_WHOLE = ((0, 0, 1, 1),)
# Adam7: first row, first column, rows and columns from one pixel to the next (section 8.2).
_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_PIECE = 2**16


def _check_size(packed: Any, header: PngHeader) -> None:
    """Check that the stream holds all rows; nothing of it is kept."""
    samples = 1 if header.colour == _PALETTE else _CHANNELS[header.colour]
    expected = 0
    for top, left, down, across in _PASSES if header.interlaced else _WHOLE:
        rows, columns = -(-(header.height - top) // down), -(-(header.width - left) // across)
        if rows > 0 and columns > 0:
            expected += rows * (1 + (columns * samples * header.depth + 7) // 8)
    stream = zlib.decompressobj()
    found = 0
    try:
        found = len(stream.decompress(packed, _PIECE))
        while found < expected and stream.unconsumed_tail:
            found += len(stream.decompress(stream.unconsumed_tail, _PIECE))
        # What was read already may still come out in pieces.
        while found < expected and not stream.eof:
            piece = stream.decompress(b"", _PIECE)
            if not piece:
                break
            found += len(piece)
    except zlib.error as error:
        raise ImageError(f"the PNG can't be decoded: {error}", kind="corrupt") from None
    if found < expected:
        raise ImageError(
            f"the PNG's rows are missing: {found} bytes of the {expected} that it declares", kind="truncated"
        )


def _run(packed: Any, header: PngHeader, mode: str, raw: str) -> npt.NDArray[Any]:
    width, height = header.width, header.height
    return run_codec("zip", mode, width, height, bytes(packed), raw, header.interlaced, what="PNG")


def _sixteen(packed: Any, header: PngHeader) -> npt.NDArray[np.uint16]:
    if header.colour == _GRAY_ALPHA:
        # Four bytes a pixel, as RGBA has: the codec undoes the filters alike, and each two bytes are one value.
        return _run(packed, header, "RGBA", "RGBA").view(">u2").astype(np.uint16)
    # The codec has no eight bytes a pixel, but takes the upper or the lower byte of each value.
    mode = "RGB" if header.colour == _RGB else "RGBA"
    pixels = _run(packed, header, mode, mode + ";16B").astype(np.uint16)
    pixels <<= 8
    pixels |= _run(packed, header, mode, mode + ";16L")
    return pixels


def _palette(header: PngHeader) -> npt.NDArray[np.uint8]:
    # Indices beyond the palette are black, as in libpng's other users; beyond the alphas they are opaque.
    colours = np.zeros((256, 3), np.uint8)
    entries = np.frombuffer(header.palette, np.uint8).reshape(-1, 3)
    colours[: len(entries)] = entries
    if header.transparency is None:
        return colours
    alpha = np.full((256, 1), 255, np.uint8)
    given = np.frombuffer(header.transparency[:256], np.uint8)
    alpha[: len(given), 0] = given
    return np.concatenate([colours, alpha], axis=1)


def _with_key(pixels: npt.NDArray[Any], header: PngHeader) -> npt.NDArray[Any]:
    """Add the alpha channel that a colour key stands for: 0 where the pixel has that colour."""
    values = header.transparency or b""
    count = pixels.shape[2]
    if len(values) != 2 * count:
        raise ImageError(
            f"the PNG's transparent colour has {len(values)} bytes, not {2 * count}", kind="corrupt"
        )
    # Only the bits of the depth count (section 11.3.2.1); lower depths were stretched to 0..255.
    key = np.array(struct.unpack(f">{count}H", values)) & (2**header.depth - 1)
    if header.depth < 8:
        key = key * (255 // (2**header.depth - 1))
    opaque = np.iinfo(pixels.dtype).max
    out = np.empty((*pixels.shape[:2], count + 1), pixels.dtype)
    out[..., :count] = pixels
    out[..., count] = np.where((pixels == key.astype(pixels.dtype)).all(axis=2), 0, opaque)
    return out
