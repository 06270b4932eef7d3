"""JPEG: libjpeg-turbo through simplejpeg, strict about what is missing, and no more of it than is needed.

Note [strict]
    libjpeg fills what is missing with gray and warns. simplejpeg turns the *first* warning of a decode into an error,
    with the pixels in the buffer all the same. So warnings that say that bytes are left over are told from those that
    say that bytes are missing or make no sense: a first warning "extraneous bytes" in a picture of one scan means that
    all its rows were decoded without one. JPEG has no checksum: damage that leaves a valid stream of codes can't be seen.
    The few pictures with sampling factors that simplejpeg refuses go through Pillow, which sees that the file ends early,
    but not that a scan does.

Note [rows]
    The rows of a picture of one scan are coded from top to bottom, and nothing that comes after a row is needed for it
    (but one row of chroma). So a lower height written into the header (of a copy) makes libjpeg stop there, and call
    the rest extraneous. With restart intervals "extraneous bytes" could mean damage in the middle; but there the copy
    can end at a restart marker. Progressive pictures and those of several scans are decoded whole.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import ImageError, MissingExtraError
from feedline.transforms.images.color import cmyk_to_rgb, to_gray, to_rgba
from feedline.transforms.images.exif import orientation_of
from feedline.transforms.images.formats.codec import run_codec
from feedline.transforms.images.formats.raster import Header
from feedline.transforms.images.scratch import Scratch

__all__ = ["JpegHeader", "decode_rows", "read_header"]

_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_END, _SCAN, _RESTART, _APP1, _APP14 = 0xD9, 0xDA, 0xDD, 0xE1, 0xEE
_CHANNELS = {"RGB": 3, "RGBA": 4, "GRAY": 1, "CMYK": 4}
_SCAN_MARK = re.compile(rb"\xff\xda")
# An encoder writes about ten. A few bytes make one, and each takes time in proportion to the pixels.
_MAX_SCANS = 500
_END_MARK = re.compile(rb"\xff\xd9")
_RESTART_MARK = re.compile(rb"\xff[\xd0-\xd7]")
_ODD_SAMPLING = "Could not determine subsampling level"
_unpack_marker = struct.Struct(">HH").unpack_from
_pack_rows = struct.Struct(">H").pack_into
_unpack_frame = struct.Struct(">BHHB").unpack_from
# Segments that say nothing of what is needed here: tables, APP0 to APP13 and APP15, comments.
_PASSED = frozenset({0xFFDB, 0xFFC4, 0xFFFE, *range(0xFFE0, 0xFFF0)} - {0xFFEE})
_LEFT_OVER = "extraneous bytes before marker 0x"


@dataclass(slots=True)
class JpegHeader(Header):
    """What stands before the first scan.

    Attributes:
        components: 1, 3 or 4.
        adobe: an Adobe marker is there (inks are stored upside down, then).
        height_at: where the two bytes of the height are.
        step: rows of luma that share a row of chroma: what has to be decoded below a row to know its colour.
        across: columns in a unit of coding.
        interval: units between restart markers, 0 for none.
        scan_at: where the first scan's header begins.
        one_scan: all is coded in one scan, so that rows can be decoded up to any one (see the note).
    """

    components: int = 3
    adobe: bool = False
    height_at: int = 0
    step: int = 1
    across: int = 8
    interval: int = 0
    scan_at: int = 0
    one_scan: bool = False


def read_header(data: memoryview, exif: bool) -> JpegHeader:
    """Read the segments up to the first scan; the orientation only if `exif`.

    Raises:
        ImageError: `"truncated"`, `"corrupt"` or `"unsupported"`.
    """
    usual = None if exif else _usual_header(data)
    return _any_header(data, exif) if usual is None else usual


def _usual_header(data: memoryview) -> JpegHeader | None:
    """Return the header of a colour picture of one scan without restarts, as most are; `None` for any other, or damage."""
    at, frame_at = 2, 0
    try:
        marker, length = _unpack_marker(data, at)
        while marker != 0xFFDA:
            if marker == 0xFFC0 or marker == 0xFFC1:
                if frame_at or length < 17:
                    return None
                frame_at = at + 4
            elif marker not in _PASSED or length < 2:
                return None
            at += 2 + length
            marker, length = _unpack_marker(data, at)
        scan_at = at + 4
        if not frame_at or length < 3 or at + 2 + length > len(data) or data[scan_at] != 3:
            return None
        precision, height, width, components = _unpack_frame(data, frame_at)
    except struct.error:
        return None
    if precision != 8 or components != 3:
        return None
    first, second, third = data[frame_at + 7], data[frame_at + 10], data[frame_at + 13]
    return JpegHeader(
        width,
        height,
        3,
        height_at=frame_at + 1,
        step=max(first & 15, second & 15, third & 15),
        across=8 * max(first >> 4, second >> 4, third >> 4),
        scan_at=scan_at,
        one_scan=True,
    )


def _any_header(data: memoryview, exif: bool) -> JpegHeader:
    facts: dict[str, Any] = {"adobe": False, "orientation": 1, "interval": 0}
    for marker, start, end in _segments(data):
        if marker in _FRAMES:
            facts.update(_frame(data, marker, start, end))
        elif marker == _APP14 and bytes(data[start : start + 5]) == b"Adobe" and end - start >= 12:
            facts["adobe"] = True
        elif marker == _APP1 and exif and bytes(data[start : start + 6]) == b"Exif\0\0":
            facts["orientation"] = orientation_of(data[start + 6 : end])
        elif marker == _RESTART and end - start >= 2:
            facts["interval"] = data[start] << 8 | data[start + 1]
        elif marker == _SCAN:
            if "width" not in facts:
                raise ImageError("the JPEG has a scan before its frame header", kind="corrupt")
            one_scan = facts.pop("sequential") and end > start and data[start] == facts["components"]
            if not one_scan:
                _count_scans(data)
            return JpegHeader(**facts, scan_at=start, one_scan=one_scan)
    raise ImageError("the JPEG ends before its first scan", kind="truncated")


def _count_scans(data: memoryview) -> None:
    scans = sum(1 for _ in _SCAN_MARK.finditer(data))
    if scans > _MAX_SCANS:
        raise ImageError(
            f"the JPEG has {scans} scans, more than the limit of {_MAX_SCANS}: each goes through the whole picture",
            kind="too_large",
        )


def _segments(data: memoryview) -> Any:
    """Yield (marker, start, end) of every segment's content, up to the first scan."""
    at, size = 2, len(data)
    while True:
        if at + 1 >= size:
            raise ImageError(f"the JPEG ends in its header, after {size} bytes", kind="truncated")
        if data[at] != 0xFF:
            raise ImageError(f"the JPEG has no marker at byte {at}, where one must be", kind="corrupt")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _STANDALONE:
            at += 2
        elif marker == _END:
            raise ImageError("the JPEG ends without a picture", kind="corrupt")
        else:
            if at + 4 > size:
                raise ImageError(f"the JPEG ends in its header, after {size} bytes", kind="truncated")
            end = at + 2 + (data[at + 2] << 8 | data[at + 3])
            if end < at + 4:
                raise ImageError(f"the JPEG has a segment of impossible length at byte {at}", kind="corrupt")
            if end > size:
                raise ImageError(f"the JPEG ends in its header, after {size} bytes", kind="truncated")
            yield marker, at + 4, end
            if marker == _SCAN:
                return
            at = end


