"""The `.ndf` file, byte for byte: pack, unpack and check its header. Pure: nothing here touches a file.

```text
offset  bytes
     0      4   the magic, "NDF1"
     4      8   n, the number of rows         \\
    12      8   d, features in a row           > unsigned 64-bit, little-endian
    20      8   l, labels in a row (may be 0) /
    28   8 * n * (d + l)   the rows, one after the other: d features, then l labels, little-endian float64
```

The file ends with its last row. `n == 0` is a valid, empty file; `d + l == 0` is not.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from feedline.errors import NdfError

__all__ = ["HEADER_BYTES", "MAGIC", "NdfHeader", "check_file_size", "pack_header", "unpack_header"]

MAGIC = b"NDF1"
_HEADER = struct.Struct("<4sQQQ")
HEADER_BYTES = _HEADER.size
_VALUE_BYTES = 8
# Sizes and offsets of files are signed 64-bit numbers everywhere.
_MAX_FILE_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class NdfHeader:
    """The sizes in a file's header.

    Attributes:
        n: rows.
        d: features in a row.
        l: labels in a row.
    """

    n: int
    d: int
    l: int  # noqa: E741 - the format's own name

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return _VALUE_BYTES * (self.d + self.l)

    @property
    def file_bytes(self) -> int:
        """Bytes of the whole file, exact at any size."""
        return HEADER_BYTES + self.n * self.row_bytes


def pack_header(header: NdfHeader) -> bytes:
    """Return the 28 bytes of `header`."""
    return _HEADER.pack(MAGIC, header.n, header.d, header.l)


def unpack_header(head: bytes, path: str, file_bytes: int | None = None) -> NdfHeader:
    """Return the sizes in `head`, the first 28 bytes of the file `path` (fewer if it has no more).

    `file_bytes`, the size of the file, is only told in messages; `check_file_size` compares it.

    Raises:
        NdfError: `"empty"`, `"bad_magic"`, `"short_header"`, `"zero_width"`, or `"truncated_rows"` for sizes that no
            file can have.
    """
    if not head:
        raise NdfError(
            f"{path!r} is empty: an .ndf file begins with a header of 28 bytes", kind="empty", path=path
        )
    if head[:4] != MAGIC[: len(head)]:
        raise NdfError(
            f"{path!r} is no .ndf file: it begins with {head[:4]!r}, not with {MAGIC!r}",
            kind="bad_magic",
            path=path,
        )
    if len(head) < HEADER_BYTES:
        raise NdfError(
            f"{path!r} ends within its header: it has {len(head)} bytes, the header alone has {HEADER_BYTES}",
            kind="short_header",
            path=path,
        )
    _, n, d, labels = _HEADER.unpack(head[:HEADER_BYTES])
    header = NdfHeader(n, d, labels)
    if d + labels == 0:
        raise NdfError(
            f"{path!r} promises {n} rows of no values at all: d + l must be at least 1",
            kind="zero_width",
            path=path,
        )
    if header.row_bytes > _MAX_FILE_BYTES:
        raise NdfError(
            f"{path!r} promises rows that no file can hold, not even one of them: d={d}, l={labels} make "
            f"{header.row_bytes} bytes a row (n={n})",
            kind="truncated_rows",
            path=path,
        )
    if header.file_bytes > _MAX_FILE_BYTES:
        found = "" if file_bytes is None else f", the file has {file_bytes}"
        raise NdfError(
            f"{path!r} promises more than any file has: n={n}, d={d}, l={labels} make {header.file_bytes} bytes{found}",
            kind="truncated_rows",
            path=path,
        )
    return header


def check_file_size(header: NdfHeader, file_bytes: int, path: str) -> None:
    """Raise an `NdfError` unless a file of `file_bytes` holds exactly what `header` promises.

    Raises:
        NdfError: `"truncated_rows"` or `"trailing_bytes"`.
    """
    promised = header.file_bytes
    if file_bytes == promised:
        return
    told = f"n={header.n}, d={header.d}, l={header.l} make {promised} bytes, the file has {file_bytes}"
    if file_bytes < promised:
        whole = max(0, file_bytes - HEADER_BYTES) // header.row_bytes
        raise NdfError(
            f"{path!r} is cut short: {told}, enough for {whole} rows of {header.n}",
            kind="truncated_rows",
            path=path,
        )
    raise NdfError(
        f"{path!r} has {file_bytes - promised} bytes after its last row: {told}",
        kind="trailing_bytes",
        path=path,
    )
