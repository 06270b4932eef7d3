"""Time to the first batch, and memory of all processes after an epoch: a list of 2,000,000 strings, and arrays of 2 GB.

    python -m benchmarks.startup_and_memory [--rounds N] [--only NAME] [--workers 4] [--megabytes 2000]

Each round runs each system in a process of its own, by turns. Told are medians: seconds from `iter()` to the first batch
(the data are there, nothing is started yet), and the proportional set size (PSS) of the process and all below it
after an epoch: shared pages count once. "All workers" is the part of the processes below.

With worker processes, the arrays of a dataset lie once more in a block that all workers map, however many there are; memory
maps of files are opened again and cost nothing. Python objects (here: strings) are there once for every worker, as far as it
has used them.

Where the time goes, on 2 cores of a virtual machine on which a fresh page of a process costs 3 to 4 microseconds. Seconds,
medians of one run with 4 workers (a plain loop | threads | processes | torch, which forks the program itself):

    strings   0.08 | 0.10  | 0.53 | 0.29
    arrays    0.01 | 0.017 | 0.84 | 0.12

- Threads: batches that hold the GIL take turns, so the first came when four were nearly done (0.095 for the arrays); the
  first thread now has a head start.
- Processes are forked from a fresh interpreter, not from the program, whose threads and locks can't be forked safely. The
  floor is what that costs: an interpreter with NumPy (0.09 to 0.14) and what workers need of feedline (0.04 to 0.06); and the
  dataset, which has to get there. Strings are pickled (0.1) and written (0.1) meanwhile, so behind the boot comes only the
  making of 254 MB of objects: 0.13 of work and 0.18 of page faults, on one core, as an interpreter makes objects on no more.
  Of 2 GB of arrays, the floor is the copy into fresh memory, 0.6 with two threads (1.3 with one), which hides the boot.
- torch pays neither, and is ahead in both; the difference is the price of a fresh interpreter and of the copy. Arrays in
  files (`np.memmap`, `NdfDataset`) are not copied, and start with the boot alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

STRINGS = 2_000_000
BATCH = 2_000
ROW = 1_000


class Strings:
    """A list of strings, 254 MB."""

    def __init__(self) -> None:
        self.strings = [f"{number:078d}" for number in range(STRINGS)]

    def __len__(self) -> int:
        return STRINGS

    def __getitem__(self, index: int) -> str:
        return self.strings[index]


class Arrays:
    """Rows of one array, summed."""

    def __init__(self, megabytes: int) -> None:
        self.array = np.ones((megabytes * 1_000_000 // (8 * ROW), ROW))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> float:
        return float(self.array[index].sum())


def plain(dataset: Any, workers: int) -> Iterable[Any]:
    order = np.random.default_rng(0).permutation(len(dataset))
    for start in range(0, len(dataset), BATCH):
        yield [dataset[index] for index in order[start : start + BATCH]]


def feedline_loader(kind: str) -> Callable[[Any, int], Iterable[Any]]:
    def make(dataset: Any, workers: int) -> Iterable[Any]:
        import feedline

        return feedline.DataLoader(
            dataset, BATCH, shuffle=True, num_workers=workers, worker_type=kind, collate_fn=list
        )

    return make


def torch_loader(dataset: Any, workers: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=list)


def grain_loader(dataset: Any, workers: int) -> Iterable[Any]:
    import grain

    batches = grain.MapDataset.source(dataset).shuffle(seed=0).batch(BATCH, batch_fn=list).to_iter_dataset()
    return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))


SYSTEMS: dict[str, tuple[Callable[[Any, int], Iterable[Any]], bool]] = {
    "a plain loop": (plain, False),
    "feedline, threads": (feedline_loader("thread"), False),
    "feedline, processes": (feedline_loader("process"), False),
    "torch, processes": (torch_loader, True),
    "Grain, processes": (grain_loader, True),
}


def proportional_megabytes(pid: int) -> float:
    """Return the PSS of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1e3
    raise LookupError(pid)


def below(pid: int) -> list[int]:
    """Return all processes below one."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return children + [grandchild for child in children for grandchild in below(child)]


def serve(name: str, what: str, workers: int, megabytes: int) -> None:
    dataset = Strings() if what == "strings" else Arrays(megabytes)
    make, _ = SYSTEMS[name]
    try:
        loader = make(dataset, workers)
        # What an import costs is another question.
        warm = iter(make([0] * BATCH, 0)) if make is not grain_loader else iter(())
        next(warm, None)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    start = time.perf_counter()
    iterator = iter(loader)
    next(iterator)
    first = time.perf_counter() - start
    for _ in iterator:
        pass
    own = proportional_megabytes(os.getpid())
    workers_part = sum(proportional_megabytes(pid) for pid in below(os.getpid()))
    print(json.dumps({"first": first, "total": own + workers_part, "workers": workers_part}), flush=True)
    os._exit(0)


def ask(name: str, what: str, workers: int, megabytes: int) -> dict[str, Any]:
    is_peer = SYSTEMS[name][1]
    python = os.environ.get("FEEDLINE_PEERS", sys.executable) if is_peer else sys.executable
    arguments = ["--serve", name, "--what", what, "--workers", str(workers), "--megabytes", str(megabytes)]
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "benchmarks.startup_and_memory", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"missing": done.stderr[-200:]}
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="prints medians over rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="systems whose name contains this")
    parser.add_argument("--what", choices=["strings", "arrays"], help="one of the two data sets")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.what, options.workers, options.megabytes)
        return
    names = [name for name in SYSTEMS if options.only in name]
    for what in [options.what] if options.what else ["strings", "arrays"]:
        print(
            f"\n{what}, {options.workers} workers: seconds to the first batch (min) | PSS MB | of all workers"
        )
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                answers[name].append(ask(name, what, options.workers, options.megabytes))
        for name in names:
            told = [answer for answer in answers[name] if "missing" not in answer]
            if not told:
                print(f"  {name:24} left out: {answers[name][0]['missing']}")
                continue
            first, total, part = (
                statistics.median(answer[key] for answer in told) for key in ("first", "total", "workers")
            )
            least = min(answer["first"] for answer in told)
            print(f"  {name:24} {first:8.3f} ({least:.3f}) | {total:7.0f} | {part:7.0f}")


if __name__ == "__main__":
    main()
