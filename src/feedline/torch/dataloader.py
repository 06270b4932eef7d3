"""`DataLoader` with the arguments of `torch.utils.data.DataLoader`: one changed import."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, TensorDataset

import feedline
from feedline.datasets.protocol import is_stream
from feedline.errors import OptionError, StateError
from feedline.keys import derive_key
from feedline.loader.builder import LoaderBuilder
from feedline.loader.delivery import can_pin
from feedline.loader.execution.protocol import Session
from feedline.loader.groups import can_split
from feedline.loader.iterator import DataLoaderIterator
from feedline.loader.options import LoaderOptions
from feedline.loader.plan import Plan
from feedline.loader.progress import Position
from feedline.loader.source import Source
from feedline.samplers.protocol import Order
from feedline.samplers.random import RandomSampler as FeedlineRandomSampler
from feedline.samplers.sequential import SequentialSampler as FeedlineSequentialSampler
from feedline.torch.arguments import check_arguments, check_context, prefetch_depth_of, seconds_of
from feedline.torch.builder import TorchBuilder
from feedline.torch.collation import default_collate, default_convert
from feedline.torch.iterator import TorchIterator, WaitLimit
from feedline.torch.order import TorchSource
from feedline.torch.outgoing import outgoing, unchanged
from feedline.torch.rows import ROWS_AT_ONCE
from feedline.torch.samplers import EpochSampler
from feedline.torch.workers import DatasetWatch, PackedCollate, TorchBatchLoader, WorkerSetup

__all__ = ["DataLoader"]


class DataLoader(feedline.DataLoader):
    """A `feedline.DataLoader` that takes torch's arguments, in torch's order, and gives tensors.

    Args:
        dataset: a torch dataset, map-style or iterable; or whatever `feedline.DataLoader` takes.
        batch_size: items per batch; `None`: the sampler's values go to the dataset as they are (lists of indices, too).
        shuffle: a new order each epoch: of feedline's `(seed, epoch)`, or of `generator` as torch draws it.
        sampler, batch_sampler: torch's, feedline's, or any iterable, walked anew each epoch. One with
            `set_epoch` is told the epoch; when somebody else calls it, that is the epoch.
        num_workers: batches that are computed at once, in worker processes; 0 computes in the calling thread.
        collate_fn: makes a batch of a list of items; default: `default_collate`, or `default_convert` for single items.
        pin_memory: hand tensors out in page-locked memory; without CUDA they stay as they are, without a warning.
        drop_last: leave a last batch out that is not full.
        timeout: seconds that `next()` waits for a batch of a worker before it raises `RuntimeError`; 0: for ever.
        worker_init_fn: called in each worker process with its number, after its global generators were seeded.
        multiprocessing_context: `"spawn"`, `"forkserver"` or such a context: what feedline's workers amount to anyway,
            processes that start from a fresh interpreter. `"fork"` is refused.
        generator: torch's order of `shuffle=True`, exactly, and the seeds of the workers. Its state at the start of
            the epoch goes into `state_dict()`.
        prefetch_factor: batches per worker that may be in progress or waiting; default 2, with workers.
        persistent_workers: workers live as long as the loader in either case. With `False`, torch's default, new ones
            are made for an epoch before which attributes of the dataset were set to something else, so that they see
            it (what was changed in place, they do not); with `True`, they keep the dataset that they began with.
        pin_memory_device: deprecated in torch; refused alone, without effect and with a warning beside `pin_memory`.
        in_order: `False` delivers batches as they are ready.
        worker_type: `"process"`, as torch's workers are; `"thread"` starts at once, copies and pickles nothing, and
            is as quick wherever items spend their time in code that releases the GIL (decoding, NumPy, torch, files):
            prefer it if the dataset may be used from several threads.
        prefetch_depth: feedline's way to say `prefetch_factor`: batches that may wait beyond those in progress.
        item_timeout: seconds that one item may take; what `timeout` is to `feedline.DataLoader`.
        options: everything else of `feedline.DataLoader`: `seed`, `transform`, `item_concurrency`, `on_error`,
            `max_failures`, `prefetch_bytes`, `reseed_globals`, `rank`, `world_size`, ...

    Attributes:
        sampler, batch_sampler: what was given; else what torch would have made, to look at and to set epochs.
            `None` for streams.

    What differs from torch's loader: the order without `generator` is feedline's (seed 0 unless told otherwise), and
    the global generators are left alone; iterable datasets are read once, by one reader, whatever the number of workers
    (`get_worker_info()` is `None` there), and are dealt out to ranks only if `rank` and `world_size` are given; each
    `iter()` is an epoch of its own, also with `DistributedSampler`. `state_dict()` and `load_state_dict()` are those of
    `torchdata`'s `Stateful`.

    Raises:
        OptionError (a ValueError): an argument has a value out of its range, or contradicts another.
        TypeError: an argument, or the dataset, is of another type.

    Determinism: batch `k` of epoch `e` depends on (dataset, sampler, seed, e, k) alone; with `generator`, or samplers
    of torch that draw from one, on its state.
    Concurrency: as `feedline.DataLoader`.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(torch.arange(5)), batch_size=2)
    >>> [x.tolist() for [x] in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[..., Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_type: str = "process",
        prefetch_depth: int | None = None,
        item_timeout: float | None = None,
        **options: Any,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in _NO_ARGUMENTS}
        self._arguments = {**arguments, **options}
        if is_stream(dataset):
            # As torch: a stream that shall be dealt out to ranks deals itself out, unless it is asked for here.
            options = {"rank": 0, "world_size": 1, **options}
        chosen = LoaderOptions(
            batch_size=batch_size,
            shuffle=bool(shuffle),
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=bool(pin_memory),
            drop_last=drop_last,
            timeout=item_timeout,
            in_order=in_order,
            worker_type=worker_type,  # type: ignore[arg-type]
            prefetch_depth=prefetch_depth_of(prefetch_factor, num_workers, prefetch_depth),
            **options,
        )
        self._patience = seconds_of(timeout, num_workers)
        check_context(multiprocessing_context, num_workers, worker_type)
        check_arguments(
            num_workers=num_workers,
            worker_type=worker_type,
            worker_init_fn=worker_init_fn,
            generator=generator,
            persistent_workers=persistent_workers,
            pin_memory=pin_memory,
            pin_memory_device=pin_memory_device,
        )
        if num_workers and prefetch_factor is None and prefetch_depth is None:
            prefetch_factor = 2
        self._show(arguments, prefetch_factor)
        self._collates_by_default = collate_fn is None
        self._told_batches: int | None = None
        self._init(dataset, dataclasses.replace(chosen, collate_fn=self.collate_fn))
        self._watch = DatasetWatch(dataset)
        self._show_samplers()

    def _show(self, arguments: Mapping[str, Any], prefetch_factor: int | None) -> None:
        """Set the attributes that torch's loader has, by the names of its arguments."""
        self.num_workers: int = arguments["num_workers"]
        self.pin_memory: bool = arguments["pin_memory"]
        self.timeout: float = arguments["timeout"]
        self.worker_init_fn: Callable[[int], Any] | None = arguments["worker_init_fn"]
        self.multiprocessing_context: Any = arguments["multiprocessing_context"]
        self.generator: torch.Generator | None = arguments["generator"]
        self.prefetch_factor = prefetch_factor
        self.persistent_workers: bool = arguments["persistent_workers"]
        self.pin_memory_device: str = arguments["pin_memory_device"]
        self.in_order: bool = arguments["in_order"]
        self.drop_last: bool = arguments["drop_last"]
        single = arguments["batch_size"] is None and arguments["batch_sampler"] is None
        self.collate_fn: Callable[..., Any] = arguments["collate_fn"] or (
            default_convert if single else default_collate
        )

    def _show_samplers(self) -> None:
        options = self.options
        self.batch_size: int | None = options.batch_size if options.batch_sampler is None else None
        self.sampler: Any = options.sampler
        self.batch_sampler: Any = options.batch_sampler
        if is_stream(self.dataset):
            return
        if self.sampler is None:
            if isinstance(self._template, TorchSource) and self._ordered is not None:
                self.sampler = self._ordered
            else:
                self.sampler = EpochSampler(self)
        if self.batch_sampler is None and options.batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, options.batch_size, options.drop_last)

    @classmethod
    def builder(cls, dataset: Any) -> LoaderBuilder:
        """Return a builder, whose methods mean what they mean for `feedline.DataLoader`."""
        return TorchBuilder(cls, dataset)

    # -- what the loader is made of

    def _make_source(self) -> Source:
        """Return feedline's source where the order is feedline's, else one that walks as torch does."""
        options, generator = self.options, self.generator
        self._ordered: Any = None
        given = options.batch_sampler if options.batch_sampler is not None else options.sampler
        if is_stream(self.dataset):
            return super()._make_source()
        if given is None and generator is not None:
            made = RandomSampler(self.dataset, generator=generator) if options.shuffle else None
            given = self._ordered = made or SequentialSampler(self.dataset)
        if given is None:
            return super()._make_source()
        if callable(getattr(given, "order", None)) or callable(getattr(given, "batches", None)):
            if generator is not None:
                raise OptionError(
                    f"generator= and {type(given).__name__} contradict each other: the order of feedline's samplers "
                    f"comes from their seed; give one of the two"
                )
            return super()._make_source()
        whole = options.batch_sampler is not None
        size = None if whole else options.batch_size or 1
        single = not whole and options.batch_size is None
        return TorchSource(self.dataset, given, size, options.drop_last, single=single, generator=generator)

    def _arm(self) -> None:
        super()._arm()
        options, base = self.options, self._batches
        collate = base.collate_fn
        self._packs = options.worker_type == "process" and options.first_workers > 0
        if self._packs and collate is not None:
            collate = PackedCollate(collate)
        load = TorchBatchLoader(base.items, collate, single_items=base.single_items, whole=False)
        if self._collates_by_default and base.items.transform is None:
            if not base.single_items:
                load.take = load.find_take()
            elif type(self.dataset) is TensorDataset:
                load.take_lists = load.find_take()
        seed = self._present_seed()
        key = int.from_bytes(derive_key("torch base seed", seed, 0, size=8), "little")
        load.setup = WorkerSetup(options.first_workers, key >> 1, self.worker_init_fn)
        self._batches = load

    def _present_seed(self) -> int:
        seed = self._entropy if self.options.seed is None else self.options.seed
        assert seed is not None
        return seed

    def _own_order(self) -> Order:
        """Return the order of the next epoch, where it is feedline's own."""
        kind = (
            FeedlineRandomSampler(self._present_seed())
            if self.options.shuffle
            else FeedlineSequentialSampler()
        )
        return kind.order(len(self.dataset), self.epoch)

    def _group_size(self) -> int:
        take, size = self._batches.take, self.options.batch_size
        if self._group is None:
            rows = getattr(self.dataset, "take_rows", ROWS_AT_ONCE)
            is_small = take is not None and size is not None and size < rows
            self._group = -(-rows // size) if is_small and size and self._can_split(take) else 1
        return self._group

    @staticmethod
    def _can_split(take: Any) -> bool:
        return can_split(take(np.empty(0, np.int64), np.empty))

    def _delivery(self) -> Callable[[Any], Any] | None:
        return outgoing(
            packed=self._packs,
            whole=self._batches.take is not None or getattr(self._batches, "take_lists", None) is not None,
            masked=getattr(self.options.sampler, "tail", None) == "mask",
            pinned=self.options.pin_memory and can_pin(),
        )

    # -- iterating

    def _start(self, *, with_indices: bool) -> DataLoaderIterator:
        self._hear()
        if self._packs and not self.persistent_workers and self._watch.has_changed():
            # Iterators that live keep their workers.
            self._executors = {}
        return super()._start(with_indices=with_indices)

    def _iterator(self, start: Position, reading: Plan, with_indices: bool) -> DataLoaderIterator:
        source, load = self._source, self._batches
        if isinstance(source, TorchSource) and source.base_seed is not None:
            assert isinstance(load, TorchBatchLoader)
            assert load.setup is not None
            load.setup = dataclasses.replace(load.setup, base_seed=source.base_seed)
        return super()._iterator(start, reading, with_indices)

    def _make_iterator(self, *parts: Any, **options: Any) -> DataLoaderIterator:
        is_watched = is_stream(self.dataset) and self._told_batches is not None
        if self._patience is None and not is_watched:
            return super()._make_iterator(*parts, **options)
        progress, plan, session, *rest = parts
        limited: Session = session if self._patience is None else WaitLimit(session, self._patience)
        return TorchIterator(
            self._delivery() or unchanged,
            lambda: self._told_batches,
            progress,
            plan,
            limited,
            *rest,
            **options,
        )

    def __len__(self) -> int:
        """Return the number of batches in an epoch.

        Raises:
            TypeError: the sampler, or the stream, has no length.
        """
        batches = super().__len__()
        if is_stream(self.dataset):
            self._told_batches = batches
        return batches

    def batch_at(self, epoch: int, number: int) -> Any:
        """Return batch `number` of `epoch` again, loaded alone; see `feedline.DataLoader.batch_at`.

        Raises:
            TypeError: the order comes from a torch generator, which has no epochs to go back to.
        """
        if isinstance(self._source, TorchSource) and self._source.generators:
            raise TypeError(
                "batch_at() needs an order that depends on the epoch; this one comes from a torch.Generator, which "
                "only goes forward; leave generator= out, and use seed="
            )
        return super().batch_at(epoch, number)

    # -- epochs and positions

    def _hear(self) -> None:
        """Follow a `sampler.set_epoch()` that somebody else has called."""
        if isinstance(self._source, TorchSource):
            heard = self._source.voice.heard()
            if heard is not None:
                super().set_epoch(heard)
                self._source.voice.tell(heard)

    @property
    def epoch(self) -> int:
        """The epoch that the next `iter()` runs."""
        self._hear()
        return super().epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` run `epoch`, from its start; see `feedline.DataLoader.set_epoch`."""
        self._hear()
        if self._next.stream is None or self._next.epoch != epoch:
            super().set_epoch(epoch)
        if isinstance(self._source, TorchSource):
            self._source.voice.tell(self._next.epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from the newest iterator, as JSON values."""
        self._hear()
        return super().state_dict()

    def _completed(self, position: Position) -> Position:
        if position.stream is None and isinstance(self._source, TorchSource):
            # An epoch that has not begun begins with the generators as they are now.
            return dataclasses.replace(position, stream=self._source.present())
        return position

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` go on where `state` stands; see `feedline.DataLoader.load_state_dict`.

        Raises:
            StateError: it does not fit; nothing is changed.
        """
        if isinstance(self._source, TorchSource) and isinstance(state, Mapping):
            stream = state.get("stream")
            if stream is not None and not isinstance(stream, Mapping):
                raise StateError(f"the state's stream must be a dict, not {stream!r}")
            if state.get("fingerprint") == self._fingerprint():
                self._source.check(stream)
        super().load_state_dict(state)
        if isinstance(self._source, TorchSource):
            self._source.voice.tell(self._next.epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments, "state": self.state_dict()}

    def _changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.__getstate__(), "arguments": {**self._arguments, **changes}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self.load_state_dict(state["state"])


_NO_ARGUMENTS = ("self", "options", "__class__")
