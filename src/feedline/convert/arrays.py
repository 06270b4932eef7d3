"""Arrays in `.npy` and `.npz` files as sources of rows.

How they are read tells Note [arrays in files] in `feedline.convert.array_readers`.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from feedline.convert.array_readers import (
    MappedReader,
    PackedReader,
    PositionalReader,
    StoredArray,
    cut_short,
    read_header,
)
from feedline.convert.columns import choose
from feedline.convert.protocol import BLOCK_BYTES, Array, Block, check_type, stamp_of
from feedline.errors import OptionError

__all__ = ["ArraySource", "open_npy", "open_npz"]

_LOCAL_HEADER = struct.Struct("<26xHH")


@dataclass(frozen=True)
class Piece:
    """Columns of an array: a field of a structured one, chosen columns of a 2-d one, or all of it."""

    array: int
    field: str | None = None
    columns: tuple[int, ...] | None = None

    def of(self, rows: Array) -> Array:
        """Return these columns of `rows`, shape `(k, w)`."""
        if self.field is not None:
            rows = rows[self.field]
        flat = rows.reshape(len(rows), -1)
        return flat if self.columns is None else flat[:, list(self.columns)]


class ArraySource:
    """Arrays of one length, side by side: features, then labels. See `feedline.convert.protocol.Source`.

    Args:
        kind: `"npy"` or `"npz"`.
        path: the file.
        arrays: where they lie.
        features, labels: the columns.
    """

    def __init__(
        self,
        kind: str,
        path: str,
        arrays: Sequence[StoredArray],
        features: Sequence[Piece],
        labels: Sequence[Piece],
    ) -> None:
        self.kind = kind
        self.path = path
        self.arrays = tuple(arrays)
        self.pieces = (*features, *labels)
        self._packed: dict[int, PackedReader] = {}
        self.n = arrays[0].shape[0] if arrays else 0
        self.d, self.l = (sum(map(self._width, part)) for part in (features, labels))

    def _width(self, piece: Piece) -> int:
        # An empty array has the columns that its rows would have.
        array = self.arrays[piece.array]
        return int(piece.of(np.empty((1, *array.row_shape), array.dtype)).shape[1])

    def identity(self) -> dict[str, Any]:
        """Return the file's stamp and the columns."""
        return {
            "kind": self.kind,
            "file": stamp_of(self.path),
            "pieces": [repr(piece) for piece in self.pieces],
        }

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`; raises an `OptionError` if the file has become shorter."""
        widest = max([8 * (self.d + self.l), *(array.row_bytes for array in self.arrays)])
        rows = max(1, min(BLOCK_BYTES // max(1, widest), stop - start))
        readers = [self._reader_of(number, start, rows) for number in range(len(self.arrays))]
        for first in range(start, stop, rows):
            count = min(rows, stop - first)
            parts = [reader.read(first, count) for reader in readers]
            yield [(self.arrays[p.array].name, p.of(parts[p.array])) for p in self.pieces]
        self._packed.update((i, r) for i, r in enumerate(readers) if isinstance(r, PackedReader))

    def _reader_of(self, number: int, start: int, rows: int) -> Any:
        array = self.arrays[number]
        if array.offset is None:
            # Whoever reads takes the reader out, so that nobody else moves it.
            kept = self._packed.pop(number, None)
            return kept if kept is not None and kept.next_row <= start else PackedReader(array)
        if array.fortran and len(array.shape) > 1:
            return MappedReader(array, array.offset)
        return PositionalReader(array, array.offset, rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": {}}


def open_npy(path: str, labels: Sequence[str] | None, columns: Sequence[str] | None) -> ArraySource:
    """Open an `.npy` file; columns go by their numbers, `"0"` and on, or by the names of a structured array's fields.

    Raises:
        OSError: it can't be opened.
        OptionError: it is no `.npy` file, holds no numbers, or has no such columns.
    """
    with open(path, "rb") as file:
        shape, fortran, dtype = read_header(file, path)
        offset = file.tell()
        size = file.seek(0, 2)
    array = StoredArray("x", path, shape, dtype, fortran, offset)
    _check_array(array, repr(path))
    if size < offset + shape[0] * array.row_bytes:
        raise cut_short(array)
    if dtype.names is not None:
        names = list(dtype.names)
        pieces = [Piece(0, field=name) for name in names]
        features, chosen = choose(repr(path), names, labels, columns)
        for place in (*features, *chosen):
            check_type(f"the field {names[place]!r} of {path!r}", dtype[place].base)
        return ArraySource("npy", path, [array], [pieces[i] for i in features], [pieces[i] for i in chosen])
    if not labels and columns is None:
        return ArraySource("npy", path, [array], [Piece(0)], [])
    width = array.row_bytes // dtype.itemsize
    features, chosen = choose(repr(path), [str(number) for number in range(width)], labels, columns)
    parts = [[Piece(0, columns=tuple(part))] if part else [] for part in (features, chosen)]
    return ArraySource("npy", path, [array], *parts)


def open_npz(path: str, labels: Sequence[str] | None, columns: Sequence[str] | None) -> ArraySource:
    """Open an `.npz` file; an array named `y` is the label unless `labels` names others, all others are features.

    Raises:
        OSError: it can't be opened.
        OptionError: it is no `.npz` file, holds no numbers or no such arrays, or arrays of unequal lengths.
    """
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as raw:
            arrays = [
                _member(archive, raw, info, path)
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            ]
    except zipfile.BadZipFile as error:
        raise OptionError(f"{path!r} is no .npz file: {error}") from None
    if not arrays:
        raise OptionError(f"{path!r} has no arrays in it")
    names = [array.name for array in arrays]
    if labels is None:
        labels = ["y"] if "y" in names and names != ["y"] else []
    features, chosen = choose(repr(path), names, labels, columns)
    used = [arrays[place] for place in (*features, *chosen)]
    for array in used:
        _check_array(array, f"{array.name!r} of {path!r}")
        check_type(f"{array.name!r} of {path!r}", array.dtype)
        if array.offset is None and array.fortran and len(array.shape) > 1:
            raise OptionError(
                f"{array.name!r} of {path!r} is compressed and in Fortran order, so its rows can't be read one after the "
                f"other: save it with np.ascontiguousarray"
            )
    lengths = {array.name: array.shape[0] for array in used}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {count}" for name, count in lengths.items())
        raise OptionError(f"the arrays of {path!r} have unequal lengths: {told}")
    pieces = [Piece(place) for place in range(len(used))]
    return ArraySource("npz", path, used, pieces[: len(features)], pieces[len(features) :])


def _member(archive: zipfile.ZipFile, raw: IO[bytes], info: zipfile.ZipInfo, path: str) -> StoredArray:
    with archive.open(info) as stream:
        shape, fortran, dtype = read_header(stream, path)
        header_bytes = stream.tell()
    offset = None
    if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
        # Name and extra field before the data may be others than those of the archive's directory.
        raw.seek(info.header_offset)
        name_bytes, extra_bytes = _LOCAL_HEADER.unpack(raw.read(_LOCAL_HEADER.size))
        offset = info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes + header_bytes
    name = info.filename.removesuffix(".npy")
    return StoredArray(name, path, shape, dtype, fortran, offset, info.filename)


def _check_array(array: StoredArray, what: str) -> None:
    if not array.shape:
        raise OptionError(f"{what} is a single value, not an array with rows along axis 0")
    if array.dtype.names is None or array.dtype.hasobject:
        check_type(what, array.dtype)
