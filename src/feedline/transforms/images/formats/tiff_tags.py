"""The directory of a TIFF file (TIFF 6.0): what it says of the first picture, and a clean copy of it.

Files carry tags of every origin, sound and broken. Only those that matter for pixels are read, all values are checked
against the length of the file, and the decoder gets a directory that has these and nothing else.
"""

from __future__ import annotations

import struct
from typing import Any

from feedline.errors import ImageError

__all__ = ["Tags", "read_tags", "with_tags"]

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 7: 1}
_CODES = {1: "B", 3: "H", 4: "I"}
_LONG, _UNDEFINED = 4, 7
# Far above what any picture within the limits has in strips or tiles; lists of them cost 10 times their file's bytes.
_MAX_VALUES = 2**20
_NAMES = {
    256: "width",
    257: "height",
    258: "bits",
    259: "compression",
    262: "photometric",
    266: "fill_order",
    273: "strip_offsets",
    274: "orientation",
    277: "samples",
    278: "rows_per_strip",
    279: "strip_counts",
    284: "planar",
    292: "fax_options",
    317: "predictor",
    320: "colours",
    322: "tile_width",
    323: "tile_height",
    324: "tile_offsets",
    325: "tile_counts",
    338: "extra",
    339: "formats",
    347: "jpeg_tables",
    530: "subsampling",
}
_NUMBERS = {name: number for number, name in _NAMES.items()}

# Name -> values; `jpeg_tables` is a list of bytes' values like the others.
Tags = dict[str, list[int]]


def read_tags(data: memoryview) -> Tags:
    """Read the tags of the first directory that matter for its pixels.

    Raises:
        ImageError: `"truncated"`: the directory or a value lies beyond the end of the file; `"corrupt"`: a tag has
            more values than any picture needs.
    """
    order = "<" if bytes(data[:2]) == b"II" else ">"
    tags: Tags = {}
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, start)
        for entry in range(count):
            at = start + 2 + 12 * entry
            number, kind, length = struct.unpack_from(order + "HHI", data, at)
            if number in _NAMES and kind in _SIZES and length:
                if length > _MAX_VALUES:
                    raise ImageError(f"the TIFF has {length} values for tag {number}", kind="corrupt")
                tags[_NAMES[number]] = _values(data, order, kind, length, at + 8)
    except struct.error:
        raise ImageError(
            f"the TIFF has {len(data)} bytes; its directory lies beyond them", kind="truncated"
        ) from None
    return tags


def _values(data: memoryview, order: str, kind: int, length: int, at: int) -> list[int]:
    size = _SIZES[kind] * length
    if size > 4:
        (at,) = struct.unpack_from(order + "I", data, at)
    if at + size > len(data):
        raise struct.error
    if kind in _CODES:
        return list(struct.unpack_from(f"{order}{length}{_CODES[kind]}", data, at))
    return list(data[at : at + size])


def with_tags(data: memoryview, tags: Tags) -> tuple[bytes, int]:
    """Return a copy of `data` with a directory of `tags` and nothing else, and where the directory is."""
    order = "<" if bytes(data[:2]) == b"II" else ">"
    start = (len(data) + 1) // 2 * 2
    entries: list[bytes] = []
    rest = b""
    after = start + 2 + 12 * len(tags) + 4
    for number, name in sorted((_NUMBERS[name], name) for name in tags):
        kind, packed = _packed(order, name, tags[name])
        length = len(packed) // _SIZES[kind]
        if len(packed) > 4:
            place = struct.pack(order + "I", after + len(rest))
            rest += packed + b"\0" * (len(packed) % 2)
        else:
            place = packed.ljust(4, b"\0")
        entries.append(struct.pack(order + "HHI", number, kind, length) + place)
    directory = struct.pack(order + "H", len(tags)) + b"".join(entries) + b"\0\0\0\0" + rest
    head = bytes(data[:4]) + struct.pack(order + "I", start)
    return b"".join([head, data[8:], b"\0" * (start - len(data)), directory]), start


def _packed(order: str, name: str, values: list[Any]) -> tuple[int, bytes]:
    if name == "jpeg_tables":
        return _UNDEFINED, bytes(values)
    short = name not in ("strip_offsets", "strip_counts", "tile_offsets", "tile_counts", "fax_options")
    if short and max(values) < 2**16:
        return 3, struct.pack(f"{order}{len(values)}H", *values)
    return _LONG, struct.pack(f"{order}{len(values)}I", *values)
