"""What happened, in numbers: `Tally` counts, `LoaderStats` is what a user gets.

Always on, and cheap: two readings of the clock and a few additions a batch. Sizes, processor time and what a short cut does
are taken of every sixteenth batch, and of fewer where there are many; what workers are at is looked up some twenty times a
second, and only while the consumer waits anyhow (see `lookout`).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any

from feedline.loader.batch import Outcome
from feedline.loader.switches import thread_usage

__all__ = ["Clock", "LoaderStats", "Tally", "nbytes_of", "next_sample"]

#: One batch in so many is taken as an example, for its size and for what its time went into...
SIZED_EVERY = 16
#: ... and one in eight times as many beyond this number.
MANY = 64

#: What describes the loader as it is now, and can't be subtracted.
_PRESENT = frozenset(
    {
        "memory_bytes",
        "num_workers",
        "worker_type",
        "source",
        "gives_many",
        "item_concurrency",
        "prefetch_depth",
        "cores",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """What a loader has done since it was made.

    Attributes:
        batches: delivered to the consumer, those that raised included.
        items: rows in them.
        size_bytes: of the batches delivered, estimated from some of them.
        failed_items, failed_batches: what could not be had.
        epochs: that were begun.
        wall_seconds: from the first batch of each epoch being asked for to the last one being delivered.
        wait_seconds: of these, the consumer waited for data.
        first_wait_seconds: of the waiting, for the first batch of an epoch.
        step_seconds: of the wall time, the consumer did something else: a training step.
        fetch_seconds, transform_seconds, collate_seconds: spent loading, by all workers together.
        flight_seconds: time that asynchronous items were awaited, all items together.
        cpu_seconds: processor time spent loading, estimated from some of the batches.
        memory_bytes: what worker processes take of the memory (proportional set size), when that was last looked at.
        looks: how often, while the consumer waited, was looked at what the workers do; without workers, batches of which
            was noted what their time went into.
        gil_looks: of these, some thread held the GIL.
        worker_looks: workers there were in all looks together.
        working_looks: of these, had a batch in hand.
        asleep_looks: of these, did not use or want a processor: idle, or waiting for something.
        num_workers: how many workers there are now.
        worker_type: `"thread"`, or whichever kind they are.
        source: `"map"`, `"async"` or `"stream"`: the kind of dataset.
        gives_many: the dataset gives the items of a batch in one call (`take`, `__getitems__`).
        item_concurrency, prefetch_depth: the loader's options.
        cores: processors that this process may use.
    """

    batches: int = 0
    items: int = 0
    size_bytes: int = 0
    failed_items: int = 0
    failed_batches: int = 0
    epochs: int = 0
    wall_seconds: float = 0.0
    wait_seconds: float = 0.0
    first_wait_seconds: float = 0.0
    step_seconds: float = 0.0
    fetch_seconds: float = 0.0
    transform_seconds: float = 0.0
    collate_seconds: float = 0.0
    flight_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    looks: int = 0
    gil_looks: int = 0
    worker_looks: float = 0.0
    working_looks: float = 0.0
    asleep_looks: float = 0.0
    num_workers: int = 0
    worker_type: str = "thread"
    source: str = "map"
    gives_many: bool = False
    item_concurrency: int = 1
    prefetch_depth: int = 2
    cores: int = 1

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

    @property
    def gil_fraction(self) -> float | None:
        """Share of the time that the GIL was held while the consumer waited, 0 to 1; `None` where nobody has looked."""
        threads = self.worker_type == "thread" and (self.num_workers > 0 or self.source == "async")
        return self.gil_looks / self.looks if self.looks and threads else None

    @property
    def working_fraction(self) -> float | None:
        """Share of the workers that had a batch in hand while the consumer waited; `None` where nobody has looked."""
        return min(1.0, self.working_looks / self.worker_looks) if self.worker_looks else None

    @property
    def blocked_fraction(self) -> float | None:
        """Share of their time that workers with a batch in hand waited for something: a disk, a network, a lock, the GIL.

        `None` where nobody has looked.
        """
        if not self.working_looks:
            return None
        idle = self.worker_looks - self.working_looks
        return min(1.0, max(0.0, (self.asleep_looks - idle) / self.working_looks))

    @property
    def in_flight(self) -> float:
        """Asynchronous items that were awaited at once, on average."""
        return self.flight_seconds / self.wall_seconds if self.wall_seconds else 0.0

    def since(self, earlier: LoaderStats) -> LoaderStats:
        """Return what happened between `earlier` and this, in the same form.

        >>> LoaderStats(items=50, wall_seconds=3.0).since(LoaderStats(items=30, wall_seconds=2.0)).items_per_second
        20.0
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in values.keys() - _PRESENT:
            values[name] = max(0, values[name] - getattr(earlier, name))
        return LoaderStats(**values)

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
        self.epochs = 0
        self.waits = 0
        self.fetch_seconds = 0.0
        self.transform_seconds = 0.0
        self.collate_seconds = 0.0
        self.flight_seconds = 0.0
        self.wait_seconds = 0.0
        self.first_wait_seconds = 0.0
        self.wall_seconds = 0.0
        self.memory_bytes = 0
        self.looks = 0
        self.gil_looks = 0
        self.worker_looks = 0.0
        self.working_looks = 0.0
        self.asleep_looks = 0.0
        #: Of iterators that live; what they have not put in here yet is added when somebody asks.
        self.clocks: dict[int, weakref.ref[Clock]] = {}
        self._plain_seconds = 0.0
        self._plain_fetch = 0.0
        self._plain_collate = 0.0
        self._sized_batches = 0
        self._sized_bytes = 0
        self._sampled_seconds = 0.0
        self._sampled_cpu_seconds = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one batch."""
        self.batches += 1
        self.items += len(outcome.indices)
        self.add_times(outcome)
        if outcome.error is not None:
            self.failed_batches += 1
        if outcome.failures:
            self.failed_items += len(outcome.failures)

    def add_times(self, outcome: Outcome) -> None:
        """Count where the time of one batch went."""
        self.fetch_seconds += outcome.fetch_seconds
        self.transform_seconds += outcome.transform_seconds
        self.collate_seconds += outcome.collate_seconds
        if outcome.cpu_seconds:
            self.sample_cpu(
                outcome.fetch_seconds + outcome.transform_seconds + outcome.collate_seconds,
                outcome.cpu_seconds,
            )
        if outcome.flight_seconds:
            self.flight_seconds += outcome.flight_seconds

    def size(self, value: Any, batches: int = 1) -> None:
        """Take the size of `value`, so many batches, as an example."""
        self._sized_batches += batches
        self._sized_bytes += nbytes_of(value)

    def begin_sample(self) -> tuple[float, float, int | None]:
        """Begin to take a batch that is loaded in the calling thread as an example of what the time goes into."""
        cpu, switches = thread_usage()
        return perf_counter(), cpu, switches

    def end_sample(self, begun: tuple[float, float, int | None]) -> float:
        """Count the example: processor time, and time in which it waited; return the processor time."""
        start, cpu, switches = begun
        seconds = perf_counter() - start
        cpu_now, switches_now = thread_usage()
        cpu_seconds = cpu_now - cpu
        never_slept = switches is not None and switches_now == switches
        self.looks += 1
        self.worker_looks += 1
        self.working_looks += 1
        # What never slept was held up by other programs, if it was late.
        if not never_slept and seconds > 0:
            self.asleep_looks += max(0.0, 1 - cpu_seconds / seconds)
        return cpu_seconds

    def sample_cpu(self, seconds: float, cpu_seconds: float) -> None:
        """Take what `seconds` of loading took of a processor as an example for all loading."""
        self._sampled_seconds += seconds
        self._sampled_cpu_seconds += cpu_seconds

    def sample_plain(self, fetch_seconds: float, collate_seconds: float) -> None:
        """Take these as an example of how the time of short cuts divides into fetching and collating."""
        self._plain_fetch += fetch_seconds
        self._plain_collate += collate_seconds

    def settle(self, wall_seconds: float, plain_seconds: float) -> None:
        """Add what a clock had."""
        self.wall_seconds += wall_seconds
        self._plain_seconds += plain_seconds

    def times(self) -> tuple[float, float]:
        """Return (wall seconds, seconds in which the consumer waited) so far."""
        wall, plain = self._open_times()
        return self.wall_seconds + wall, self.wait_seconds + self._plain_seconds + plain

    def _open_times(self) -> tuple[float, float]:
        wall = plain = 0.0
        # list() of a dict's values is one atomic step.
        for reference in list(self.clocks.values()):
            clock = reference()
            if clock is not None:
                wall += clock.pending()
                plain += clock.plain
        return wall, plain

    def _stages(self, plain_seconds: float) -> tuple[float, float]:
        """Return (fetch, collate) seconds, those of short cuts divided as the examples were."""
        sampled = self._plain_fetch + self._plain_collate
        fetch = plain_seconds * self._plain_fetch / sampled if sampled else plain_seconds
        return self.fetch_seconds + fetch, self.collate_seconds + plain_seconds - fetch

    def stats(self, **present: Any) -> LoaderStats:
        """Return the sums so far; `present` is what the loader is now: its workers and options."""
        each = self._sized_bytes / self._sized_batches if self._sized_batches else 0.0
        wall, plain = self._open_times()
        wall, plain = self.wall_seconds + wall, self._plain_seconds + plain
        wait = self.wait_seconds + plain
        fetch, collate = self._stages(plain)
        loading = fetch + self.transform_seconds + collate
        share = self._sampled_cpu_seconds / self._sampled_seconds if self._sampled_seconds else 0.0
        return LoaderStats(
            batches=self.batches,
            items=self.items,
            size_bytes=round(each * self.batches),
            failed_items=self.failed_items,
            failed_batches=self.failed_batches,
            epochs=self.epochs,
            wall_seconds=wall,
            wait_seconds=wait,
            first_wait_seconds=self.first_wait_seconds,
            step_seconds=max(0.0, wall - wait),
            fetch_seconds=fetch,
            transform_seconds=self.transform_seconds,
            collate_seconds=collate,
            flight_seconds=self.flight_seconds,
            cpu_seconds=loading * share,
            memory_bytes=self.memory_bytes,
            looks=self.looks,
            gil_looks=self.gil_looks,
            worker_looks=self.worker_looks,
            working_looks=self.working_looks,
            asleep_looks=self.asleep_looks,
            **present,
        )


class Clock:
    """The time of one iterator: within calls the consumer waits, between them it does something else, such as a step.

    Attributes:
        begun: from when on the wall time is not in the tally yet; `None` before the first batch was asked for.
        seen: when the last batch was handed out. Whoever hands one out sets it, which is all that this costs.
        plain: seconds in which the calling thread loaded by a short cut, and which are not in the tally yet.

    Concurrency: one consumer writes; others may read at any time.
    """

    __slots__ = ("__weakref__", "_tally", "begun", "plain", "seen")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.begun: float | None = None
        self.seen = 0.0
        self.plain = 0.0

    def waited(self, start: float, end: float) -> None:
        """The consumer waited from `start` to `end`."""
        tally = self._tally
        tally.waits += 1
        tally.wait_seconds += end - start
        if self.begun is None:
            self.begin(start, end)
        self.seen = end

    def begin(self, start: float, end: float) -> None:
        """The consumer has its first batch."""
        tally = self._tally
        tally.epochs += 1
        tally.first_wait_seconds += end - start
        self.begun = start
        tally.clocks[id(self)] = weakref.ref(self)

    def pending(self) -> float:
        """Return the wall time that is not in the tally yet."""
        return 0.0 if self.begun is None else max(0.0, self.seen - self.begun)

    def __del__(self) -> None:
        """What is not in the tally yet goes there, when the iterator is gone."""
        if self.begun is not None:
            self._tally.clocks.pop(id(self), None)
            self._tally.settle(self.pending(), self.plain)


def next_sample(number: int) -> int:
    """Return the number of the next batch to take as an example, after `number`: rarely, if there are many."""
    return number + (SIZED_EVERY if number < MANY else 8 * SIZED_EVERY)


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