def _frame(data: memoryview, marker: int, start: int, end: int) -> dict[str, Any]:
    if end - start < 6:
        raise ImageError("the JPEG's frame header is too short", kind="corrupt")
    precision, height, width, components = struct.unpack_from(">BHHB", data, start)
    if precision != 8:
        raise ImageError(f"the JPEG has {precision} bits per sample; only 8 are decoded", kind="unsupported")
    if components not in (1, 3, 4):
        raise ImageError(f"the JPEG has {components} components; 1, 3 or 4 are decoded", kind="unsupported")
    if end - start < 6 + 3 * components:
        raise ImageError("the JPEG's frame header is too short", kind="corrupt")
    # A picture of one component is coded block by block, whatever its sampling factors say.
    factors = [data[start + 7 + 3 * i] for i in range(components)] if components > 1 else [0x11]
    return {
        "width": width,
        "height": height,
        "channels": 1 if components == 1 else 3,
        "components": components,
        "height_at": start + 1,
        "step": max(factor & 15 for factor in factors),
        "across": 8 * max(factor >> 4 for factor in factors),
        "sequential": marker in _SEQUENTIAL,
    }


def _decoder() -> Callable[..., Any]:
    try:
        import simplejpeg
    except ImportError as error:
        raise MissingExtraError.of("decoding JPEG", "images") from error
    decode: Callable[..., Any] = simplejpeg.decode_jpeg
    return decode


def _decode_colors(
    data: memoryview, header: JpegHeader, rows: int, fast: bool, scratch: Scratch
) -> npt.NDArray[np.uint8] | None:
    """Decode the upper `rows` rows of a picture as most are, as `decode_rows` does for mode "RGB", with less ado.

    `None`: it is another, or something is wrong; `decode_rows` knows what to do.
    """
    if header.components != 3 or not header.one_scan or header.interval:
        return None
    if rows < header.height:
        data = scratch.copied(data, len(data))
        _pack_rows(data, header.height_at, rows)
    buffer = scratch(rows * header.width * 3)
    try:
        _decoder()(data, "RGB", fast, fast, 0, 0, 1, buffer)
    except ValueError as error:
        if _LEFT_OVER not in str(error):
            return None
    return buffer.reshape(rows, header.width, 3)


