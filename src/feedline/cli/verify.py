"""`feedline verify FILE`: is this `.ndf` file whole, or this folder of shards, and what is in it that training would trip
over?"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from feedline.cli.rows import RowFile
from feedline.cli.shards import ShardRows, open_rows
from feedline.cli.wording import count, printable, size
from feedline.errors import NdfError

__all__ = ["command"]

_MAX_NAMED = 5


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An .ndf file, or a folder of shards.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Read an .ndf file to its end: header, size, every row, counts of NaN and infinities, and a SHA-256 checksum.

    Of a folder of shards, every shard is read, and must be what the index tells, checksum and all.
    """
    source = open_rows(file)
    with _bar(source.header.n) as advance:
        found = _verify_shards(source, advance) if isinstance(source, ShardRows) else _read(source, advance)
    header = source.header
    if as_json:
        facts = {"path": os.fsdecode(file), "n": header.n, "d": header.d, "l": header.l}
        facts |= {"size_bytes": source.size_bytes, "nan": found.nan, "infinite": found.infinite}
        facts |= {"shards": source.num_shards} if isinstance(source, ShardRows) else {"sha256": found.sha256}
        print(json.dumps(facts, indent=2))
        return
    if isinstance(source, ShardRows):
        print(f"{printable(file)}: {count(source.num_shards, 'whole shard')}, as the index tells")
    else:
        print(f"{printable(file)}: a whole .ndf file")
    print(
        f"  rows      {header.n:,}, each {count(header.d, 'feature')} and {count(header.l, 'label')} (float64)"
    )
    promised = "index tells" if isinstance(source, ShardRows) else "header promises"
    print(f"  size      {source.size_bytes:,} bytes ({size(source.size_bytes)}), as the {promised}")
    print(f"  NaN       {found.nan:,}")
    print(f"  infinite  {found.infinite:,}")
    print(
        f"  sha256    {'of every shard as in the index' if isinstance(source, ShardRows) else found.sha256}"
    )


@dataclass
class _Found:
    """What was found in rows that were read to their end; the checksum is a single file's."""

    nan: int = 0
    infinite: int = 0
    sha256: str = ""


def _read(source: RowFile, advance: Callable[[int], None]) -> _Found:
    found = _Found()
    checksum = hashlib.sha256(source.head)
    for block in source.blocks(0, source.header.n):
        checksum.update(block.data)
        found.nan += int(np.isnan(block).sum())
        found.infinite += int(np.isinf(block).sum())
        advance(len(block))
    found.sha256 = checksum.hexdigest()
    return found


def _verify_shards(source: ShardRows, advance: Callable[[int], None]) -> _Found:
    """Read every shard; raise the first error, with the names of the other shards that have one."""
    total = _Found()
    failed: list[tuple[str, NdfError | OSError]] = []
    for number, shard in enumerate(source.index.shards):
        try:
            found = _read(source.shard(number), advance)
            source.check_checksum(number, found.sha256)
        except (NdfError, OSError) as error:
            failed.append((shard.file, error))
        else:
            total.nan += found.nan
            total.infinite += found.infinite
    if failed:
        first = failed[0][1]
        names = [name for name, _ in failed[1:]]
        if names:
            more = "" if len(names) <= _MAX_NAMED else f" and {len(names) - _MAX_NAMED} more"
            first.add_note(
                f"damaged, too: {', '.join(names[:_MAX_NAMED])}{more}, of {count(source.num_shards, 'shard')}"
            )
        raise first
    return total


@contextmanager
def _bar(rows: int) -> Iterator[Callable[[int], None]]:
    """Give a function that counts rows that were read, under a progress bar where somebody can see it."""
    if not os.isatty(2):
        yield lambda count: None
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar: Any = progress.add_task("reading", total=rows)
        yield lambda count: progress.advance(bar, count)
