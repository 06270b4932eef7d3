"""`feedline bench MODULE:LOADER`: which kind and number of workers is the fastest, and what stands in the way of more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from feedline.cli.bench_plot import draw, require_matplotlib
from feedline.cli.bench_trial import bench_loader
from feedline.cli.targets import split_target
from feedline.cli.wording import printable, size
from feedline.errors import OptionError
from feedline.loader.lookout import cores
from feedline.loader.options import WORKER_TYPES
from feedline.loader.tuning.choices import Choice, choices, usual_numbers
from feedline.loader.tuning.findings import best_of, findings
from feedline.loader.tuning.trial import Trial

__all__ = ["command"]

#: Programs that want a processor, for each core, from which on a comparison is doubtful.
BUSY_LOAD = 0.8

#: Seconds beyond those that are measured after which a trial is given up.
PATIENCE_SECONDS = 60.0


def _numbers(text: str | None) -> list[int]:
    if text is None:
        return usual_numbers(cores())
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise typer.BadParameter(
            f"{text!r} must be numbers of workers with commas between them, such as 0,2,4"
        )
    return [int(word) for word in words]


def _kinds(text: str) -> list[str]:
    kinds = [word.strip() for word in text.split(",")]
    for kind in kinds:
        if kind not in WORKER_TYPES:
            raise typer.BadParameter(f"{kind!r} is no kind of worker; there are {', '.join(WORKER_TYPES)}")
    return kinds


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:LOADER",
            help="A DataLoader, or a callable that returns one: package.module:name or path/to/file.py:name.",
        ),
    ],
    seconds: Annotated[float, typer.Option(min=0.05, help="How long each choice is measured.")] = 3.0,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Numbers of workers to try. [default: 0 to twice the cores]"),
    ] = None,
    kinds: Annotated[
        str, typer.Option(metavar="KIND,...", help="Kinds of workers to try.")
    ] = "thread,process",
    plot: Annotated[Path, typer.Option(metavar="FILE", help="Where to draw the result.")] = Path("bench.png"),
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare kinds and numbers of workers for a loader: items/s, first batch, memory, and what limits each.

    The batches are the same with all of them. Each choice runs in a process of its own; nothing else should run meanwhile.
    """
    numbers, wanted = _numbers(workers), _kinds(kinds)
    if not no_plot:
        require_matplotlib()
        if not plot.absolute().parent.is_dir():
            raise FileNotFoundError(2, "no such folder", str(plot.absolute().parent))
    try:
        split_target(target)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from None
    options = bench_loader(target).options
    has_own = options.num_workers != "auto"
    own = Choice(options.worker_type if options.first_workers else "thread", options.first_workers)
    tried = choices(wanted, numbers, own if has_own else None)
    console = Console(highlight=False, stderr=as_json)
    busy = _other_programs()
    trials = list(_trials(console, target, tried, seconds))
    now = trials[0] if has_own else None
    best = best_of(trials)
    if not no_plot:
        draw(trials, best, f"{target}: workers compared", plot)
    lines = findings(trials, now) + busy
    if as_json:
        told = {
            "target": target,
            "seconds": seconds,
            "trials": [trial.as_dict() for trial in trials],
            "findings": lines,
        }
        told["best"] = (
            None if best is None else {"worker_type": best.worker_type, "num_workers": best.num_workers}
        )
        told["plot"] = None if no_plot else str(plot)
        print(json.dumps(told, indent=2))
    else:
        console.print(_table(trials, best, now))
        for line in lines:
            console.print(printable(line), markup=False)
        if not no_plot:
            console.print(f"Drawn: {printable(plot)}", markup=False)
    if best is None:
        raise typer.Exit(1)


def _other_programs() -> list[str]:
    """Return a warning, if others want the processors that are to be compared on."""
    if not hasattr(os, "getloadavg"):
        return []
    load, available = os.getloadavg()[0], cores()
    if load < BUSY_LOAD * available:
        return []
    return [
        f"Other programs were running (load average {load:.1f}, {available} cores): compare again when it is quiet."
    ]


def _trials(console: Console, target: str, tried: list[Choice], seconds: float) -> Iterator[Trial]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(tried))
        for number, choice in enumerate(tried, 1):
            progress.update(task, description=f"{number} of {len(tried)}: {choice}", advance=1)
            yield _try(target, choice, seconds)


def _try(target: str, choice: Choice, seconds: float) -> Trial:
    order = {"target": target, "seconds": seconds, **choice._asdict()}
    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as folder:
        answer = Path(folder, "trial.json")
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "feedline.cli.bench_trial", json.dumps(order), str(answer)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds + PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Trial(*choice, error=f"it was not done after {seconds + PATIENCE_SECONDS:.0f} s")
        if not answer.exists():
            last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
            return Trial(*choice, error=f"the process ended with exit code {ended.returncode}: {last}")
        return Trial(**json.loads(answer.read_text(encoding="utf-8")))


def _table(trials: list[Trial], best: Trial | None, now: Trial | None) -> Table:
    # Fits into 80 columns, and is as easy to read in a log.
    table = Table(box=SIMPLE, title="workers compared", title_justify="left")
    table.add_column("workers", no_wrap=True)
    for title in ("items/s", "start", "memory", "cores"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("slowest: why", no_wrap=True)
    for trial in trials:
        name = str(trial.choice) + (" (now)" if trial is now else "")
        if trial.error is not None:
            table.add_row(name, "-", "-", "-", "-", "failed")
            continue
        table.add_row(
            name,
            f"{trial.items_per_second:,.0f}",
            f"{trial.first_batch_seconds:.2f} s",
            size(trial.memory_bytes) if trial.memory_bytes else "?",
            f"{trial.cores_used:.1f}",
            f"{trial.bottleneck}: {trial.limit}" if trial.limit != "none" else trial.bottleneck,
            style="bold" if best is not None and trial.choice == best.choice else None,
        )
    return table
