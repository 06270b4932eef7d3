"""`BatchLoader.load`: fetch, transform, collate. The one function that every executor runs.

A `Task` says which items make which batch; an `Outcome` is what came of it. What a batch contains is a function of
(dataset, sampler, seed, epoch, batch number) alone, so nothing here knows of workers, but for the name in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.collate.default import default_collate
from feedline.loader.failures import Failure, as_batch_error, attach_note, is_ctrl_c
from feedline.loader.fetch import ItemFailed, ItemLoader, is_refusal
from feedline.loader.groups import split_batch

__all__ = ["BatchLoader", "Group", "MaskedBatch", "Outcome", "Task"]

#: Processor time is taken of one batch in so many.
CPU_EVERY = 16


class MaskedBatch(NamedTuple):
    """A batch of a sampler with `tail="mask"`.

    Attributes:
        data: the batch.
        mask: bool, shape `(rows,)`: True for a real row, False for one that only fills the step.
    """

    data: Any
    mask: npt.NDArray[np.bool_]


@dataclass(slots=True)
class Task:
    """What is to be loaded: one batch, or `count` consecutive ones of `batch_size` items that are gathered together."""

    number: int
    epoch: int
    indices: Sequence[Any] | npt.NDArray[np.int64]
    #: Rows that are real, for `tail="mask"`; `None` without a mask.
    real: int | None = None
    #: Found before anything was loaded: an index that is none.
    error: Exception | None = None
    count: int = 1
    batch_size: int = 0
    #: The items themselves, where a stream was read already; `indices` are their places in the stream.
    items: Sequence[Any] | None = None
    #: Processor time that lanes spent on it, beside the thread that loads it.
    lane_cpu_seconds: float = 0.0
    #: Time in which items were fetched before a worker had the task: awaited, or read from a stream.
    fetch_seconds: float = 0.0
    #: The same for each item that was awaited, all of them together.
    flight_seconds: float = 0.0

    def single(self, offset: int) -> Task:
        """Return batch `offset` of a group as a task of its own."""
        if self.count == 1:
            return self
        part = self.indices[offset * self.batch_size : (offset + 1) * self.batch_size]
        return Task(self.number + offset, self.epoch, part)


class Outcome:
    """What came of one batch: a value or an error, and what happened on the way.

    Attributes:
        number: the batch's.
        value: the batch, where there is no `error`.
        error: what the consumer gets instead.
        indices: of the rows that are really there.
        empty: nothing is left of the batch: every item was skipped.
        failures: items that failed.
        cause: what the last of them was raised with.
        fetch_seconds, transform_seconds, collate_seconds: where the time went.
        flight_seconds: time that items were awaited, all of them together.
        cpu_seconds: processor time of the thread that loaded it; 0 where nobody looked.
        began: when that was, by `perf_counter()`, behind `fetch_seconds` that passed before.
        worker: who loaded it; empty for a batch that nobody had to.
    """

    # Most outcomes differ from this in two attributes: defaults in the class make them cheap.
    error: Exception | None = None
    indices: Sequence[Any] | npt.NDArray[np.int64] = ()
    empty = False
    failures: tuple[Failure, ...] = ()
    cause: Exception | None = None
    fetch_seconds = 0.0
    transform_seconds = 0.0
    collate_seconds = 0.0
    flight_seconds = 0.0
    cpu_seconds = 0.0
    began = 0.0
    worker = ""

    def __init__(self, number: int, value: Any = None, **others: Any) -> None:
        self.number = number
        self.value = value
        if others:
            self.__dict__.update(others)


class Group:
    """What came of consecutive batches that were gathered together: their values, and what they have in common.

    Attributes:
        number: of the first batch.
        values: a batch each; `None` for one that was taken out.
        indices: of all rows.
        seconds: the share of each batch in the time that it took.
        cpu_seconds: the same of processor time.
        began: when it was begun, by `perf_counter()`.
        worker: who gathered them.
    """

    __slots__ = ("batch_size", "began", "cpu_seconds", "indices", "number", "seconds", "values", "worker")

    def __init__(
        self, task: Task, value: Any, began: float, seconds: float, cpu_seconds: float, worker: str
    ) -> None:
        self.number = task.number
        self.batch_size = task.batch_size
        self.indices = task.indices
        self.values = split_batch(value, task.count, task.batch_size)
        self.began = began
        self.seconds = seconds / task.count
        self.cpu_seconds = cpu_seconds / task.count
        self.worker = worker

    def rows(self, place: int) -> Any:
        """Return the indices of the batch at `place`."""
        return self.indices[place * self.batch_size : (place + 1) * self.batch_size]

    def single(self, number: int) -> Outcome:
        """Return what came of batch `number` as an outcome of its own."""
        place = number - self.number
        return Outcome(
            number,
            self.values[place],
            indices=self.rows(place),
            fetch_seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            began=self.began + place * self.seconds,
            worker=self.worker,
        )

    def forget(self, number: int) -> None:
        """Keep no hold of the value of batch `number`."""
        self.values[number - self.number] = None


@dataclass(slots=True)
class Run:
    """How a task is run here: who runs it, and whether anybody still waits for it."""

    worker: str = "the calling thread"
    #: The consumer's own thread: a KeyboardInterrupt on the main thread comes from the keyboard, not out of user code.
    interruptible: bool = False
    cancelled: Callable[[], bool] | None = None
    #: How one more item is had, where `dataset[index]` is not the way (a substitute for an asynchronous one).
    fetch: Callable[[Any], Any] | None = None
    #: Items that failed in an earlier epoch, by their index as a state records it: not tried again.
    known: Mapping[int | str, Failure] = field(default_factory=dict)

    def is_ctrl_c(self, error: BaseException) -> bool:
        """Tell whether `error` is for the consumer, at once."""
        return self.interruptible and is_ctrl_c(error)


class BatchLoader:
    """Loads batches; immutable, picklable, and safe to use from many threads.

    Args:
        items: how one item is loaded.
        collate_fn: makes a batch of items; `None` for single items (`batch_size=None` without a collate function).
        whole: gather whole batches by `dataset.take`, where there is neither a transform nor an own collate function.
    """

    #: Modules that worker processes need and that take long to import: imported once, before workers are forked.
    preload: tuple[str, ...] = ()

    def __init__(
        self, items: ItemLoader, collate_fn: Callable[..., Any] | None, *, single_items: bool, whole: bool
    ) -> None:
        self.items = items
        self.collate_fn = collate_fn
        self.single_items = single_items
        self.take: Callable[..., Any] | None = self.find_take() if whole else None
        self.takes_memory = bool(getattr(collate_fn, "takes_memory", False))
        self._takes_indices = bool(getattr(collate_fn, "takes_indices", False))
        self.pool = BufferPool()

    @property
    def is_plain(self) -> bool:
        """Whether a batch is just its items, collated; or just an item."""
        return self.items.is_plain and not self._takes_indices

    def load(self, task: Task, run: Run) -> list[Outcome]:
        """Load `task`; never raises, but for a `KeyboardInterrupt` where `run` is interruptible."""
        loaded = self.load_or_gather(task, run)
        return (
            [loaded.single(task.number + n) for n in range(task.count)]
            if isinstance(loaded, Group)
            else loaded
        )

    def load_or_gather(self, task: Task, run: Run) -> list[Outcome] | Group:
        """Load `task` as `load` does, but leave batches together that were gathered together."""
        if self.take is not None and task.error is None:
            indices = _as_array(task.indices)
            if indices is not None and not (run.known and not run.known.keys().isdisjoint(indices.tolist())):
                task.indices = indices
                gathered = self._load_whole(task, run)
                if gathered is not None:
                    return gathered
        outcomes = []
        # A system call: of some batches only.
        sampled = not task.number % CPU_EVERY
        start = thread_time() if sampled else 0.0
        for offset in range(task.count):
            if run.cancelled is not None and run.cancelled():
                break
            outcomes.append(self._load_one(task.single(offset), run))
        if outcomes and sampled:
            outcomes[-1].cpu_seconds = (thread_time() - start + task.lane_cpu_seconds) / len(outcomes)
        return outcomes

    def find_take(self) -> Callable[..., Any] | None:
        """Return what gathers whole batches; asked again in a worker process, where the dataset is another object."""
        take: Callable[..., Any] = self.items.dataset.take
        return take

    def enter_worker(self, number: int) -> None:
        """Prepare worker process `number`; called in it once, before its first task."""

    def close(self) -> None:
        """End the threads for items, if there were any; does not wait."""
        self.items.close()

    def _load_whole(self, task: Task, run: Run) -> list[Outcome] | Group | None:
        """Gather the batch in one go; `None` if that fails: item by item, the fault is named and treated as it is due."""
        assert self.take is not None
        start, cpu = perf_counter(), thread_time()
        try:
            value = self.take(task.indices, self.pool.allocate)
        except BaseException as error:
            if run.is_ctrl_c(error):
                raise
            return None
        seconds, cpu_seconds = perf_counter() - start, thread_time() - cpu
        if task.count > 1:
            return Group(task, value, start, seconds, cpu_seconds, run.worker)
        value = _masked(value, task.real, len(task.indices))
        return [
            Outcome(
                task.number,
                value,
                indices=task.indices,
                fetch_seconds=seconds,
                cpu_seconds=cpu_seconds,
                began=start,
                worker=run.worker,
            )
        ]

    def _load_one(self, task: Task, run: Run) -> Outcome:
        if task.error is not None:
            return Outcome(task.number, error=task.error)
        outcome = Outcome(task.number)
        outcome.worker = run.worker
        if task.fetch_seconds:
            # Also where all of them failed: that took time, too.
            outcome.fetch_seconds, outcome.flight_seconds = task.fetch_seconds, task.flight_seconds
        failures: list[tuple[int, Failure, Exception]] = []
        try:
            self._fill(outcome, task, run, failures)
        except ItemFailed as failed:
            outcome.error = failed.error
            if failed.position is not None:
                # Items behind it may have failed at the same time, on other lanes: one after the other, they would
                # never have been tried.
                last = failed.position
                failures[:] = [entry for entry in failures if entry[0] <= last]
        except BaseException as error:
            if run.is_ctrl_c(error):
                raise
            outcome.error = as_batch_error(error, None)
            attach_note(outcome.error, f"batch {task.number} of epoch {task.epoch}, in {run.worker}")
        if failures:
            failures.sort(key=itemgetter(0))
            outcome.failures = tuple(failure for _, failure, _ in failures)
            outcome.cause = failures[-1][2]
            # An error's traceback has frames that know this list: emptied, nothing keeps the error but its outcome.
            failures.clear()
        return outcome

    def _fill(
        self, outcome: Outcome, task: Task, run: Run, failures: list[tuple[int, Failure, Exception]]
    ) -> None:
        memory = BatchMemory(self.pool, len(task.indices))
        outcome.began = start = perf_counter()
        items, indices, skipped, transform_seconds = self.items.load(task, run, memory, failures)
        fetched = perf_counter()
        outcome.transform_seconds = transform_seconds
        outcome.fetch_seconds += max(0.0, fetched - start - transform_seconds)
        outcome.indices = indices
        if not items and len(task.indices):
            outcome.empty = True
            return
        real = task.real
        if real is not None:
            real -= sum(position < real for position in skipped)
        outcome.value = _masked(self._collate(items, memory, indices, task, run), real, len(items))
        outcome.collate_seconds = perf_counter() - fetched

    def _collate(
        self, items: list[Any], memory: BatchMemory, indices: Sequence[Any], task: Task, run: Run
    ) -> Any:
        collate = self.collate_fn
        if collate is None:
            return items[0]
        try:
            if self.single_items:
                return collate(items[0])
            if self._takes_indices:
                return collate(items, memory, indices)
            return collate(items, memory) if self.takes_memory else collate(items)
        except BaseException as error:
            if run.is_ctrl_c(error):
                raise
            raise ItemFailed(_collation_error(error, task, indices, run.worker)) from None

    def failed_fetch(self, task: Task, error: BaseException, position: int) -> Outcome:
        """Return the outcome of a batch whose item at `position` could not be fetched in the calling thread."""
        report, failure = self.items.report(error, task, position, task.indices[position], None, Run().worker)
        if is_refusal(error):
            return Outcome(task.number, error=report)
        return Outcome(task.number, error=report, failures=(failure,), cause=report)

    def failed_collation(self, task: Task, error: BaseException) -> Outcome:
        """Return the outcome of a batch whose items could not be collated in the calling thread."""
        return Outcome(task.number, error=_collation_error(error, task, task.indices, Run().worker))


def _as_array(indices: Any) -> npt.NDArray[np.int64] | None:
    """Return the indices for `take`, which knows no keys but ints; `None` if there are others."""
    if isinstance(indices, np.ndarray):
        return indices
    # Plain ints are all that a user's sampler leaves of integer-like values.
    if list(map(type, indices)).count(int) == len(indices):
        try:
            return np.array(indices, np.int64)
        except OverflowError:
            return None
    return None


def _collation_error(error: BaseException, task: Task, indices: Any, worker: str) -> Exception:
    report = as_batch_error(error, None)
    attach_note(
        report,
        f"batch {task.number} of epoch {task.epoch} failed in collation, in {worker}; "
        f"{_named_items(report, indices)}",
    )
    return report


def _masked(value: Any, real: int | None, rows: int) -> Any:
    return value if real is None else MaskedBatch(value, np.arange(rows) < real)


def _named_items(error: BaseException, indices: Sequence[Any]) -> str:
    positions = getattr(error, "positions", ())
    if isinstance(positions, tuple) and positions and max(positions) < len(indices):
        return ", ".join(f"row {position} is item {indices[position]!r}" for position in positions[:8])
    if not len(indices):
        return "it has no items: leave empty batches out of the sampler, or take a collate_fn that makes something of them"
    shown = ", ".join(repr(index) for index in list(indices)[:8])
    return f"items {shown}{', ...' if len(indices) > 8 else ''}"


def collate_or_default(
    collate_fn: Callable[..., Any] | None, single_items: bool
) -> Callable[..., Any] | None:
    """Return the collate function in use: none for single items, else the default one."""
    if collate_fn is None and not single_items:
        return default_collate
    return collate_fn