def decode_rows(
    data: memoryview,
    header: JpegHeader,
    mode: str | None,
    *,
    rows: int | None = None,
    factor: int = 1,
    fast: bool = False,
    scratch: Any = None,
) -> npt.NDArray[np.uint8]:
    """Decode the upper `rows` rows (all, if `None`), each side divided by `factor` (1, 2, 4 or 8, rounded up).

    Returns uint8 of shape (rows or more, width, channels), 1 channel for mode "L", else those of the picture (4 with
    mode "RGBA"). `scratch(size)` gives the memory to decode into; without it, it is new. `fast` allows libjpeg's fast,
    less exact DCT and upsampling.

    Raises:
        ImageError: `"truncated"`, `"corrupt"` or `"unsupported"`, for what is wrong in the rows asked for, or anywhere.
    """
    if factor == 1 and rows is not None and (mode == "RGB" or mode is None) and type(scratch) is Scratch:
        colors = _decode_colors(data, header, rows, fast, scratch)
        if colors is not None:
            return colors
    space = _space(header, mode)
    take = _new_memory if scratch is None else scratch
    if rows is not None and rows < header.height:
        part = _part(data, header, rows, getattr(scratch, "copied", None))
        pixels = None if part is None else _run(part, header, rows, space, factor, fast, take)
        if pixels is not None:
            return _colors(pixels, space, header)
    pixels = _run(data, header, header.height, space, factor, fast, take)
    if pixels is None:
        raise ImageError("the JPEG was refused and told no reason", kind="corrupt")
    return _colors(pixels, space, header)


def _new_memory(size: int) -> npt.NDArray[np.uint8]:
    return np.empty(size, np.uint8)


def _space(header: JpegHeader, mode: str | None) -> str:
    if header.components == 4:
        return "CMYK"
    if mode in ("L", "LA") or header.components == 1:
        return "GRAY"
    return "RGBA" if mode == "RGBA" else "RGB"


def _part(
    data: memoryview, header: JpegHeader, rows: int, copied: Callable[..., memoryview] | None
) -> memoryview | bytearray | None:
    """Return a copy of `data` that says that it has `rows` rows; `None` if it can't be had (see the note on rows).

    It is made by `copied(data, end)`, where there is that.
    """
    if not header.one_scan:
        return None
    if copied is not None and not header.interval:
        copy = copied(data, len(data))
        _pack_rows(copy, header.height_at, rows)
        return copy
    return _part_to_a_restart(data, header, rows)


def _part_to_a_restart(data: memoryview, header: JpegHeader, rows: int) -> bytearray | None:
    end = len(data)
    if header.interval:
        units = -(-header.width // header.across) * -(-rows // (8 * header.step))
        marks = _RESTART_MARK.finditer(data, header.scan_at)
        last = next(islice(marks, -(-units // header.interval) - 1, None), None)
        if last is None:
            return None
        end = last.start()
    copy = bytearray(data[:end])
    if header.interval:
        copy += b"\xff\xd9"
    _pack_rows(copy, header.height_at, rows)
    return copy


def _run(
    data: Any, header: JpegHeader, rows: int, space: str, factor: int, fast: bool, take: Any
) -> npt.NDArray[np.uint8] | None:
    """Decode `data`, whose header says `rows`; `None`: only the whole picture can tell what is wrong."""
    decode_jpeg = _decoder()
    height, width = -(-rows // factor), -(-header.width // factor)
    shape = (height, width, _CHANNELS[space])
    size = height * width * _CHANNELS[space]
    buffer = take(size)
    try:
        least = (height, width) if factor > 1 else (0, 0)
        decode_jpeg(data, space, fast, fast, *least, factor, buffer)
    except ValueError as error:
        message = str(error)
        if _ODD_SAMPLING in message and rows == header.height:
            return _odd(data, header, space, factor)
        if not (header.one_scan and not header.interval and _LEFT_OVER in message):
            if rows < header.height:
                return None
            kind = _kind(message)
            if kind == "corrupt" and _END_MARK.search(data, header.scan_at) is None:
                # libjpeg makes up an end where the data stops, and may stumble over that first.
                kind = "truncated"
            raise ImageError(f"the JPEG can't be decoded: {message}", kind=kind) from None
    return np.asarray(buffer).reshape(shape)


def _odd(data: Any, header: JpegHeader, space: str, factor: int) -> npt.NDArray[np.uint8]:
    """Decode a whole picture with sampling factors that libjpeg-turbo's simple interface does not know."""
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[header.components]
    height, width = -(-header.height // factor), -(-header.width // factor)
    pixels = run_codec("jpeg", mode, width, height, bytes(data), mode, "", factor, 0, what="JPEG")
    if space == "GRAY":
        return to_gray(pixels)
    return to_rgba(pixels) if space == "RGBA" else pixels


def _kind(message: str) -> str:
    if "Premature end of JPEG file" in message or "premature end of data segment" in message:
        return "truncated"
    if "nsupported" in message or "Sorry" in message or "not supported" in message:
        return "unsupported"
    return "corrupt"


def _colors(pixels: npt.NDArray[np.uint8], space: str, header: JpegHeader) -> npt.NDArray[np.uint8]:
    if space != "CMYK":
        return pixels
    # With an Adobe marker the bytes are 255 minus ink (Adobe Technical Note 5116), without it the inks themselves.
    return cmyk_to_rgb(pixels if not header.adobe else 255 - pixels)
