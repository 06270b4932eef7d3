"""What the statistics cost, which are always on: a loader as it is, against itself with clocks and counters taken out.

    python -m benchmarks.statistics_cost [--rounds N] [--only NAME]

Items and batches are those of `cost_per_item` (16 floats by a Python dataset, batches of 64) and of `arrays_in_memory`
(rows of 64 floats, batches of 256): where loading costs next to nothing, counting shows most. Goal: at most 1 % for items
in the calling thread.

Both run by turns in one process, since the layout of a process alone makes a difference of some percent; what is compared
is processor time, the least of all rounds, which other programs disturb least.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Any

import numpy as np

import feedline
from benchmarks.cost_per_item import BATCH, Rows
from feedline.loader import batch, fetch, iterator, plain, stats, telling

# Short enough to run between two interruptions by other programs, now and then.
ITEMS = 25_600
ARRAY_ROWS = 256_000
ARRAY_BATCH = 256


def nothing(*arguments: Any, **options: Any) -> None:
    """In the place of a counter."""


def parts() -> Iterator[tuple[Any, str, Any]]:
    """Yield what reads clocks and counts, and what stands in its place."""
    for module in (batch, fetch, iterator, plain):
        for name in ("perf_counter", "thread_time"):
            if hasattr(module, name):
                yield module, name, float  # the quickest call there is: 0.0
    for method in ("size", "add", "add_times", "begin_sample", "end_sample", "sample_cpu"):
        yield stats.Tally, method, nothing
    yield stats.Clock, "waited", nothing
    yield telling.Telling, "lookout", nothing


@contextmanager
def without_statistics() -> Iterator[None]:
    replaced = [(owner, name, getattr(owner, name)) for owner, name, _ in parts()]
    for owner, name, other in parts():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for owner, name, before in replaced:
            setattr(owner, name, before)


class FewRows(Rows):
    def __len__(self) -> int:
        return ITEMS


def items(**options: Any) -> Callable[[], None]:
    return epochs(FewRows(), BATCH, **options)


def arrays(**options: Any) -> Callable[[], None]:
    rows = np.random.default_rng(0).random((ARRAY_ROWS, 64), dtype=np.float32)
    return epochs(feedline.ArrayDataset(rows), ARRAY_BATCH, **options)


def epochs(dataset: Any, batch_size: int, **options: Any) -> Callable[[], None]:
    def run() -> None:
        # A new loader each time: its methods are looked up when it is made.
        with feedline.DataLoader(dataset, batch_size, **options) as loader:
            for _ in loader:
                pass

    return run


def measure(run: Callable[[], None]) -> float:
    start = process_time()
    run()
    return process_time() - start


CASES = {
    "items in the calling thread": (items, {}),
    "items with a transform": (items, {"transform": abs}),
    "items in 2 threads": (items, {"num_workers": 2}),
    "arrays in the calling thread": (arrays, {}),
    "arrays in 2 threads": (arrays, {"num_workers": 2}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="prints processor time with and without statistics")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    print(f"{ITEMS:,} items or {ARRAY_ROWS:,} rows: least processor seconds of {options.rounds} rounds")
    for name, (make, settings) in CASES.items():
        if options.only not in name:
            continue
        run = make(**settings)
        run()
        counted, bare = [], []
        for _ in range(options.rounds):
            counted.append(measure(run))
            with without_statistics():
                bare.append(measure(run))
        cost = min(counted) / min(bare) - 1
        print(f"  {name:32} {min(counted):.5f} | without {min(bare):.5f} | statistics cost {cost:6.1%}")


if __name__ == "__main__":
    main()
