"""Comma-separated numbers as a source of rows.

Note [lines]
    A row is a line that is not blank. The file is read twice: first for its line breaks alone, which is quick, and tells
    how many rows there are and where every 4,096th begins; then, by whoever writes a part, from there on. So a part of
    a file of any size is found at once, in bounded memory.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

import numpy as np

from feedline.convert.columns import choose
from feedline.convert.protocol import BLOCK_BYTES, Array, Block, stamp_of
from feedline.errors import OptionError

__all__ = ["CsvSource"]

#: Rows between two places that are remembered.
STRIDE = 4096
_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 2**20
#: Up to here every int has a float64 of its own.
_EXACT = 2**53
#: The largest float64 has so many digits before its point.
_MOST_DIGITS = 309


class CsvSource:
    """The rows of a `.csv` file. See `feedline.convert.protocol.Source`.

    Args:
        path: the file, in UTF-8 or any encoding that has ASCII in it; lines end with LF or CR LF.
        labels, columns: names of columns; of a file without a header, their numbers, `"0"` and on.

    The first line that is not blank is a header if any of its fields is no number. Fields are separated by commas and
    may be quoted; a number is what Python's `float` takes, but without underscores (`nan` and `inf` included). One that
    is written as an int must be what float64 holds exactly.

    Raises:
        OSError: the file can't be opened.
        OptionError: it has no rows, or no such columns. When rows are read: lines of unequal lengths, fields that
            are no numbers, and ints that float64 can't hold exactly, with line and column.
    """

    def __init__(self, path: str, labels: Sequence[str] | None, columns: Sequence[str] | None) -> None:
        self.path = path
        with open(path, "rb", buffering=_BUFFER_BYTES) as file:
            names, self._first_line = self._read_head(file)
            self.names = names
            self.n, self._places = _scan(file, self._first_line)
        self.features, self.labels = choose(repr(path), names, labels, columns)
        self.d, self.l = len(self.features), len(self.labels)

    def _read_head(self, file: IO[bytes]) -> tuple[list[str], int]:
        """Return the columns' names and the number of the line that `file` stands at: the first with a row."""
        number = 0
        while line := file.readline():
            number += 1
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.isspace() or not line:
                continue
            fields = self._fields(_text(line), number)
            if all(map(_is_number, fields)):
                # The first row; a byte order mark before it is passed over.
                file.seek(-len(line), 1)
                return [str(place) for place in range(len(fields))], number
            return fields, number + 1
        raise OptionError(f"{self.path!r} is empty: it has not a single line")

    def identity(self) -> dict[str, Any]:
        """Return the file's stamp and the columns."""
        return {"kind": "csv", "file": stamp_of(self.path), "columns": [self.features, self.labels]}

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`."""
        rows = max(1, min(STRIDE, BLOCK_BYTES // (16 * len(self.names))))
        with open(self.path, "rb", buffering=_BUFFER_BYTES) as file:
            lines = self._lines_from(file, start)
            for first in range(start, stop, rows):
                count = min(rows, stop - first)
                numbered = list(islice(lines, count))
                if len(numbered) < count:
                    raise OptionError(f"{self.path!r} ends before row {stop} of {self.n}: it was cut")
                values = self._parse(numbered)
                yield [("features", values[:, : self.d]), ("labels", values[:, self.d :])]

    def _lines_from(self, file: IO[bytes], row: int) -> Iterator[tuple[int, str]]:
        """Yield (number of the line, line) from row `row` on."""
        offset, line_number = self._places[row // STRIDE].tolist()
        file.seek(offset)
        skip = row % STRIDE
        for number, line in enumerate(file, line_number):
            if not line.isspace():
                if skip:
                    skip -= 1
                else:
                    yield number, _text(line)

    def _parse(self, numbered: list[tuple[int, str]]) -> Array:
        """Return the chosen columns of some lines, shape `(k, d + l)`, float64."""
        lines = [line for _, line in numbered]
        chosen = [*self.features, *self.labels]
        width = len(self.names)
        whole = sum(line.count(",") == width - 1 for line in lines) == len(lines)
        if whole and not any('"' in line for line in lines):
            try:
                values = np.loadtxt(lines, np.float64, delimiter=",", comments=None, usecols=chosen, ndmin=2)
            except ValueError:
                # Which line and which column it is, the slow way tells.
                pass
            else:
                if values.shape == (len(lines), len(chosen)):
                    self._check_exact(values, numbered, chosen)
                    return values
        return self._parse_line_by_line(numbered, chosen)

    def _parse_line_by_line(self, numbered: list[tuple[int, str]], chosen: list[int]) -> Array:
        values = np.empty((len(numbered), len(chosen)))
        for row, (number, line) in enumerate(numbered):
            fields = self._fields(line, number)
            if len(fields) != len(self.names):
                raise OptionError(
                    f"line {number} of {self.path!r} has {len(fields)} values, where {len(self.names)} are expected"
                )
            for place, column in enumerate(chosen):
                if not _is_number(fields[column]):
                    raise OptionError(self._no_number(fields[column], number, column))
                values[row, place] = float(fields[column])
        self._check_exact(values, numbered, chosen)
        return values

    def _check_exact(self, values: Array, numbered: list[tuple[int, str]], chosen: list[int]) -> None:
        """Raise an error for the first int that was rounded; below 2**53 none is, so only large values are looked at."""
        seen, fields = -1, [""]
        for row, place in np.argwhere(np.abs(values) >= _EXACT).tolist():
            number, line = numbered[row]
            column = chosen[place]
            if row != seen:
                seen, fields = row, self._fields(line, number)
            field = fields[column]
            if not _is_exact(field, float(values[row, place])):
                raise OptionError(
                    f"{self._where(number, column)} is {_shown(field)}, which float64 can't hold exactly (ints are exact "
                    f"up to 2**53); leave the column out with --columns, or write it as a float, such as 1e16, if it may "
                    f"be rounded"
                )

    def _fields(self, line: str, number: int) -> list[str]:
        try:
            return [field.strip() for field in next(csv.reader([line], strict=True, skipinitialspace=True))]
        except csv.Error as error:
            raise OptionError(f"line {number} of {self.path!r} can't be read ({error})") from None

    def _no_number(self, field: str, number: int, column: int) -> str:
        where = self._where(number, column)
        if not field:
            return f"{where} is empty: rows hold numbers; write nan where there is none"
        return f"{where} is {_shown(field)}, which is no number; leave the column out with --columns, or encode it"

    def _where(self, number: int, column: int) -> str:
        return f"column {self.names[column]!r} of line {number} of {self.path!r}"


def _scan(file: IO[bytes], line_number: int) -> tuple[int, Array]:
    """Return the number of rows from here on, and (offset, line number) of every `STRIDE`th, shape `(k, 2)`."""
    offset = file.tell()
    places: list[tuple[int, int]] = []
    rows = 0
    for number, line in enumerate(file, line_number):
        if not line.isspace():
            if rows % STRIDE == 0:
                places.append((offset, number))
            rows += 1
        offset += len(line)
    return rows, np.array(places, np.int64).reshape(-1, 2)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n")


def _shown(field: str) -> str:
    return repr(field) if len(field) <= 40 else f"{field[:37]!r}..."


def _is_exact(field: str, value: float) -> bool:
    """Tell whether `field` is `value`, if it is written as an int; what has a point or an exponent is a float."""
    digits = field[1:] if field[:1] in ("+", "-") else field
    if not digits.isdecimal():
        return True
    digits = digits.lstrip("0")
    # No float64 has more digits, and Python itself refuses to convert thousands of them.
    return math.isfinite(value) and len(digits) <= _MOST_DIGITS and abs(int(value)) == int(digits)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field
