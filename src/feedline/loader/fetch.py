"""`ItemLoader`: one item after the other (or several at once), transformed, with the failure policy applied."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Sequence
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feedline.keys import BatchUniforms
from feedline.loader import forks
from feedline.loader.failures import (
    MAX_SUBSTITUTES,
    ErrorPolicy,
    Failure,
    as_batch_error,
    attach_note,
    decide,
    recorded_index,
    substitutes,
)
from feedline.loader.lanes import Lanes
from feedline.loader.reseed import Reseeded
from feedline.transforms.protocol import ItemContext, RowSource, wants_context

if TYPE_CHECKING:
    from feedline.loader.batch import Run, Task

__all__ = ["ItemFailed", "ItemLoader", "Raised", "Rows", "is_refusal", "refuse_awaitable"]

#: Items of one batch in so many are timed one by one, where an item takes less than this: a clock costs time, too.
SPLIT_EVERY = 32
SLOW_ITEM_SECONDS = 20e-6
_SKIPPED = object()
_FETCH = -1
_REFUSAL = "_feedline_refusal"


class Raised:
    """Stands in the place of an item that could not be fetched ahead."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    def taken(self) -> BaseException:
        """Return the error, and keep it no longer: its traceback will have frames that know this object."""
        error, self.error = self.error, None
        assert error is not None
        return error


class Rows(NamedTuple):
    """What came of the items of a batch.

    Attributes:
        items: those that are there.
        indices: theirs, of substitutes their own.
        skipped: positions in the batch that were left out.
        transform_seconds: spent in the transform, all together.
    """

    items: list[Any]
    indices: Sequence[Any]
    skipped: Sequence[int]
    transform_seconds: float


class ItemFailed(Exception):
    """Carries the error of a batch out of the depths; never seen by a user."""

    def __init__(self, error: Exception, position: int | None = None) -> None:
        super().__init__()
        self.error = error
        #: The item's place in the batch; `None` where it is no single item's error.
        self.position = position


class Split(NamedTuple):
    """How the time of a batch's items divides.

    Attributes:
        share: of it, the transform's.
        is_slow: items take so long that two readings of the clock for each do not count.
    """

    share: float
    is_slow: bool


