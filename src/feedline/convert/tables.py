"""Parquet and Arrow files as a source of rows (extra `tables`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from feedline.convert.columns import choose
from feedline.convert.protocol import BLOCK_BYTES, Array, Block, check_type, stamp_of
from feedline.datasets.bounded_cache import BoundedCache
from feedline.datasets.table_columns import decode_column, row_spec_of
from feedline.datasets.table_files import open_table, read_group
from feedline.errors import OptionError

__all__ = ["TableSource"]


class TableSource:
    """The chosen columns of a table, of numbers or of lists of numbers. See `feedline.convert.protocol.Source`.

    Args:
        path: the file.
        labels, columns: names of columns.

    A group of rows is in memory at a time. Lists of no fixed size must have the length of the first row's.

    Raises:
        OptionError: no such column; one that holds no numbers; from rows: missing values, lists of unequal lengths.
        OSError: the file can't be opened.
        MissingExtraError: pyarrow is not installed.
    """

    def __init__(self, path: str, labels: Sequence[str] | None, columns: Sequence[str] | None) -> None:
        self._table = open_table(path)
        names = list(self._table.schema.names)
        features, chosen = choose(repr(path), names, labels, columns)
        self._names = [names[place] for place in (*features, *chosen)]
        self._stops = np.cumsum(self._table.group_rows)
        self.n = int(self._table.group_rows.sum())
        self._groups: BoundedCache[int, list[Array]] | None = None
        for name in self._names:
            self._check_kind(name)
        widths = [part.shape[1] for part in self._group(self._first_group())] if self.n else [0] * len(names)
        self._widths = widths
        self.d, self.l = sum(widths[: len(features)]), sum(widths[len(features) :])

    def _first_group(self) -> int:
        return int(np.flatnonzero(self._table.group_rows)[0])

    def _check_kind(self, name: str) -> None:
        kind = self._table.schema.field(name).type
        what = f"column {name!r} of {self._table.path!r}"
        spec = row_spec_of(kind)
        if spec is not None:
            check_type(what, spec.dtype)
        elif row_spec_of(getattr(kind, "value_type", kind)) is None:
            raise OptionError(
                f"{what} holds {kind}, which is no number; leave it out (--columns names those to take), or encode it"
            )

    def identity(self) -> dict[str, Any]:
        """Return the file's stamp and the columns."""
        return {"kind": self._table.kind, "file": stamp_of(self._table.path), "columns": self._names}

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`."""
        rows = max(1, BLOCK_BYTES // (8 * (self.d + self.l)))
        at = start
        while at < stop:
            number = int(np.searchsorted(self._stops, at, side="right"))
            first = int(self._stops[number] - self._table.group_rows[number])
            end = min(at + rows, stop, int(self._stops[number]))
            parts = self._group(number)
            self._check_widths(parts, first)
            yield [
                (f"column {name!r}", part[at - first : end - first]) for name, part in zip(self._names, parts)
            ]
            at = end

    def _check_widths(self, parts: list[Array], first: int) -> None:
        for name, part, width in zip(self._names, parts, self._widths):
            if part.shape[1] != width:
                raise OptionError(
                    f"column {name!r} of {self._table.path!r} has lists of {part.shape[1]} values from row {first} on, "
                    f"the first have {width}"
                )

    def _group(self, number: int) -> list[Array]:
        if self._groups is None:
            self._groups = BoundedCache(1)
        return self._groups.get(number, self._decode)

    def _decode(self, number: int) -> list[Array]:
        first = int(self._stops[number] - self._table.group_rows[number])
        try:
            table = read_group(self._table, number, self._names)
            return [self._column(table, name, first) for name in self._names]
        except ValueError as error:
            raise OptionError(str(error)) from error

    def _column(self, table: Any, name: str, first: int) -> Array:
        where = f"column {name!r} of {self._table.path!r}"
        column = decode_column(table.column(name), where, first)
        if column.values is not None:
            return column.values.reshape(table.num_rows, -1)
        rows = [column.item(row) for row in range(table.num_rows)]
        lengths = {len(row) for row in rows}
        if len(lengths) > 1:
            raise OptionError(f"{where} has lists of unequal lengths ({min(lengths)} to {max(lengths)})")
        return np.stack(rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_groups": None}
