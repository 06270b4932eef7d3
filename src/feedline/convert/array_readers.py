"""Arrays as they lie in `.npy` and `.npz` files, and what reads rows of them.

Note [arrays in files]
    An array in a file is read by position, a block at a time: nothing is mapped, so that a file that is cut meanwhile is
    an error and no signal. The arrays of an `.npz` that is not compressed lie in it as `.npy` files do, and are read the
    same way. Compressed ones can only be read from their beginning: a reader keeps its place, so that jobs that come in
    order decompress the array once. Arrays in Fortran order are mapped, since their rows are scattered.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from feedline.convert.protocol import Array
from feedline.errors import OptionError
from feedline.ndf.positional import OpenFile

__all__ = ["MappedReader", "PackedReader", "PositionalReader", "StoredArray", "cut_short", "read_header"]


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies.

    Attributes:
        name: of the array, for messages.
        path: the file.
        shape, dtype, fortran: as its header tells.
        offset: of its first value in the file; `None` if it is compressed.
        member: its name in the `.npz`, if it is compressed.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int | None
    member: str = ""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row; a 1-d array is one column."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.row_shape, dtype=object)) * self.dtype.itemsize


def read_header(file: IO[bytes], path: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether it is in Fortran order, and dtype of the array that `file` stands at; it then stands at the data.

    Raises:
        OptionError: there is no such array; `path` names the file in the message.
    """
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            # It differs in allowing names of fields that are not Latin-1; NumPy has no public function that reads it.
            raise ValueError(f"its header is of version {version[0]}.{version[1]}")
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise OptionError(f"{path!r} holds no array that NumPy can read: {error}") from None
    return shape, bool(fortran), dtype


class PositionalReader:
    """Rows of an array that lies in its file as it is, into the same memory again and again."""

    def __init__(self, array: StoredArray, offset: int, rows: int) -> None:
        self._array = array
        self._offset = offset
        self._file = OpenFile(array.path)
        self._memory = np.empty((rows, *array.row_shape), array.dtype)

    def read(self, first: int, count: int) -> Array:
        """Return `count` rows from row `first` on, valid until the next call."""
        rows = self._memory[:count]
        into = rows.reshape(-1).view(np.uint8).data
        if self._file.read_into([into], self._offset + first * self._array.row_bytes) < len(into):
            raise cut_short(self._array)
        return rows


class MappedReader:
    """Rows of an array in Fortran order."""

    def __init__(self, array: StoredArray, offset: int) -> None:
        self._map = np.memmap(array.path, array.dtype, "r", offset, array.shape, "F")

    def read(self, first: int, count: int) -> Array:
        """Return `count` rows from row `first` on, a view of the file."""
        return np.asarray(self._map[first : first + count])


class PackedReader:
    """Rows of a compressed array, ever onwards.

    Attributes:
        next_row: rows before this one can't be read any more.
    """

    def __init__(self, array: StoredArray) -> None:
        self._array = array
        self._archive = zipfile.ZipFile(array.path)
        self._stream: IO[bytes] = self._archive.open(array.member)
        read_header(self._stream, array.path)
        self._memory = np.empty((0, *array.row_shape), array.dtype)
        self.next_row = 0

    def read(self, first: int, count: int) -> Array:
        """Return `count` rows from row `first` on, valid until the next call; `first` is `next_row` or later."""
        if len(self._memory) < count:
            self._memory = np.empty((count, *self._array.row_shape), self._array.dtype)
        rows = self._memory[:count]
        into = rows.reshape(-1).view(np.uint8).data
        try:
            # What comes before is decompressed, and dropped.
            self._stream.seek((first - self.next_row) * self._array.row_bytes, 1)
            while into:
                got = self._stream.readinto(into)  # type: ignore[attr-defined]
                if not got:
                    raise cut_short(self._array)
                into = into[got:]
        except (zipfile.BadZipFile, zlib.error) as error:
            raise OptionError(f"{self._array.name!r} of {self._array.path!r} is damaged: {error}") from None
        self.next_row = first + count
        return rows


def cut_short(array: StoredArray) -> OptionError:
    """Return the error for an array whose file ends too early."""
    return OptionError(
        f"{array.path!r} ends within the array {array.name!r} of shape {array.shape}: it was cut"
    )
