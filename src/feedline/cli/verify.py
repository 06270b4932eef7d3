"""`feedline verify FILE`: is this `.ndf` file whole, and what is in it that training would trip over?"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.progress import Progress

from feedline.cli.rows import RowFile
from feedline.cli.wording import count, printable, size

__all__ = ["command"]


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An .ndf file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Read an .ndf file to its end: header, size, every row, counts of NaN and infinities, and a SHA-256 checksum."""
    source = RowFile(file)
    header = source.header
    checksum = hashlib.sha256(source.head)
    nan = infinite = 0
    for block in _with_a_bar(source):
        checksum.update(block.data)
        nan += int(np.isnan(block).sum())
        infinite += int(np.isinf(block).sum())
    digest = checksum.hexdigest()
    if as_json:
        facts = {"path": os.fsdecode(file), "n": header.n, "d": header.d, "l": header.l}
        facts |= {"size_bytes": header.file_bytes, "nan": nan, "infinite": infinite, "sha256": digest}
        print(json.dumps(facts, indent=2))
        return
    print(f"{printable(file)}: a whole .ndf file")
    print(
        f"  rows      {header.n:,}, each {count(header.d, 'feature')} and {count(header.l, 'label')} (float64)"
    )
    print(f"  size      {header.file_bytes:,} bytes ({size(header.file_bytes)}), as the header promises")
    print(f"  NaN       {nan:,}")
    print(f"  infinite  {infinite:,}")
    print(f"  sha256    {digest}")


def _with_a_bar(source: RowFile) -> Iterator[npt.NDArray[np.float64]]:
    """Yield all blocks of rows, under a progress bar where somebody can see it."""
    blocks = source.blocks(0, source.header.n)
    if not os.isatty(2):
        yield from blocks
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("reading", total=source.header.n)
        for block in blocks:
            yield block
            progress.advance(bar, len(block))
