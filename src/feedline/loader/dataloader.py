"""`DataLoader`: checks and stores, makes iterators, tells and takes positions. It starts nothing."""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from feedline.datasets.protocol import AsyncDataset
from feedline.keys import check_epoch, fresh_seed
from feedline.loader import forks
from feedline.loader.again import load_again, task_again
from feedline.loader.builder import LoaderBuilder
from feedline.loader.choose import batch_loader_of, check_dataset, check_together, kind_of, source_of
from feedline.loader.delivery import DeliveringIterator, can_pin, pin
from feedline.loader.equipment import (
    consumers_plan,
    equipped,
    fill_source_of,
    group_of,
    hint_of,
    leaves_nothing,
    pace_of,
    plain_lane,
    progress_bar,
    warn_of_no_batch,
)
from feedline.loader.execution.choice import make_executor
from feedline.loader.execution.protocol import Executor, Session
from feedline.loader.execution.serial import SerialExecutor
from feedline.loader.failures import Failure
from feedline.loader.iterator import DataLoaderIterator
from feedline.loader.ledger import Ledger, known_failures
from feedline.loader.options import LoaderOptions, check_names
from feedline.loader.plain import PlainLane
from feedline.loader.plan import Plan
from feedline.loader.progress import Position, Progress
from feedline.loader.resuming import check_fits, position_of
from feedline.loader.source import Source
from feedline.loader.state import LoaderState
from feedline.loader.stats import Clock, LoaderStats
from feedline.loader.telling import Telling
from feedline.loader.trace import Trace

__all__ = ["DataLoader"]


