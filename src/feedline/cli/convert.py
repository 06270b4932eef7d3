"""`feedline convert SRC DST`: rows of any common kind of file to an `.ndf` file, or to a folder of shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from feedline.cli.wording import count, printable, size
from feedline.convert.conversion import Converted, RunJobs, convert
from feedline.convert.images import MODES
from feedline.convert.pool import run_jobs
from feedline.convert.sources import UnknownExtensionError
from feedline.ndf.shards import PART_SUFFIX

__all__ = ["command"]


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="An .npy, .npz, .csv, .parquet, .arrow or .ndf file, a folder of shards, a folder of images with a "
            "folder for each class, or MODULE:DATASET.",
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DST", help="A name that ends with .ndf, or that of a folder of shards to make."
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Columns (of an .npz: arrays) that are labels; of an .npz, 'y' is."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Columns that are features; by default all others.")
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, metavar="N", help="Make N shards.")] = None,
    rows_per_shard: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Make shards of N rows; by default of about 256 MiB."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes that write at once: 1, or with --ray as many as the cluster has CPUs.",
        ),
    ] = None,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Write in tasks of a Ray cluster, whose machines all see SRC and DST under these paths.",
        ),
    ] = False,
    image_size: Annotated[
        str | None, typer.Option("--size", metavar="HxW", help="Resize images to this height and width.")
    ] = None,
    mode: Annotated[str, typer.Option(metavar="MODE", help=f"Of images: {', '.join(MODES)}.")] = "RGB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at DST.")] = False,
) -> None:
    """Convert rows to an .ndf file or to shards; a run that was interrupted goes on where it stood."""
    if shards is not None and rows_per_shard is not None:
        raise typer.BadParameter("--shards and --rows-per-shard exclude each other: give one of them")
    if destination.lower().endswith(".ndf") and (shards or rows_per_shard):
        raise typer.BadParameter(
            f"{destination!r} is one file; shards go into a folder, whose name does not end with .ndf"
        )
    if mode not in MODES:
        raise typer.BadParameter(f"--mode must be one of {', '.join(MODES)}, not {mode!r}")
    run, most = _crew(ray)
    with _bar() as bar:
        try:
            made = convert(
                source,
                destination,
                labels=_names("--labels", labels),
                columns=_names("--columns", columns),
                num_shards=shards,
                rows_per_shard=rows_per_shard,
                workers=most if workers is None else workers,
                size=_size(image_size),
                mode=mode,
                overwrite=overwrite,
                on_start=bar.start,
                advance=bar.advance,
                run=run,
            )
        except UnknownExtensionError as error:
            raise typer.BadParameter(str(error)) from None
        except BaseException as error:
            if bar.has_started:
                error.add_note(
                    f"the same command goes on from what is finished ({destination + PART_SUFFIX})"
                )
            raise
    _tell(destination, made)


def _crew(ray: bool) -> tuple[RunJobs, int]:
    """Return what runs jobs, and how many of them at once unless somebody says so."""
    if not ray:
        return run_jobs, 1
    from feedline.ray import cluster_cpus
    from feedline.ray import run_jobs as run_on_cluster

    return run_on_cluster, cluster_cpus()


def _tell(destination: str, made: Converted) -> None:
    if made.was_stale:
        print("what an earlier run had begun is of no use: source or options are others by now")
    if made.rows_kept:
        print(f"{count(made.rows_kept, 'row')} kept from an earlier run, checked")
    files = f" in {count(made.num_files, 'shard')}" if os.path.isdir(made.path) else ""
    print(
        f"{printable(destination)}: {count(made.n, 'row')} of {count(made.d, 'feature')} and "
        f"{count(made.l, 'label')}{files}, {size(made.size_bytes)}"
    )


class _Bar:
    """The progress of the rows, shown where somebody can see it."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task: Any = None
        self.has_started = False

    def start(self, rows: int) -> None:
        self.has_started = True
        if self._progress is not None:
            self._task = self._progress.add_task("converting", total=rows)

    def advance(self, rows: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, rows)


@contextmanager
def _bar() -> Iterator[_Bar]:
    if not os.isatty(2):
        yield _Bar(None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)


def _names(option: str, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"{option} must be names with commas between them, not {text!r}")
    return names


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) == 2 and all(part.isdecimal() and 1 <= int(part) <= 16384 for part in parts):
        return int(parts[0]), int(parts[1])
    raise typer.BadParameter(f"--size must be HEIGHTxWIDTH in pixels, such as 64x64, not {text!r}")
