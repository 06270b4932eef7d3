"""`feedline info FILE`: what is in an `.ndf` file or a folder of shards, without reading more of it than needed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from feedline.cli.rows import ColumnSummary, RowFile, Summary
from feedline.cli.shards import ShardRows, open_rows
from feedline.cli.wording import count, printable, size

__all__ = ["command"]

#: Without `--all`, the columns are summed up from this many bytes of rows at most, in stretches all over the file.
SAMPLE_BYTES = 64 * 2**20
STRETCHES = 64


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An .ndf file, or a folder of shards.")],
    rows: Annotated[int, typer.Option(min=0, help="How many of the first rows to show.")] = 3,
    columns: Annotated[int, typer.Option(min=1, help="How many columns to show.")] = 8,
    every_row: Annotated[
        bool, typer.Option("--all", help="Sum up every row, not a sample of a large file.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON, all columns included.")
    ] = False,
) -> None:
    """Show the sizes of an .ndf file or of shards, the first rows, and minimum, maximum, mean and NaN of each column."""
    source = open_rows(file)
    summary = Summary(source.width)
    for start, stop in _stretches(source, every_row):
        for block in source.blocks(start, stop):
            summary.add(block)
    first = [row for block in source.blocks(0, min(rows, source.header.n)) for row in block.tolist()]
    if as_json:
        print(json.dumps(_as_dict(file, source, summary, first), indent=2, allow_nan=False))
    else:
        _show(Console(highlight=False), file, source, summary, first, columns)


def _stretches(source: RowFile | ShardRows, every_row: bool) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, disjoint and in order: the whole file, or a sample spread evenly over a large one."""
    n = source.header.n
    rows = max(1, SAMPLE_BYTES // source.header.row_bytes)
    if every_row or n <= rows:
        yield 0, n
        return
    number = min(STRETCHES, rows)
    for k in range(number):
        start = k * n // number
        yield start, start + rows // number


def _names(source: RowFile | ShardRows) -> list[str]:
    return [f"x{i}" for i in range(source.header.d)] + [f"y{i}" for i in range(source.header.l)]


def _as_dict(
    file: str, source: RowFile | ShardRows, summary: Summary, first: list[list[float]]
) -> dict[str, Any]:
    header = source.header
    return {
        "path": os.fsdecode(file),
        "n": header.n,
        "d": header.d,
        "l": header.l,
        "size_bytes": source.size_bytes,
        **({"shards": source.num_shards} if isinstance(source, ShardRows) else {}),
        "rows_summed_up": summary.rows,
        "columns": [
            {
                "name": name,
                "min": _json_number(column.minimum),
                "max": _json_number(column.maximum),
                "mean": _json_number(column.mean),
                "nan": column.nan,
                "infinite": column.infinite,
            }
            for name, column in zip(_names(source), summary.columns())
        ],
        "first_rows": [[_json_number(value, text=True) for value in row] for row in first],
    }


def _json_number(value: float, text: bool = False) -> float | str | None:
    """JSON has no NaN and no infinity: a summary of nothing is null, a value in a row is its name."""
    if math.isfinite(value):
        return value
    return str(value) if text else None


def _show(
    console: Console,
    file: str,
    source: RowFile | ShardRows,
    summary: Summary,
    first: list[list[float]],
    columns: int,
) -> None:
    header = source.header
    files = f" in {count(source.num_shards, 'shard')}" if isinstance(source, ShardRows) else ""
    console.print(
        f"{printable(file)}: {count(header.n, 'row')} of {count(header.d, 'feature')} and "
        f"{count(header.l, 'label')}{files}, float64, {size(source.size_bytes)}",
        markup=False,
        soft_wrap=True,
    )
    if header.n == 0:
        return
    shown = _chosen(source.width, columns)
    names = _names(source)
    console.print(_column_table(names, summary.columns(), shown))
    if first:
        console.print(_row_table(names, first, shown))
    if len(shown) < source.width:
        console.print(
            f"{len(shown)} of {source.width:,} columns shown; --columns N shows more, --json has all"
        )
    if summary.rows < header.n:
        console.print(f"summed up from {summary.rows:,} of {header.n:,} rows; --all reads every row")


def _chosen(width: int, columns: int) -> list[int]:
    """The first columns and the last one, which is where labels are."""
    return list(range(width)) if width <= columns else [*range(columns - 1), width - 1]


def _column_table(names: list[str], columns: list[ColumnSummary], shown: list[int]) -> Table:
    table = Table("column", title="columns", title_justify="left")
    for title in ("min", "max", "mean", "NaN", "infinite"):
        table.add_column(title, justify="right")
    for i in shown:
        column = columns[i]
        facts = (f"{fact:.6g}" for fact in (column.minimum, column.maximum, column.mean))
        table.add_row(names[i], *facts, f"{column.nan:,}", f"{column.infinite:,}")
    return table


def _row_table(names: list[str], rows: list[list[float]], shown: list[int]) -> Table:
    table = Table("row", title="first rows", title_justify="left")
    for i in shown:
        table.add_column(names[i], justify="right")
    for number, row in enumerate(rows):
        table.add_row(str(number), *(f"{row[i]:.6g}" for i in shown))
    return table
