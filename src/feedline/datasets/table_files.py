"""Parquet and Arrow files, seen as groups of rows that are read one by one (extra `tables`).

Note [threads and forks]
    Everything runs in the calling thread: pyarrow's own threads would compete with the loader's, and do not survive a
    fork. A file is open only while a group of it is read, so any number of files may belong to one dataset.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.datasets.protocol import Int64Array
from feedline.errors import MissingExtraError, OptionError

__all__ = ["TABLE_EXTENSIONS", "TableFile", "import_pyarrow", "open_table", "read_group"]

#: Endings of files that are likely to be tables; what a file is, its first bytes tell.
TABLE_EXTENSIONS = (".parquet", ".pq", ".arrow", ".feather", ".ipc")


@dataclass(frozen=True)
class TableFile:
    """A file of rows in groups.

    Attributes:
        path: the file, absolute.
        kind: `"parquet"` or `"arrow"`.
        group_rows: rows of each group (row group, or record batch), shape `(groups,)`.
        stamp: size and time of change (nanoseconds), when it was opened.
        schema: a `pyarrow.Schema`.
    """

    path: str
    kind: str
    group_rows: Int64Array
    stamp: tuple[int, int]
    schema: Any


def import_pyarrow() -> Any:
    """Return the module `pyarrow`.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("reading Parquet and Arrow files", "tables") from error
    return pyarrow


def open_table(path: str) -> TableFile:
    """Read what the file `path` tells of itself: its schema, and how many rows are in each group.

    Raises:
        OptionError: it is neither a Parquet nor an Arrow file, or is damaged.
        OSError: it can't be opened.
        MissingExtraError: pyarrow is not installed.
    """
    pyarrow = import_pyarrow()
    kind = _kind_of(path)
    try:
        with _opened(path) as file:
            stamp = _stamp(path)
            if kind == "parquet":
                from pyarrow import parquet

                source = parquet.ParquetFile(file, pre_buffer=False)
                rows = [source.metadata.row_group(k).num_rows for k in range(source.num_row_groups)]
                schema = source.schema_arrow
            else:
                reader = pyarrow.ipc.open_file(file, options=_first_column_only(pyarrow))
                rows = [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
                with _opened(path) as again:
                    schema = pyarrow.ipc.open_file(again).schema
    except pyarrow.ArrowException as error:
        raise _damaged(path, kind, error) from error
    # What writers put beside the columns may be large, and is of no use here.
    return TableFile(path, kind, np.array(rows, np.int64), stamp, schema.remove_metadata())


def read_group(table: TableFile, number: int, columns: Sequence[str]) -> Any:
    """Return the chosen columns of one group, a `pyarrow.Table`.

    Raises:
        ValueError: the file has changed since it was opened.
        OptionError: it is damaged.
        OSError: it can't be read.
    """
    pyarrow = import_pyarrow()
    if _stamp(table.path) != table.stamp:
        raise ValueError(
            f"{table.path!r} was written to, or replaced, since the dataset was made; make a new one"
        )
    try:
        with _opened(table.path) as file:
            if table.kind == "parquet":
                from pyarrow import parquet

                # No buffering ahead: it is done by threads.
                source = parquet.ParquetFile(file, pre_buffer=False)
                return source.read_row_group(number, list(columns), use_threads=False).select(list(columns))
            places = [table.schema.get_field_index(name) for name in columns]
            options = pyarrow.ipc.IpcReadOptions(use_threads=False, included_fields=places)
            batch = pyarrow.ipc.open_file(file, options=options).get_batch(number)
            return pyarrow.Table.from_batches([batch]).select(list(columns))
    except pyarrow.ArrowException as error:
        raise _damaged(table.path, table.kind, error) from error


def _first_column_only(pyarrow: Any) -> Any:
    # Only the number of rows is wanted, which is in no column; but an empty list would mean all of them.
    return pyarrow.ipc.IpcReadOptions(use_threads=False, included_fields=[0])


def _opened(path: str) -> Any:
    # As bytes: a name may be no valid text.
    return import_pyarrow().OSFile(os.fsencode(path))


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _kind_of(path: str) -> str:
    with open(path, "rb") as file:
        head = file.read(6)
    if head[:4] == b"PAR1":
        return "parquet"
    if head == b"ARROW1":
        return "arrow"
    if head[:4] == b"FEA1":
        raise OptionError(
            f"{path!r} is a Feather file of version 1, which pyarrow reads no more: save it in version 2"
        )
    more = ""
    if head[:4] == b"\xff\xff\xff\xff":
        more = "; an Arrow stream has no random access, write it as an Arrow file (pyarrow.ipc.new_file)"
    raise OptionError(f"{path!r} is neither a Parquet nor an Arrow file: it begins with {head!r}{more}")


def _damaged(path: str, kind: str, error: Exception) -> OptionError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return OptionError(
        f"{path!r} begins as {'a Parquet' if kind == 'parquet' else 'an Arrow'} file, but can't be read: {reason}"
    )