class DataLoader:
    """Batches of a dataset, in an order that depends on (seed, epoch) alone, from any place on.

    Args:
        dataset: anything with `__len__` and `__getitem__`, an `AsyncDataset`, or a stream: see `feedline.Dataset`.
        batch_size: items per batch; `None` yields single items.
        shuffle: a new order each epoch, as `RandomSampler(seed)` gives it.
        sampler: a sampler, or any iterable of indices, walked anew each epoch.
        batch_sampler: a batch sampler, or any iterable of lists of indices.
        drop_last: leave a last batch out that is not full.
        seed: for the order and for `context.rng`, 0 to 2**64 - 1. `None` draws entropy once and keeps it in the state.
        transform: applied to each item in the workers, as `f(item)` or `f(item, context)`.
        collate_fn: makes a batch of a list of items; default `feedline.default_collate`.
        num_workers: batches that are computed at once; 0 computes in the calling thread, `"auto"` finds out how many
            are of use, while it runs, and changes nothing else.
        worker_type: `"thread"`, `"process"` for items that hold the GIL (needs the extra `process`), or `"ray"`: actors of
            a Ray cluster (needs the extra `ray`).
        item_concurrency: items of one batch that are loaded at once; of a stream, whose items are read in order by one
            reader, it changes nothing.
        prefetch_depth: batches that may wait, beyond those in progress.
        prefetch_bytes: and how many bytes they may have, all together.
        in_order: deliver in epoch order; `False` delivers as batches are ready, and resumes exactly all the same.
        on_error: what becomes of an item that fails: `"raise"`, `"skip"`, `"substitute"`, or a callable
            `(failure) -> ` one of these.
        max_failures: how many items may fail, or which fraction of an epoch's items, before the run ends.
        timeout: seconds that one item may take.
        watchdog: seconds without a batch after which the stacks of all workers are written out.
        progress: show a bar with items/s and the share of time spent waiting (needs the extra `cli`).
        reseed_globals: make the global generators of Python, NumPy and torch depend on (seed, epoch, index), too.
        pin_memory: hand torch tensors out in page-locked memory, for quick copies to a GPU; structure and types are
            kept, an object's own `pin_memory()` is called, and everything else, or without CUDA all, stays as it is.

        rank, world_size: this process's share of a stream; default: those of the running job.

    A map-style loader never shards by itself: `DistributedSampler` does.

    Raises:
        OptionError: an option has a value out of its range, or contradicts another.
        TypeError: an option, or the dataset, is of another type.

    Determinism: batch `k` of epoch `e` depends on (dataset, sampler, seed, e, k) alone, not on workers or timing.
    Concurrency: may be used from any thread; each iterator by one thread at a time. After `fork` it works in the child.

    >>> import numpy as np
    >>> from feedline import ArrayDataset, DataLoader
    >>> loader = DataLoader(ArrayDataset(np.arange(5)), batch_size=2)
    >>> [x.tolist() for x, in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, **options: Any) -> None:
        check_names(options)
        self._init(dataset, LoaderOptions(batch_size=batch_size, **options))

    def _init(self, dataset: Any, options: LoaderOptions) -> None:
        self.dataset = check_dataset(dataset)
        self.options = options
        # Where the next iterator starts, and what states speak of: each replaced in one assignment, so that a state
        # that another thread takes is whole.
        self._next = Position(0)
        self._standing: Position | Progress = self._next
        self._failures: list[Failure] = []
        self._closed = False
        self._warned = False
        self._locks: dict[int, threading.Lock] = {}
        self._executors: dict[int, Executor] = {}
        self._iterators: weakref.WeakSet[DataLoaderIterator] = weakref.WeakSet()
        check_together(dataset, options)
        gives_many = any(callable(getattr(dataset, name, None)) for name in ("take", "__getitems__"))
        self.telling = Telling(options, kind_of(dataset), gives_many=gives_many)
        self._tally = self.telling.tally
        self._template = self._make_source()
        self._entropy = fresh_seed() if options.seed is None else self._template.entropy
        self._arm()

    def _make_source(self) -> Source:
        """Return where the batches' indices come from."""
        return source_of(self.dataset, self.options)

    def _arm(self) -> None:
        """Bind what depends on the entropy in use."""
        self._source: Source = self._template
        if self._template.entropy is not None and self._entropy is not None:
            self._source = self._template.with_seed(self._entropy)
        seed = self._entropy if self.options.seed is None else self.options.seed
        assert seed is not None
        self._batches = batch_loader_of(self.dataset, self.options, seed)
        self._group: int | None = None

    @classmethod
    def builder(cls, dataset: Any) -> LoaderBuilder:
        """Return a builder: `DataLoader.builder(dataset).batch_size(32).shuffle(seed=1).build()`."""
        return LoaderBuilder(cls, dataset)

    # -- iterating

    def __iter__(self) -> DataLoaderIterator:
        """Start the next epoch, or go on where a loaded state stands."""
        return self._start(with_indices=False)

    def iter_with_indices(self) -> DataLoaderIterator:
        """Start the next epoch, yielding `(indices, batch)`: the list of indices of the rows that are really there."""
        return self._start(with_indices=True)

    def _start(self, *, with_indices: bool) -> DataLoaderIterator:
        if self._closed:
            raise RuntimeError("the loader is closed")
        with self._lock():
            start = self._next
            plan = self._source.plan(start.epoch, start.units, start.batch, start.stream)
            if start.units and plan.end() is None and plan.task(start.batch) is None:
                # Of an iterable without a length, only now it shows that nothing is left: on to the next epoch.
                start = Position(start.epoch + 1)
                plan = self._source.plan(start.epoch, 0, 0)
            if not (self._warned or start.units) and leaves_nothing(
                plan, self.options, self._source, start.epoch
            ):
                self._warned = True
                warn_of_no_batch(self.options, self._source, start.epoch)
            iterator = self._iterator(start, plan, with_indices)
            self._standing = iterator.progress
            self._next = Position(start.epoch + 1)
        self._iterators.add(iterator)
        return iterator

    def _iterator(self, start: Position, reading: Plan, with_indices: bool) -> DataLoaderIterator:
        plan = consumers_plan(reading, self.options)
        progress = Progress(self._source, plan, start)
        options, known = self.options, self._known(start.epoch)
        executor, telling = self._executor(), self.telling
        session = equipped(executor.session(options.in_order, known), reading, plan, options)
        clock = Clock(self._tally)
        bar = progress_bar(options, self._source, start, plan, self._tally)
        iterator = self._make_iterator(
            progress,
            plan,
            session,
            pace_of(options, telling.width, self._group_size() if plan.can_group else 1),
            on_received=Ledger(self._failures, options.max_failures, self._epoch_items),
            make_state=_StateMaker(self),
            hint=hint_of(self.dataset),
            fill_source=fill_source_of(self.dataset, options),
            expected=self._source.batches(start.epoch) if plan.end() is None else None,
            with_indices=with_indices,
            tally=self._tally,
            clock=clock,
            observers=[*telling.observers(start.epoch), *([] if bar is None else [bar])],
            lookout=telling.lookout(executor),
            plain=None if start.ahead or known else self._plain_lane(plan, session, clock),
        )
        telling.let_grow(iterator, executor)
        return iterator

    def _known(self, epoch: int) -> dict[int | str, Failure]:
        return known_failures(self._failures, self.options.on_error, epoch)

    def _make_iterator(self, *parts: Any, **options: Any) -> DataLoaderIterator:
        deliver = self._delivery()
        if deliver is None:
            return DataLoaderIterator(*parts, **options)
        return DeliveringIterator(deliver, *parts, **options)

    def _delivery(self) -> Callable[[Any], Any] | None:
        """Return what is done to a batch when it is handed out; `None` for nothing."""
        return pin if self.options.pin_memory and can_pin() else None

    def _is_async(self) -> bool:
        return isinstance(self.dataset, AsyncDataset)

    def _plain_lane(self, plan: Plan, session: Session, clock: Clock) -> PlainLane | None:
        """Return the short cut, where one may be taken."""
        if self.options.progress or self.telling.is_listened_to or hint_of(self.dataset) is not None:
            return None
        return plain_lane(self._batches, self.options, plan, session, self._group_size, self._tally, clock)

    def _group_size(self) -> int:
        """Return how many batches are gathered at once: small ones together, if the dataset asks for it."""
        if self._group is None:
            self._group = group_of(self._batches, self.options.batch_size)
        return self._group

    def _executor(self) -> Executor:
        # One for each process that the loader lives in: threads do not survive a fork. Making one starts nothing, so
        # of two that are made at once, one is dropped.
        key = forks.generation()
        executor = self._executors.get(key)
        if executor is None:
            made = make_executor(self._batches, self.options, self._is_async(), self.telling.width)
            executor = self._executors.setdefault(key, made)
        return executor

    def _lock(self) -> threading.Lock:
        # A lock that another thread held when the process was forked stays locked in the child: a new one there.
        return self._locks.setdefault(forks.generation(), threading.Lock())

    def __len__(self) -> int:
        """Return the number of batches in an epoch.

        Raises:
            TypeError: the sampler is an iterable without a length.
        """
        batches = self._source.batches(self._next.epoch)
        if batches is None:
            raise TypeError("this loader has no length: its sampler is an iterable without one")
        return batches

    def batch_at(self, epoch: int, number: int) -> Any:
        """Return batch `number` of `epoch` again, loaded alone; nothing else changes.

        It speaks of a whole epoch under the present world size.

        Raises:
            IndexError: the epoch has no such batch.
        """
        epoch = check_epoch(epoch)
        if self._closed:
            raise RuntimeError("the loader is closed")
        task = task_again(self.dataset, self._source, epoch, number)
        executor = self._executor() if self._is_async() else SerialExecutor(self._batches)
        value = load_again(task, executor.session(True, self._known(epoch)))
        deliver = self._delivery()
        return value if deliver is None else deliver(value)

    # -- epochs and positions

    @property
    def epoch(self) -> int:
        """The epoch that the next `iter()` runs."""
        return self._next.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` run `epoch`, from its start.

        A loaded position is kept if it lies in that same epoch (training loops call this before each epoch, also
        before the one that they resume). Iterators that live keep the epoch that they were made for.
        """
        epoch = check_epoch(epoch)
        with self._lock():
            if self._next.epoch == epoch and (self._next.units or self._next.ahead):
                return
            self._standing = self._next = Position(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from the newest iterator, as JSON values.

        Costs microseconds, starts nothing, and may be called at any time from any thread.
        """
        standing = self._standing
        return self._state_of(standing if isinstance(standing, Position) else standing.position())

    def _completed(self, position: Position) -> Position:
        """Return `position` with all that a state needs."""
        return position

    def _state_of(self, position: Position, failures: int | None = None) -> dict[str, Any]:
        """Return the state at `position`, with the first so many failures, or all."""
        position = self._completed(position)
        return LoaderState(
            epoch=position.epoch,
            position=position.units,
            batch=position.batch,
            world_size=self._source.stride,
            ahead=tuple(sorted(position.ahead)),
            stream=position.stream,
            entropy=self._entropy if self._is_unseeded() else None,
            failures=tuple(self._failures[:failures]),
            fingerprint=self._fingerprint(),
        ).as_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` go on where `state` stands: a seek, nothing is replayed.

        Iterators that live go on as before.

        Raises:
            StateError: it does not fit; the message has a line for each difference, and nothing is changed.
        """
        loaded = LoaderState.from_dict(state)
        check_fits(loaded, self._fingerprint(), self._source.stride, is_unseeded=self._is_unseeded())
        entropy_before, source_before, batches_before = self._entropy, self._source, self._batches
        if loaded.entropy is not None:
            self._entropy = loaded.entropy
            self._arm()
        try:
            position = position_of(loaded, self._source)
        except BaseException:
            self._entropy, self._source, self._batches = entropy_before, source_before, batches_before
            raise
        with self._lock():
            if loaded.entropy is not None:
                # Workers hold the batch loader with the entropy of before: new ones are made.
                self._executors = {}
            self._failures = list(loaded.failures)
            self._standing = self._next = position

    def _is_unseeded(self) -> bool:
        return self.options.seed is None or self._template.entropy is not None

    def _fingerprint(self) -> dict[str, Any]:
        # From the template, where an unseeded sampler still says `seed: None`.
        return {**self._template.describe(), "seed": self.options.seed}

    # -- failures and ends

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Every item that failed so far in batches that were delivered, those of a loaded state first."""
        return tuple(self._failures)

    def _epoch_items(self, epoch: int) -> int:
        return self._source.items(epoch) or 0

    def stats(self) -> LoaderStats:
        """Return what this loader has done so far, in numbers; `str()` of it is a sentence."""
        return self.telling.stats()

    def report(self) -> str:
        """Return one screen in plain words: which side waits, which stage is the bottleneck, what to change."""
        try:
            items = self._source.items(self.epoch)
        except Exception:  # a length that can't be had must not cost the report
            items = None
        return self.telling.report(items, self._failures[-1] if self._failures else None)

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Return a context manager that records what iterators made within it do, for https://ui.perfetto.dev.

        Each worker has a track with the stages of its batches, your loop one with its waits and steps. The file is written
        at the end, in one step.

        Raises:
            FileNotFoundError: the folder of `path` does not exist.

        >>> loader = DataLoader(list(range(8)), batch_size=4, num_workers=2)
        >>> with loader.trace("epoch.json"):
        ...     for batch in loader:
        ...         pass
        """
        return Trace(path, self)

    def on_stats(self, callback: Callable[[LoaderStats], object], every: int = 100) -> Callable[[], None]:
        """Let `callback(stats)` be called each `every` batches, and at the end of each epoch.

        For monitors such as TensorBoard or Prometheus. It runs in the consumer's thread, from the next iterator on; an error
        in it is logged once, and never ends a training. `stats.since(before)` gives the numbers of an interval.

        Returns:
            A function that takes the callback back, for iterators that are made later.

        >>> loader = DataLoader(list(range(8)), batch_size=2)
        >>> remove = loader.on_stats(lambda stats: print(stats.items), every=2)
        >>> for batch in loader:
        ...     pass
        4
        8
        """
        return self.telling.add_callback(callback, every)

    def with_options(self, **changes: Any) -> DataLoader:
        """Return another loader over the same dataset, at the same place, with some options changed.

        Raises:
            TypeError: there is no such option.
            OptionError: it has no such value, or contradicts another.

        >>> DataLoader([1, 2, 3], batch_size=2).with_options(num_workers=2).options.num_workers
        2
        """
        other = type(self).__new__(type(self))
        other.__setstate__(self._changed(changes))
        return other

    def _changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.__getstate__(), "options": dataclasses.replace(self.options, **changes)}

    def close(self) -> None:
        """End workers and iterators; idempotent. The state stays readable."""
        self._closed = True
        for iterator in list(self._iterators):
            iterator.close()
        executor = self._executors.get(forks.generation())
        if executor is not None:
            executor.close()

    def __enter__(self) -> DataLoader:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A loader travels as what it was made of and where it stands; iterators and workers stay behind.
        return {"dataset": self.dataset, "options": self.options, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._init(state["dataset"], state["options"])
        self.load_state_dict(state["state"])

    def __repr__(self) -> str:
        defaults = LoaderOptions()
        shown = [
            f"{name}={getattr(self.options, name)!r}"
            for name in LoaderOptions.names()
            if getattr(self.options, name) != getattr(defaults, name)
        ]
        return f"DataLoader({', '.join([type(self.dataset).__name__, *shown])})"


class _StateMaker:
    """Makes states for iterators, whose loader may be gone: holds what is needed, weakly where it can."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __call__(self, progress: Progress) -> dict[str, Any]:
        return self._loader._state_of(progress.position())

    def bookmark(self, progress: Progress) -> Callable[[], dict[str, Any]]:
        loader = self._loader
        return partial(loader._state_of, loader._completed(progress.position()), len(loader._failures))
