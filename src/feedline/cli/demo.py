"""`feedline demo`: trains on real digits streamed from disk, stops in mid-epoch, resumes, and compares bit for bit.

The second half runs in a process of its own, which knows nothing but the files that the first half left: the rows, the
loader's state (JSON) and the weights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy.typing as npt
import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

import feedline
from feedline import save_ndf
from feedline.cli.digits import Classifier, Digits, load_digits
from feedline.cli.main import INTERRUPTED
from feedline.cli.training import EPOCHS, SEED, EpochEnd, Run, one_thread_for_sums
from feedline.cli.wording import count, printable, size
from feedline.errors import FeedlineError

__all__ = ["Comparison", "command", "compare"]

#: Where the run stops by itself: after this epoch (from 0) has been going for so many batches.
STOP_EPOCH, STOP_BATCH = 6, 20


def command(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep the files there, not in a temporary folder."),
    ] = None,
    resume_in: Annotated[Path | None, typer.Option("--resume-in", hidden=True)] = None,
) -> None:
    """Train on real digits streamed from an .ndf file; stop in mid-epoch, resume in a new process, compare the bits."""
    console = Console(highlight=False)
    if resume_in is not None:
        try:
            _resume(resume_in, console)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None  # the first process hears of it, too, and says so
        return
    digits = load_digits()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        same = _tell(folder, digits, console, kept=True)
    else:
        with tempfile.TemporaryDirectory(prefix="feedline-demo-") as temporary:
            same = _tell(Path(temporary), digits, console, kept=False)
    if not same:
        raise FeedlineError("the resumed run differs from the unbroken one")


@dataclass(frozen=True)
class Comparison:
    """A run that was stopped and resumed, against one that was not.

    Attributes:
        batches: batches of the unbroken run.
        differing_batches: how many of them the broken run did not get in the same place, bit for bit.
        arrays: arrays that make up the unbroken run's final state: weights, moments and the number of steps.
        differing_arrays: names of those that the broken run ended with other bits in.
    """

    batches: int
    differing_batches: int
    arrays: int
    differing_arrays: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.differing_batches and not self.differing_arrays


def compare(
    broken: tuple[list[str], dict[str, npt.NDArray[Any]]],
    whole: tuple[list[str], dict[str, npt.NDArray[Any]]],
) -> Comparison:
    """Compare two runs, each given as its batches' digests and its final arrays.

    >>> import numpy as np
    >>> one = (["a", "b"], {"w": np.array([0.0])})
    >>> compare(one, one).same
    True
    >>> compare(one, (["a", "c", "d"], {"w": np.array([-0.0])}))
    Comparison(batches=3, differing_batches=2, arrays=1, differing_arrays=('w',))
    """
    (digests, arrays), (whole_digests, whole_arrays) = broken, whole
    equal = sum(one == other for one, other in zip(digests, whole_digests))
    names = arrays.keys() | whole_arrays.keys()
    differing = (n for n in sorted(names) if _bits(arrays.get(n)) != _bits(whole_arrays.get(n)))
    total = max(len(digests), len(whole_digests))
    return Comparison(total, total - equal, len(whole_arrays), tuple(differing))


def _bits(array: npt.NDArray[Any] | None) -> tuple[Any, ...] | None:
    return None if array is None else (array.shape, array.dtype.str, array.tobytes())


def _tell(folder: Path, digits: Digits, console: Console, kept: bool) -> bool:
    """Run the whole demo in `folder`; return whether the two runs came out equal."""
    start = time.perf_counter()
    save_ndf(folder / "train.ndf", digits.train_x, digits.train_y)
    save_ndf(folder / "held_out.ndf", digits.held_x, digits.held_y)
    with one_thread_for_sums():
        console.rule("1. train, and stop in mid-epoch", align="left")
        first = Run(folder)
        per_epoch = len(first.loader)
        _train(first, console, stop_after=STOP_EPOCH * per_epoch + STOP_BATCH)
        state_bytes = first.save()
        first.close()
        console.print(f"stopped after batch {STOP_BATCH} of {per_epoch} in epoch {STOP_EPOCH + 1}")
        console.rule("2. resume in a new process", align="left")
        rest = _resume_elsewhere(folder, console)
        console.rule("3. the same training, never stopped", align="left")
        whole = Run(folder)
        _train(whole, console, every_epoch=False)
        whole.close()
    final = Classifier.load(folder / "resumed.npz", whole.model.steps).state
    result = compare((first.digests + rest["digests"], final), (whole.digests, whole.model.state))
    rows = (folder / "train.ndf").stat().st_size
    facts = [
        ("data", f"{count(len(digits.train_x), 'handwritten digit')} in an .ndf file of {size(rows)}"),
        ("", f"{len(digits.held_x)} others, held out to test with"),
        ("training", f"a classifier in NumPy: {EPOCHS} epochs of {per_epoch} batches from the file"),
        ("", f"shuffled (seed {SEED}), nudged at random, by two worker threads"),
        ("stopped", f"by itself in epoch {STOP_EPOCH + 1}, after batch {STOP_BATCH} of {per_epoch}"),
        ("saved", f"where it was in the data ({state_bytes} bytes of JSON), and the weights"),
        ("resumed", f"in a new process ({rest['pid']}), with {len(rest['digests'])} batches to go"),
        ("learned", f"{rest['accuracy']:.1%} of the held-out digits are recognised"),
        *_verdict(result),
        *([("files", str(folder))] if kept else []),
    ]
    screen = Table.grid(padding=(0, 2))
    for fact in facts:
        screen.add_row(*map(escape, map(printable, fact)))
    title = f"what happened, in {time.perf_counter() - start:.1f} seconds"
    console.print(Panel(screen, title=title, title_align="left", expand=False))
    return result.same


def _verdict(result: Comparison) -> list[tuple[str, str]]:
    if result.same:
        return [
            ("compared", "with the same training, never stopped:"),
            ("", f"all {result.batches} batches are equal, bit for bit"),
            ("", f"all {result.arrays} arrays at the end are equal, bit for bit"),
        ]
    return [
        ("compared", "with the same training, never stopped: NOT EQUAL"),
        ("", f"{result.differing_batches} of {result.batches} batches differ"),
        ("", f"arrays that differ: {', '.join(result.differing_arrays) or 'none'}"),
    ]


def _resume_elsewhere(folder: Path, console: Console) -> dict[str, Any]:
    """Finish the run in a fresh process; return what it wrote down."""
    console.file.flush()
    source = str(Path(feedline.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    # It starts in the demo's folder: nothing of where the user stands can be imported in place of what it needs.
    ended = subprocess.run(
        [sys.executable, "-m", "feedline", "demo", "--resume-in", str(folder.resolve())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=folder,
        check=False,
    )
    if ended.returncode:
        raise FeedlineError(
            f"the process that was to resume the training ended with exit code {ended.returncode}"
        )
    facts: dict[str, Any] = json.loads((folder / "resumed.json").read_text(encoding="utf-8"))
    return facts


def _resume(folder: Path, console: Console) -> None:
    with one_thread_for_sums():
        run = Run(folder, resume=True)
        _train(run, console)
        run.close()
    run.model.save(folder / "resumed.npz")
    facts = {"digests": run.digests, "accuracy": run.accuracy, "pid": os.getpid()}
    (folder / "resumed.json").write_text(json.dumps(facts), encoding="utf-8")


def _train(run: Run, console: Console, stop_after: int | None = None, every_epoch: bool = True) -> None:
    """Train with a progress bar (on a terminal) and a line per epoch."""

    def on_batch(epoch: int, items: int, speed: float) -> None:
        progress.update(bar, completed=items, epoch=epoch + 1, speed=speed)

    def on_epoch(end: EpochEnd) -> None:
        if every_epoch or end.epoch == EPOCHS - 1:
            progress.console.print(
                f"epoch {end.epoch + 1:2}  loss {end.loss:.4f}  held-out accuracy {end.accuracy:6.1%}  "
                f"{end.items_per_second:8,.0f} items/s"
            )

    with _progress(console) as progress:
        bar = progress.add_task("", total=run.items, epoch=run.loader.epoch + 1, speed=0.0)
        run.train(on_batch, on_epoch, stop_after)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("epoch {task.fields[epoch]:2}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} items, {task.fields[speed]:,.0f} items/s"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
