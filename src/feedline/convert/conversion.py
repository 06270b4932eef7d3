"""`convert`: from a source of rows to an `.ndf` file or to shards, resumable, whole or not at all."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from feedline.convert.columns import as_names
from feedline.convert.disk_errors import at_destination
from feedline.convert.plan import make_plan
from feedline.convert.pool import run_jobs
from feedline.convert.protocol import Source
from feedline.convert.sources import SourceOptions, open_source
from feedline.convert.streams import StreamSource, spooled
from feedline.convert.work import Job, Written
from feedline.convert.workplace import Workplace, check_destination
from feedline.errors import OptionError
from feedline.ndf.layout import NdfHeader
from feedline.ndf.positional import absolute_path
from feedline.ndf.reader import NdfReader
from feedline.ndf.shards import PART_SUFFIX

__all__ = ["Converted", "RunJobs", "convert"]


class RunJobs(Protocol):
    """How jobs are mapped over workers; `feedline.convert.pool.run_jobs` is one way."""

    def __call__(
        self, source: Source, jobs: Sequence[Job], workers: int, advance: Callable[[int], None] | None
    ) -> Iterator[Written]:
        """Run `write_job(source, job)` for all jobs, and yield what was written, in any order."""
        ...


@dataclass(frozen=True)
class Converted:
    """What a conversion has made.

    Attributes:
        path: the file or folder.
        n, d, l: rows, features and labels.
        num_files: `.ndf` files.
        size_bytes: of all of them.
        rows_kept: rows that an earlier run, which was interrupted, had written.
        was_stale: whether an earlier run's work was thrown away, since its source or its options were others.
    """

    path: str
    n: int
    d: int
    l: int  # noqa: E741 - the format's own name
    num_files: int
    size_bytes: int
    rows_kept: int
    was_stale: bool


def convert(
    source: Any,
    destination: Any,
    *,
    labels: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    num_shards: int | None = None,
    rows_per_shard: int | None = None,
    workers: int = 1,
    size: tuple[int, int] | None = None,
    mode: str = "RGB",
    overwrite: bool = False,
    on_start: Callable[[int], None] | None = None,
    advance: Callable[[int], None] | None = None,
    run: RunJobs = run_jobs,
) -> Converted:
    """Write the rows of a source to an `.ndf` file, or to a folder of shards, whole or not at all.

    Args:
        source: a path: an `.npy`, `.npz`, `.csv`, `.parquet` or Arrow file, an `.ndf` file or a folder of shards, a
            folder of images with a folder for each class; or the text `"module:dataset"`.
        destination: a path that ends with `.ndf`, for one file; any other, for a folder of shards.
        labels: names of the columns (of an `.npz`: arrays) that are labels; by default none, but `y` of an `.npz`.
        columns: names of those that are features; by default all others.
        num_shards: so many shards, of sizes that differ by one row at most.
        rows_per_shard: so many rows in each shard but the last; without either, shards have about 256 MiB.
        workers: processes that write at the same time.
        size: height and width that images are resized to; without it, all must be of one size.
        mode: of images: `"L"`, `"RGB"` or `"RGBA"`.
        overwrite: replace what is at the destination, if it is of the kind that is written.
        on_start: called once with the number of all rows.
        advance: called with a number of rows, whenever so many more are done.
        run: how jobs are mapped over workers.

    The result is made in the folder `DESTINATION.part`, and renamed when it is whole. If the run is interrupted, by
    whatever, the same call goes on: parts that are finished (shards, or ranges of 256 MiB of a single file) are checked
    by their checksums, and kept. If source or options are others by then, it starts anew. So
    does a stream, whose rows are written to a file first where shards are asked for.

    Raises:
        OptionError: a bad option, an extension that is not known, or a source that holds what can't be rows.
        TypeError: an option of a wrong type.
        FileExistsError: the destination exists, or another process converts to it.
        NdfError: a source of rows is damaged.
        OSError: something can't be read or written; a full disk names the destination, and says what to do.

    Determinism: the result, byte for byte, depends on the source and the options other than `workers`.
    Concurrency: memory is bounded by a few MiB a worker, whatever the size of the source (of a table: one row group).
    """
    is_single, num_shards, rows_per_shard = _check_shape(destination, num_shards, rows_per_shard)
    workers = _check_count("workers", workers)
    target = absolute_path(destination)
    opened = open_source(
        source, SourceOptions(as_names("labels", labels), as_names("columns", columns), size, mode)
    )
    _check_apart(source, target)
    check_destination(target, is_single, overwrite)
    if isinstance(opened, StreamSource):
        if is_single:
            return _write_stream(opened, target)
        with spooled(opened, f"{target}{PART_SUFFIX}.ndf") as path:
            return convert(
                path,
                target,
                num_shards=num_shards,
                rows_per_shard=rows_per_shard,
                workers=workers,
                overwrite=overwrite,
                on_start=on_start,
                advance=advance,
                run=run,
            )
    header = _check_rows(opened, source)
    plan = make_plan(header, is_single=is_single, num_shards=num_shards, rows_per_shard=rows_per_shard)
    before = opened.identity()
    with at_destination(target + PART_SUFFIX, target):
        place = Workplace(target, plan, plan.digest(before))
        try:
            if on_start is not None:
                on_start(header.n)
            parts = _run(run, opened, place, workers, advance)
            if opened.identity() != before:
                raise OptionError(f"{source!r} changed while it was converted: run it again")
            check_destination(target, is_single, overwrite)
            place.publish(parts)
        finally:
            place.close()
    kept = sum(plan.parts[w.number].stop - plan.parts[w.number].start for w in parts if w.was_kept)
    files = 1 if is_single else len(plan.parts)
    size_bytes = header.file_bytes if is_single else sum(part.size_bytes for part in plan.parts)
    return Converted(target, header.n, header.d, header.l, files, size_bytes, kept, place.was_stale)


def _write_stream(source: StreamSource, target: str) -> Converted:
    source.write(target)
    header = NdfReader(target).header
    return Converted(target, header.n, header.d, header.l, 1, header.file_bytes, 0, False)


def _run(
    run: RunJobs, source: Source, place: Workplace, workers: int, advance: Callable[[int], None] | None
) -> list[Written]:
    parts = []
    with contextlib.ExitStack() as stack:
        results = run(source, place.jobs(), workers, advance)
        # An error here (a full disk, Ctrl-C) ends the workers at once, not when the generator is collected.
        close = getattr(results, "close", None)
        if close is not None:
            stack.callback(close)
        for written in results:
            place.record(written)
            parts.append(written)
    return parts


def _check_shape(
    destination: Any, num_shards: Any, rows_per_shard: Any
) -> tuple[bool, int | None, int | None]:
    if num_shards is not None and rows_per_shard is not None:
        raise OptionError("num_shards and rows_per_shard exclude each other: give one of them")
    is_single = absolute_path(destination).lower().endswith(".ndf")
    for name, value in (("num_shards", num_shards), ("rows_per_shard", rows_per_shard)):
        if value is not None and is_single:
            raise OptionError(
                f"{name} makes a folder of shards, but {destination!r} ends with .ndf, as a single file does: give "
                f"another name"
            )
    return (
        is_single,
        None if num_shards is None else _check_count("num_shards", num_shards),
        None if rows_per_shard is None else _check_count("rows_per_shard", rows_per_shard),
    )


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {value!r}")
    number = operator.index(value)
    if number < 1:
        raise OptionError(f"{name} must be at least 1, not {number}")
    return number


def _check_apart(source: Any, target: str) -> None:
    """Raise an error if the destination is the source, or a folder around it that would be replaced."""
    path = os.path.realpath(os.fsdecode(source))
    if os.path.commonpath([path, os.path.realpath(target)]) == os.path.realpath(target):
        raise OptionError(f"the source {source!r} lies at the destination {target!r}, which would replace it")


def _check_rows(source: Source, given: Any) -> NdfHeader:
    header = NdfHeader(source.n, source.d, source.l)
    if header.n == 0:
        raise OptionError(f"{given!r} has no rows")
    if header.d + header.l == 0:
        raise OptionError(f"{given!r} has {header.n} rows of no values at all")
    return header
