"""Rows of Parquet and Arrow files, read a group at a time: `TableDataset` (extra `tables`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.datasets.arrays import RowSpec
from feedline.datasets.bounded_cache import BoundedCache
from feedline.datasets.indexing import check_index, check_indices, runs_by_part
from feedline.datasets.kind import Named
from feedline.datasets.protocol import Allocate, Int64Array
from feedline.datasets.table_columns import Column, decode_column, row_spec_of
from feedline.datasets.table_files import TableFile, open_table, read_group
from feedline.errors import OptionError
from feedline.ndf.positional import absolute_path

__all__ = ["TableDataset"]

Array: TypeAlias = npt.NDArray[Any]
_Group: TypeAlias = dict[str, Column]


class TableDataset(Named):
    """The rows of Parquet or Arrow (Feather) files, one after the other; an item is a dict of the chosen columns.

    Args:
        paths: a file, or a list of files with the same chosen columns. What a file is, its first bytes tell.
        columns: names of the columns, in the order that items have; `None` for all.
        fill_nulls: values for missing ones, by column. A missing value (null) of a column that is not named here is an
            error of its item, never a number.
        cache_bytes: decoded groups that are kept, those used last; one at least.

    A file is read a *group* at a time: a row group of Parquet, a record batch of Arrow. Rows in any order are quick
    where the groups that a batch touches fit into `cache_bytes`, and slow where each row decodes a group of its own: for
    shuffled training on data larger than that, convert it once (`feedline convert`). The kinds of values are told in
    `feedline.datasets.table_columns`. Where all columns are numbers, times or lists of fixed size of them, batches
    are gathered by `take`.

    Attributes:
        paths: the files, absolute.
        columns: names of the columns.

    Raises:
        OptionError: a file is neither Parquet nor Arrow, or has no such column, or one of another type than the first
            file's; a bad option.
        TypeError: an option of a wrong type.
        OSError: a file can't be opened.
        MissingExtraError: pyarrow is not installed.
        ValueError: from an item: a value is missing, or the file has changed since the dataset was made.

    Determinism: an item depends on its index and the files alone.
    Concurrency: any number of threads and processes may read. It pickles as paths and sizes, without what is cached,
    and works in the child after a fork. No file stays open.

    >>> import pyarrow, pyarrow.parquet, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pyarrow.table({"age": [31, 45], "name": ["Ada", "Alan"]})
    ...     pyarrow.parquet.write_table(table, f"{folder}/people.parquet")
    ...     TableDataset(f"{folder}/people.parquet")[1]
    {'age': np.int64(45), 'name': 'Alan'}
    """

    def __init__(
        self,
        paths: Any,
        columns: Iterable[str] | None = None,
        *,
        fill_nulls: Mapping[str, Any] | None = None,
        cache_bytes: int = 256 * 2**20,
    ) -> None:
        self._files = [open_table(path) for path in _check_paths(paths)]
        first = self._files[0]
        self.columns = _check_columns(columns, first)
        self._types = _check_types(self.columns, self._files)
        self._fill = _check_fill(fill_nulls, self.columns)
        if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int):
            raise TypeError(f"cache_bytes must be an int, not {cache_bytes!r}")
        if cache_bytes < 0:
            raise OptionError(f"cache_bytes must be 0 or more, not {cache_bytes}")
        self.cache_bytes = cache_bytes
        self._plan()

    def _plan(self) -> None:
        # What follows from the files; made anew where the dataset is unpickled.
        self._stops: Int64Array = np.cumsum(np.concatenate([file.group_rows for file in self._files]))
        self._file_stops: Int64Array = np.cumsum([len(file.group_rows) for file in self._files])
        specs = [row_spec_of(kind) for kind in self._types]
        known = [spec for spec in specs if spec is not None]
        self._specs = tuple(known) if len(known) == len(specs) else None
        self._groups = self._new_cache()

    def _new_cache(self) -> BoundedCache[int, _Group]:
        return BoundedCache(self.cache_bytes, _size_of)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, absolute."""
        return tuple(file.path for file in self._files)

    @property
    def row_names(self) -> tuple[str, ...]:
        """Names of the columns, by which batches are dicts."""
        return self.columns

    @property
    def row_specs(self) -> tuple[RowSpec, ...] | None:
        """Shape of a row and dtype, for each column; `None` where there is no `take`."""
        return self._specs

    def __len__(self) -> int:
        return int(self._stops[-1]) if len(self._stops) else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the item `index`: NumPy scalars, arrays, texts and so on, by the column's name."""
        place = check_index(index, len(self), "TableDataset")
        number = int(np.searchsorted(self._stops, place, side="right"))
        row = place - self._start(number)
        return {name: column.item(row) for name, column in self._group(number).items()}

    def __getitems__(self, indices: Sequence[int] | Int64Array) -> list[dict[str, Any]]:
        """Return the items `indices`, in order; each group is decoded once."""
        places = check_indices(indices, len(self), "TableDataset")
        items: list[Any] = [None] * len(places)
        for group, rows, spots in self._by_group(places):
            for row, spot in zip(rows.tolist(), spots.tolist()):
                items[spot] = {name: column.item(row) for name, column in group.items()}
        return items

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    @property
    def take(self) -> Callable[[Int64Array, Allocate], dict[str, Array]] | None:
        """`take(indices, allocate)`: the batch as a dict of arrays of shapes `(b,)` and `(b, k)`.

        `None` where a column is neither a number, nor a time, nor a list of fixed size of these.
        """
        return self._take if self._specs is not None else None

    @property
    def take_into(self) -> Callable[[Int64Array, Sequence[Array]], None] | None:
        """`take_into(indices, outs)`: gather into the caller's arrays, one for each column; `None` where `take` is."""
        return self._take_into if self._specs is not None else None

    def _take(self, indices: Int64Array, allocate: Allocate) -> dict[str, Array]:
        places = check_indices(indices, len(self), "TableDataset")
        outs = [allocate((len(places), *spec.shape), spec.dtype) for spec in self._specs or ()]
        self._take_into(places, outs)
        return dict(zip(self.columns, outs))

    def _take_into(self, indices: Int64Array, outs: Sequence[Array]) -> None:
        places = check_indices(indices, len(self), "TableDataset")
        for group, rows, spots in self._by_group(places):
            for column, out in zip(group.values(), outs):
                out[spots] = column.values[rows]  # type: ignore[index]

    def _by_group(self, places: Int64Array) -> Iterator[tuple[_Group, Int64Array, Int64Array]]:
        """Yield (decoded group, rows in it, their places in the batch) for every group that occurs."""
        if len(places) == 0:
            return
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        for number, start, stop in runs_by_part(self._stops, ordered):
            yield self._group(number), ordered[start:stop] - self._start(number), order[start:stop]

    def _start(self, number: int) -> int:
        return int(self._stops[number - 1]) if number else 0

    def _group(self, number: int) -> _Group:
        if self._groups.is_foreign():
            # See Note [cache and fork] in `feedline.datasets.bounded_cache`.
            self._groups = self._new_cache()
        return self._groups.get(number, self._decode)

    def _decode(self, number: int) -> _Group:
        place = int(np.searchsorted(self._file_stops, number, side="right"))
        file = self._files[place]
        first_group = int(self._file_stops[place - 1]) if place else 0
        table = read_group(file, number - first_group, self.columns)
        first_row = self._start(number) - self._start(first_group)
        return {
            name: decode_column(
                table.column(name), f"column {name!r} of {file.path!r}", first_row, self._fill.get(name)
            )
            for name in self.columns
        }

    def __getstate__(self) -> dict[str, Any]:
        names = ("_files", "columns", "_types", "_fill", "cache_bytes")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plan()

    def __repr__(self) -> str:
        files = repr(self.paths[0]) if len(self._files) == 1 else f"{len(self._files)} files"
        shown = ", ".join(self.columns[:6]) + (", ..." if len(self.columns) > 6 else "")
        return f"TableDataset({files}, {len(self)} rows of {shown})"


