"""What happened, in numbers: `Tally` counts, `LoaderStats` is what a user gets.

Always on, and cheap: a few additions and clock readings a batch. Sizes are taken of every sixteenth batch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from feedline.loader.batch import Outcome

__all__ = ["SIZED_EVERY", "Clock", "LoaderStats", "Tally", "cores", "nbytes_of"]

#: One batch in so many is measured for its size.
SIZED_EVERY = 16


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """What a loader has done since it was made.

    Attributes:
        batches: delivered to the consumer, those that raised included.
        items: rows in them.
        size_bytes: of the batches delivered, estimated from every sixteenth.
        failed_items, failed_batches: what could not be had.
        wall_seconds: from the first batch of each epoch being asked for to the last one being delivered.
        wait_seconds: of these, the consumer waited for data.
        step_seconds: of these, the consumer did something else: a training step.
        fetch_seconds, transform_seconds, collate_seconds: spent loading, by all workers together.
        cpu_seconds: processor time of the workers; 0 in the calling thread.
        num_workers: how many there are.
        worker_type: `"thread"`, or whichever kind they are.
    """

    batches: int
    items: int
    size_bytes: int
    failed_items: int
    failed_batches: int
    wall_seconds: float
    wait_seconds: float
    step_seconds: float
    fetch_seconds: float
    transform_seconds: float
    collate_seconds: float
    cpu_seconds: float
    num_workers: int
    worker_type: str

    @property
    def items_per_second(self) -> float:
        """Items delivered per second of wall time."""
        return self.items / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def wait_fraction(self) -> float:
        """Share of the wall time that the consumer waited for data, 0 to 1."""
        return min(1.0, self.wait_seconds / self.wall_seconds) if self.wall_seconds else 0.0

    @property
    def loading_seconds(self) -> float:
        """Time spent in all three stages, by all workers together."""
        return self.fetch_seconds + self.transform_seconds + self.collate_seconds

    def __str__(self) -> str:
        return (
            f"{self.items:,} items in {self.batches:,} batches in {self.wall_seconds:.2f} s "
            f"({self.items_per_second:,.0f} items/s); the consumer waited {self.wait_fraction:.0%} of it"
        )


class Tally:
    """Sums over the batches that a loader has delivered.

    Concurrency: several iterators of one loader may add at once; a sum may then miss one, which a statistic can bear.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.items = 0
        self.failed_batches = 0
        self.failed_items = 0
        self.fetch_seconds = 0.0
        self.transform_seconds = 0.0
        self.collate_seconds = 0.0
        self.cpu_seconds = 0.0
        self.wait_seconds = 0.0
        self.wall_seconds = 0.0
        self._sized_batches = 0
        self._sized_bytes = 0

    def add(self, outcome: Outcome) -> None:
        """Count one batch."""
        self.batches += 1
        self.items += len(outcome.indices)
        self.fetch_seconds += outcome.fetch_seconds
        self.transform_seconds += outcome.transform_seconds
        self.collate_seconds += outcome.collate_seconds
        self.cpu_seconds += outcome.cpu_seconds
        if outcome.error is not None:
            self.failed_batches += 1
        if outcome.failures:
            self.failed_items += len(outcome.failures)

    def size(self, value: Any, batches: int = 1) -> None:
        """Take the size of `value`, so many batches, as an example."""
        self._sized_batches += batches
        self._sized_bytes += nbytes_of(value)

    def stats(self, num_workers: int, worker_type: str) -> LoaderStats:
        """Return the sums so far."""
        each = self._sized_bytes / self._sized_batches if self._sized_batches else 0.0
        return LoaderStats(
            batches=self.batches,
            items=self.items,
            size_bytes=round(each * self.batches),
            failed_items=self.failed_items,
            failed_batches=self.failed_batches,
            wall_seconds=self.wall_seconds,
            wait_seconds=self.wait_seconds,
            step_seconds=max(0.0, self.wall_seconds - self.wait_seconds),
            fetch_seconds=self.fetch_seconds,
            transform_seconds=self.transform_seconds,
            collate_seconds=self.collate_seconds,
            cpu_seconds=self.cpu_seconds,
            num_workers=num_workers,
            worker_type=worker_type,
        )


class Clock:
    """The time of one iterator, added to a tally: between calls it is the consumer's, within them it is waited for."""

    __slots__ = ("_tally", "touched")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        #: When it was last read; `None` before the first batch was asked for.
        self.touched: float | None = None

    def waited(self, start: float, end: float) -> None:
        """The consumer waited from `start` to `end`; what lies between the last call and `start` was its own."""
        tally = self._tally
        tally.wait_seconds += end - start
        tally.wall_seconds += end - (start if self.touched is None else self.touched)
        self.touched = end


def nbytes_of(value: Any) -> int:
    """Return the bytes of all arrays, tensors and texts in a batch."""
    if isinstance(value, (tuple, list)):
        return sum(map(nbytes_of, value))
    if isinstance(value, dict):
        return sum(map(nbytes_of, value.values()))
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    return len(value) if isinstance(value, (bytes, bytearray, str)) else 0


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
