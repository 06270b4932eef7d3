"""What a loader's arguments mean: is this a dataset, do they go together, where do batches come from, what loads them."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Literal

import numpy as np

from feedline.datasets.protocol import AsyncDataset, is_stream
from feedline.errors import OptionError
from feedline.loader.batch import BatchLoader, collate_or_default
from feedline.loader.execution.choice import check_workers
from feedline.loader.fetch import ItemLoader
from feedline.loader.options import LoaderOptions, check_map_options, check_stream_options
from feedline.loader.progress_bar import require_progress
from feedline.loader.source import BatchOrderSource, GivenOrder, IterableSource, OrderSource, Source
from feedline.loader.streams import StreamSource
from feedline.samplers.job import running_job
from feedline.samplers.random import RandomSampler
from feedline.samplers.sequential import SequentialSampler
from feedline.transforms.compose import Identity

__all__ = ["batch_loader_of", "bound_collate", "check_dataset", "check_together", "kind_of", "source_of"]


def bound_collate(collate_fn: Any, transform: Any) -> Any:
    """Tell a collate function that asks for it what the transform makes of an item (the layout of an image, say)."""
    if not getattr(collate_fn, "takes_indices", False) or not callable(getattr(collate_fn, "bind", None)):
        return collate_fn
    if hasattr(transform, "result"):
        return collate_fn.bind(transform.result)
    follow = getattr(transform, "follow", None)
    return collate_fn.bind(follow(None) if callable(follow) else None)


def check_dataset(dataset: Any) -> Any:
    """Return `dataset`; a `TypeError` if it is none, saying what to do."""
    if isinstance(dataset, type):
        raise TypeError(f"the dataset is the class {dataset.__name__}; give an instance of it")
    if isinstance(dataset, np.ndarray) and not dataset.ndim:
        raise TypeError(f"the dataset is the single value {dataset!r}: an array needs an axis of items")
    if isinstance(dataset, (str, bytes)):
        raise TypeError(
            f"the dataset is the {type(dataset).__name__} {dataset!r}; for a file use NdfDataset(path) or "
            f"FileDataset([path])"
        )
    if is_stream(dataset):
        return dataset
    missing = [name for name in ("__getitem__", "__len__") if not hasattr(type(dataset), name)]
    if missing:
        raise TypeError(
            f"a dataset has __getitem__ and __len__, or is iterable; {type(dataset).__name__} lacks "
            f"{' and '.join(missing)}"
        )
    return dataset


def kind_of(dataset: Any) -> Literal["map", "async", "stream"]:
    """Return which of the three kinds of datasets `dataset` is."""
    if is_stream(dataset):
        return "stream"
    return "async" if isinstance(dataset, AsyncDataset) else "map"


def check_together(dataset: Any, options: LoaderOptions) -> None:
    """Raise an `OptionError` where an option can't be had with this dataset, and a `MissingExtraError` for a missing library."""
    check_workers(options)
    if options.progress:
        require_progress()
    if options.reseed_globals and isinstance(dataset, AsyncDataset):
        raise OptionError(
            "reseed_globals=True with an AsyncDataset: its transform runs in a thread beside yours, which shares "
            "the global generators; draw from context.rng"
        )
    if isinstance(options.max_failures, float) and is_stream(dataset) and not isinstance(dataset, Sized):
        raise OptionError(
            f"max_failures={options.max_failures} is a fraction of an epoch's items, and nobody knows how many a "
            f"stream without a length has: give a count"
        )


def batch_loader_of(dataset: Any, options: LoaderOptions, seed: int) -> BatchLoader:
    """Return what loads batches of `dataset`, its random numbers drawn from `seed`."""
    transform = None if isinstance(options.transform, Identity) else options.transform
    items = ItemLoader(
        dataset,
        transform,
        seed=seed,
        item_concurrency=options.item_concurrency,
        on_error=options.on_error,
        timeout=options.timeout,
        reseed_globals=options.reseed_globals,
    )
    single = options.batch_size is None and options.batch_sampler is None
    # A gather can't be given up in the middle.
    plain = transform is None and options.collate_fn is None and options.timeout is None
    return BatchLoader(
        items,
        collate_or_default(bound_collate(options.collate_fn, transform), single),
        single_items=single,
        whole=plain and not single and callable(getattr(dataset, "take", None)),
    )


def source_of(dataset: Any, options: LoaderOptions) -> Source:
    """Return where the batches of `dataset` come from; an `OptionError` if the options don't fit it."""
    if is_stream(dataset):
        check_stream_options(options)
        rank, world_size = options.rank, options.world_size
        if rank is None or world_size is None:
            rank, world_size = running_job()
        if options.seed is None and world_size > 1:
            raise OptionError(
                "seed=None with world_size > 1: every rank would draw entropy of its own; give all ranks one seed"
            )
        return StreamSource(
            dataset, options.batch_size or 1, options.drop_last, rank, world_size, options.timeout
        )
    check_map_options(options)
    if options.batch_sampler is not None:
        if callable(getattr(options.batch_sampler, "batches", None)):
            return BatchOrderSource(dataset, options.batch_sampler)
        return IterableSource(dataset, options.batch_sampler, None, False)
    sampler = options.sampler
    size = options.batch_size or 1
    if sampler is None:
        sampler = RandomSampler(options.seed) if options.shuffle else SequentialSampler()
    if isinstance(sampler, np.ndarray) and sampler.ndim == 1 and sampler.dtype.kind in "iu":
        sampler = GivenOrder(sampler)
    if callable(getattr(sampler, "order", None)):
        return OrderSource(dataset, sampler, size, options.drop_last)
    return IterableSource(dataset, sampler, size, options.drop_last)