class ItemLoader:
    """How items are loaded: immutable, picklable, safe to use from many threads.

    Args:
        dataset: map-style, or the stream that the items came from.
        transform: callable on an item, or `None`.
        seed: the loader's, for `context.rng`, substitutes and `reseed_globals`.
        item_concurrency: items of a batch that are loaded at a time.
        on_error: what becomes of an item that fails.
        timeout: seconds for one item.
        reseed_globals: re-seed the global generators before each item.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[..., Any] | None,
        *,
        seed: int,
        item_concurrency: int = 1,
        on_error: ErrorPolicy = "raise",
        timeout: float | None = None,
        reseed_globals: bool = False,
    ) -> None:
        self.dataset = dataset
        self.transform = transform
        self.seed = seed
        self.item_concurrency = item_concurrency
        self.on_error = on_error
        self.timeout = timeout
        self.reseed_globals = reseed_globals
        self._with_context = transform is not None and wants_context(transform)
        self._lanes: tuple[int, Lanes] | None = None
        #: What the last batch whose items were timed one by one told; replaced in one assignment.
        self.split: Split | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lanes": None}

    def lanes(self) -> Lanes:
        """Return the threads below batches, new ones in a forked child."""
        if self._lanes is None or self._lanes[0] != forks.generation():
            # Two threads may both come here: one pool is dropped before it has a thread in use for long.
            self._lanes = (forks.generation(), Lanes("feedline-item"))
        return self._lanes[1]

    def close(self) -> None:
        """End the threads below batches; does not wait."""
        if self._lanes is not None:
            self._lanes[1].close()
            self._lanes = None

    def divide(self, seconds: float, transform_seconds: float | None, items: int) -> float:
        """Return how much of `seconds`, in which so many items were loaded, was the transform's.

        It is `transform_seconds`, where that was measured; else the same share as when it was measured last.
        """
        last = self.split
        if transform_seconds is None:
            transform_seconds = seconds * (0.0 if last is None else last.share)
        share = min(1.0, transform_seconds / seconds) if seconds > 0 else 0.0
        self.split = Split(share, seconds > SLOW_ITEM_SECONDS * items)
        return transform_seconds

    def load(
        self, task: Task, run: Run, memory: RowSource, failures: list[tuple[int, Failure, Exception]]
    ) -> Rows:
        """Return the items of one batch.

        Raises:
            ItemFailed: an item failed and the policy says "raise"; it carries the error, with a note.
        """
        indices = task.indices.tolist() if isinstance(task.indices, np.ndarray) else task.indices
        batch = _Batch(self, task, run, memory, failures)
        get_many = getattr(self.dataset, "__getitems__", None) if task.items is None else None
        if callable(get_many) and self.item_concurrency == 1 and len(indices):
            fetched = batch.fetch_together(get_many, indices)
            if fetched is not None:
                return batch.rows(indices, fetched.__getitem__)
        if task.items is not None:
            return batch.rows(indices, task.items.__getitem__)
        return batch.rows(indices, None)

    def report(
        self, error: BaseException, task: Task, position: int, index: Any, place: int | None, worker: str
    ) -> tuple[Exception, Failure]:
        """Return what the consumer gets for `error` of one item, with a note, and its record.

        `place` is the step of the transform, `None` where the item was being fetched.
        """
        report = as_batch_error(error, index)
        attach_note(
            report,
            f"item {index!r} (row {position} of batch {task.number}, epoch {task.epoch}) failed "
            f"{self._where(place)}, in {worker}",
        )
        return report, Failure.of(report, index, task.epoch, task.number, self.dataset)

    def _where(self, place: int | None) -> str:
        if place is None:
            return "when it was fetched"
        steps = getattr(self.transform, "steps", None)
        step = steps[place] if isinstance(steps, tuple) and place < len(steps) else self.transform
        return f"in step {place} of the transform, {_short_repr(step)}"

    @property
    def is_plain(self) -> bool:
        """Whether an item is just `dataset[index]`: no transform, no policy, no limit."""
        return self.transform is None and not self._has_extras()

    def _has_extras(self) -> bool:
        return (
            self.on_error != "raise"
            or self.timeout is not None
            or self.reseed_globals
            or (self.item_concurrency > 1)
        )


class _Batch:
    """One batch on its way: what its items share."""

    def __init__(
        self,
        loader: ItemLoader,
        task: Task,
        run: Run,
        memory: RowSource,
        failures: list[tuple[int, Failure, Exception]],
    ) -> None:
        self.loader = loader
        self.task = task
        self.run = run
        self.memory = memory
        self.failures = failures
        self.known = run.known
        self.transform_seconds = 0.0

    def fetch_together(self, get_many: Callable[..., Any], indices: Sequence[Any]) -> Sequence[Any] | None:
        """Return the items of `__getitems__`; `None` if it fails and the policy treats items one by one."""
        loader = self.loader
        known = self.known
        if loader.on_error != "raise" and any(recorded_index(index) in known for index in indices):
            return None
        try:
            if loader.timeout is None:
                items = get_many(indices)
            else:
                limit = loader.timeout * len(indices)
                items = loader.lanes().limited(lambda: get_many(indices), limit, "the items")
            refuse_awaitable([items], loader.dataset)
            count = len(items)
            if count != len(indices):
                raise ValueError(
                    f"{type(loader.dataset).__name__}.__getitems__ returned {count} items "
                    f"for {len(indices)} indices; it must return as many, in order"
                )
            if hasattr(items[0], "__await__"):
                refuse_awaitable(items, loader.dataset)
        except BaseException as error:
            if self.run.is_ctrl_c(error):
                raise
            if loader.on_error != "raise" and not is_refusal(error):
                return None
            position = getattr(error, "position", None)
            if type(position) is int and 0 <= position < len(indices):
                # Datasets of rows tell which one it was.
                raise ItemFailed(
                    self._record(error, position, indices[position], _FETCH)[0], position
                ) from None
            # Made elsewhere: kept in a variable here, it and its traceback would hold each other.
            raise self._failed_together(error, indices) from None
        return items  # type: ignore[no-any-return]

    def _failed_together(self, error: BaseException, indices: Sequence[Any]) -> ItemFailed:
        report = as_batch_error(error, None)
        attach_note(
            report,
            f"items {_some(indices)} of batch {self.task.number}, epoch {self.task.epoch}, failed "
            f"when they were fetched together by __getitems__, in {self.run.worker}",
        )
        return ItemFailed(report)

    def rows(self, indices: Sequence[Any], fetched: Callable[[int], Any] | None) -> Rows:
        """Load the items one by one, or `item_concurrency` at a time; `fetched(position)` gives one that is there."""
        loader = self.loader
        count = len(indices)
        if loader.item_concurrency > 1 and count > 1 and fetched is None:
            rows = loader.lanes().map(self._on_lanes(indices), count, loader.item_concurrency)
            # Of all lanes together, while the batch took as long as one of them.
            self.transform_seconds /= min(loader.item_concurrency, count)
        elif not (loader.reseed_globals or self._is_limited(fetched)):
            return self._quick_rows(indices, fetched)
        else:
            rows = []
            for position, index in enumerate(indices):
                if self.run.cancelled is not None and self.run.cancelled():
                    break
                rows.append(self._row(position, index, fetched))
        kept = [row for row in rows if row[1] is not _SKIPPED]
        skipped = [position for position, row in enumerate(rows) if row[1] is _SKIPPED]
        return Rows([item for _, item in kept], [index for index, _ in kept], skipped, self.transform_seconds)

    def _is_limited(self, fetched: Callable[[int], Any] | None) -> bool:
        """Tell whether an item may take too long here: one that is there needs no more time without a transform."""
        return self.loader.timeout is not None and (fetched is None or self.loader.transform is not None)

    def _on_lanes(self, indices: Sequence[Any]) -> Callable[[int], tuple[Any, Any]]:
        """Return what loads the item at a position on any thread, its processor time added to the task."""
        owner = threading.get_ident()

        def load(position: int) -> tuple[Any, Any]:
            if threading.get_ident() == owner:
                return self._row(position, indices[position], None)
            start = thread_time()
            try:
                return self._row(position, indices[position], None)
            finally:
                self.task.lane_cpu_seconds += thread_time() - start

        return load

    def _quick_rows(self, indices: Sequence[Any], fetched: Callable[[int], Any] | None) -> Rows:
        """Load the items one by one in this thread: what `_row` does, in one loop without calls of our own."""
        loader, cancelled, memory = self.loader, self.run.cancelled, self.memory
        transform, with_context = loader.transform, loader._with_context
        # A stream has no __getitem__, but then its items are here.
        get: Any = self.run.fetch or getattr(loader.dataset, "__getitem__", None)
        known = self.known if loader.on_error != "raise" else {}
        epoch, seed, seconds = self.task.epoch, loader.seed, 0.0
        split = loader.split
        timed = split is None or split.is_slow or not self.task.number % SPLIT_EVERY
        began = perf_counter()
        items: list[Any] = []
        # Only where a row is left out or replaced do the indices differ from what was asked for.
        kept: list[Any] | None = None
        skipped: list[int] = []
        context: ItemContext | None = None
        draws = BatchUniforms(seed, epoch, indices) if with_context else None
        for position, index in enumerate(indices):
            if cancelled is not None and cancelled():
                break
            if known and recorded_index(index) in known:
                row = self._without(position, index, "known")
            else:
                place = _FETCH
                try:
                    item = get(index) if fetched is None else fetched(position)
                    if fetched is None:
                        if position == 0:
                            refuse_awaitable([item], loader.dataset)
                    elif type(item) is Raised:
                        raise item.taken()
                    if transform is not None:
                        place = 0
                        start = perf_counter() if timed else 0.0
                        if with_context:
                            context = ItemContext(index, epoch, seed, memory, position, draws)
                            item = transform(item, context)
                        else:
                            item = transform(item)
                        if timed:
                            seconds += perf_counter() - start
                    items.append(item)
                    if kept is not None:
                        kept.append(index)
                    continue
                except BaseException as error:
                    if self.run.is_ctrl_c(error):
                        raise
                    if place != _FETCH and with_context and context is not None:
                        place = context.place
                    row = self._failed(error, position, index, place)
            if kept is None:
                kept = list(indices[:position])
            if row[1] is _SKIPPED:
                skipped.append(position)
            else:
                items.append(row[1])
                kept.append(row[0])
        if transform is not None:
            whole = perf_counter() - began
            seconds = loader.divide(whole, seconds if timed else None, len(items))
        return Rows(items, indices if kept is None else kept, skipped, self.transform_seconds + seconds)

    def _row(self, position: int, index: Any, fetched: Callable[[int], Any] | None) -> tuple[Any, Any]:
        """Return (index, item) of what stands at `position` in the end; the item may be `_SKIPPED`."""
        if self.loader.on_error != "raise" and recorded_index(index) in self.known:
            return self._without(position, index, "known")
        stage = [_FETCH]
        try:
            return index, self._attempt(position, index, fetched, stage)
        except BaseException as error:
            if self.run.is_ctrl_c(error):
                raise
            return self._failed(error, position, index, stage[0])

    def _attempt(
        self, position: int, index: Any, fetched: Callable[[int], Any] | None, stage: list[int]
    ) -> Any:
        loader = self.loader
        if loader.timeout is None:
            return self._one(position, index, fetched, stage, self.memory)
        # What an item that was given up still writes must not reach the batch: it gets memory of its own.
        return loader.lanes().limited(
            lambda: self._one(position, index, fetched, stage, None), loader.timeout, "the item"
        )

    def _one(
        self,
        position: int,
        index: Any,
        fetched: Callable[[int], Any] | None,
        stage: list[int],
        memory: RowSource | None,
    ) -> Any:
        loader = self.loader
        if loader.reseed_globals:
            with Reseeded(loader.seed, self.task.epoch, index):
                return self._fetch_and_transform(position, index, fetched, stage, memory)
        return self._fetch_and_transform(position, index, fetched, stage, memory)

    def _fetch_and_transform(
        self,
        position: int,
        index: Any,
        fetched: Callable[[int], Any] | None,
        stage: list[int],
        memory: RowSource | None,
    ) -> Any:
        loader = self.loader
        if fetched is not None:
            item = fetched(position)
            if type(item) is Raised:
                raise item.taken()
        elif self.run.fetch is not None:
            item = self.run.fetch(index)
        else:
            item = loader.dataset[index]
            if hasattr(item, "__await__"):
                refuse_awaitable([item], loader.dataset)
        transform = loader.transform
        if transform is None:
            return item
        start = perf_counter()
        stage[0] = 0
        if loader._with_context:
            context = ItemContext(index, self.task.epoch, loader.seed, memory, position)
            try:
                item = transform(item, context)
            finally:
                stage[0] = context.place
        else:
            item = transform(item)
        self.transform_seconds += perf_counter() - start
        return item

    def _failed(self, error: BaseException, position: int, index: Any, place: int) -> tuple[Any, Any]:
        if is_refusal(error):
            # No matter of one item, and not for the policy: the dataset is of the wrong kind.
            raise ItemFailed(self.loader.report(error, self.task, position, index, None, self.run.worker)[0])
        report, failure = self._record(error, position, index, place)
        decision = decide(self.loader.on_error, failure)
        if decision == "raise":
            raise ItemFailed(report, position)
        return self._without(position, index, decision, report)

    def _record(
        self, error: BaseException, position: int, index: Any, place: int
    ) -> tuple[Exception, Failure]:
        step = None if place == _FETCH else place
        report, failure = self.loader.report(error, self.task, position, index, step, self.run.worker)
        self.failures.append((position, failure, report))
        return report, failure

    def _without(
        self, position: int, index: Any, decision: str, report: Exception | None = None
    ) -> tuple[Any, Any]:
        """Return what stands in the place of an item that can't be had."""
        if decision == "known":
            policy = self.loader.on_error
            # A callable has decided once already; what it said then is what it is asked again now.
            decision = policy if isinstance(policy, str) else self._ask_again(index)
        if decision != "substitute":
            return index, _SKIPPED
        return self._substitute(position, index, report)

    def _ask_again(self, index: Any) -> str:
        known = self.known[recorded_index(index)]
        decision = decide(self.loader.on_error, known)
        return "skip" if decision == "raise" else decision

    def _substitute(self, position: int, index: Any, report: Exception | None) -> tuple[Any, Any]:
        loader, task = self.loader, self.task
        if not isinstance(index, int) or not hasattr(loader.dataset, "__getitem__"):
            what = f"the key {index!r}" if not isinstance(index, int) else "an item of a stream"
            final = report or RuntimeError(f"item {index!r} failed before")
            attach_note(final, f"there is no substitute for {what}")
            raise ItemFailed(final, position)
        tried: set[int] = set()
        for candidate in substitutes(loader.seed, task.epoch, index, len(loader.dataset)):
            if candidate in self.known or candidate in tried:
                continue
            tried.add(candidate)
            stage = [_FETCH]
            try:
                return candidate, self._attempt(position, candidate, None, stage)
            except BaseException as error:
                if self.run.is_ctrl_c(error):
                    raise
                report, _ = self._record(error, position, candidate, stage[0])
        final = report or RuntimeError(f"item {index} failed before")
        attach_note(
            final, f"no substitute for item {index} worked, of {MAX_SUBSTITUTES} tried (batch {task.number})"
        )
        raise ItemFailed(final, position)


def refuse_awaitable(items: Sequence[Any], dataset: Any) -> None:
    """Raise a `TypeError` if the first of `items` is to be awaited, saying what to do."""
    if not inspect.isawaitable(items[0]):
        return
    for item in items:
        if inspect.iscoroutine(item):
            item.close()  # else Python warns that it was never awaited
    refusal = TypeError(
        f"{type(dataset).__name__}.__getitem__ (or __getitems__) returned an awaitable; for asynchronous "
        f"items, subclass feedline.AsyncDataset"
    )
    refusal.__dict__[_REFUSAL] = True
    raise refusal


def is_refusal(error: BaseException) -> bool:
    """Tell whether `error` is `refuse_awaitable`'s."""
    return type(error) is TypeError and _REFUSAL in error.__dict__


def _short_repr(value: Any) -> str:
    """Name a step: functions by their names, others by their repr, without addresses, which differ from run to run."""
    text = getattr(value, "__qualname__", None)
    if not isinstance(text, str):
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    return text if len(text) <= 120 else text[:117] + "..."


def _some(indices: Sequence[Any]) -> str:
    shown = ", ".join(repr(index) for index in indices[:8])
    return shown + (", ..." if len(indices) > 8 else "")