def _size_of(group: _Group) -> int:
    return sum(column.size_bytes for column in group.values())


def _check_paths(paths: Any) -> list[str]:
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"paths must be a path or a list of paths, not {type(paths).__name__}")
    if not given:
        raise OptionError("TableDataset needs at least one file, not an empty list")
    return [absolute_path(path) for path in given]


def _check_columns(columns: Any, first: TableFile) -> tuple[str, ...]:
    there = list(first.schema.names)
    if columns is None:
        chosen = tuple(there)
    elif isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise TypeError(f"columns must be a list of names such as ['age'], not {columns!r}")
    else:
        chosen = tuple(columns)
    if not chosen:
        raise OptionError(f"there must be one column at least; {first.path!r} has {there}")
    for name in chosen:
        if there.count(name) != 1 or chosen.count(name) != 1:
            problem = "no column" if name not in there else "more than one column, or you ask twice for one,"
            raise OptionError(f"{first.path!r} has {problem} {name!r}; it has {', '.join(map(repr, there))}")
    return chosen


def _check_types(columns: tuple[str, ...], files: list[TableFile]) -> list[Any]:
    kinds = [files[0].schema.field(name).type for name in columns]
    for file in files[1:]:
        for name, kind in zip(columns, kinds):
            if file.schema.names.count(name) != 1:
                raise OptionError(f"{file.path!r} has no single column {name!r}, as {files[0].path!r} has")
            other = file.schema.field(name).type
            if other != kind:
                raise OptionError(
                    f"column {name!r} is {other} in {file.path!r} and {kind} in {files[0].path!r}: it must be the same"
                )
    return kinds


def _check_fill(fill_nulls: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    if fill_nulls is None:
        return {}
    if not isinstance(fill_nulls, Mapping):
        raise TypeError(f"fill_nulls must be a dict of values by column, not {type(fill_nulls).__name__}")
    for name, value in fill_nulls.items():
        if name not in columns:
            raise OptionError(
                f"fill_nulls names {name!r}, which is no chosen column; these are {list(columns)}"
            )
        if value is None:
            raise OptionError(f"fill_nulls[{name!r}] is None, which fills nothing")
    return dict(fill_nulls)
