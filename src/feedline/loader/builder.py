"""`LoaderBuilder`: the options of a `DataLoader` as a chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing import Self

    from feedline.loader.dataloader import DataLoader

__all__ = ["LoaderBuilder"]


class LoaderBuilder:
    """Collects options one by one; `build()` checks them together.

    >>> from feedline import DataLoader
    >>> loader = DataLoader.builder([1, 2, 3, 4]).batch_size(2).shuffle(seed=1).num_workers(2).build()
    >>> len(loader)
    2
    """

    def __init__(self, loader_class: type[DataLoader], dataset: Any) -> None:
        self._class = loader_class
        self._dataset = dataset
        self._options: dict[str, Any] = {}

    def _set(self, **options: Any) -> Self:
        self._options.update(options)
        return self

    def build(self) -> DataLoader:
        """Return the loader; raises what `DataLoader(...)` raises."""
        return self._class(self._dataset, **self._options)

    def batch_size(self, batch_size: int | None) -> Self:
        """Items per batch; `None` yields single items."""
        return self._set(batch_size=batch_size)

    def shuffle(self, shuffle: bool = True, *, seed: int | None = 0) -> Self:
        """A new order each epoch, from `seed`."""
        return self._set(shuffle=shuffle, seed=seed)

    def seed(self, seed: int | None) -> Self:
        """The seed of order and randomness."""
        return self._set(seed=seed)

    def sampler(self, sampler: Any) -> Self:
        """A sampler, or an iterable of indices."""
        return self._set(sampler=sampler)

    def batch_sampler(self, batch_sampler: Any) -> Self:
        """A batch sampler, or an iterable of lists of indices."""
        return self._set(batch_sampler=batch_sampler)

    def drop_last(self, drop_last: bool = True) -> Self:
        """Leave a last batch out that is not full."""
        return self._set(drop_last=drop_last)

    def transform(self, transform: Callable[..., Any] | None) -> Self:
        """What is done to each item."""
        return self._set(transform=transform)

    def collate_fn(self, collate_fn: Callable[..., Any] | None) -> Self:
        """What makes a batch of items."""
        return self._set(collate_fn=collate_fn)

    def num_workers(self, num_workers: int | Literal["auto"], worker_type: str | None = None) -> Self:
        """Batches computed at once, and by which kind of worker."""
        return self._set(num_workers=num_workers, **({"worker_type": worker_type} if worker_type else {}))

    def worker_type(self, worker_type: str) -> Self:
        """The kind of worker."""
        return self._set(worker_type=worker_type)

    def item_concurrency(self, item_concurrency: int) -> Self:
        """Items of one batch loaded at once."""
        return self._set(item_concurrency=item_concurrency)

    def prefetch_depth(self, prefetch_depth: int) -> Self:
        """Batches that may wait."""
        return self._set(prefetch_depth=prefetch_depth)

    def prefetch_bytes(self, prefetch_bytes: int | None) -> Self:
        """Bytes of batches in progress or waiting."""
        return self._set(prefetch_bytes=prefetch_bytes)

    def in_order(self, in_order: bool = True) -> Self:
        """Deliver in epoch order."""
        return self._set(in_order=in_order)

    def on_error(self, on_error: Any) -> Self:
        """What becomes of an item that fails."""
        return self._set(on_error=on_error)

    def max_failures(self, max_failures: int | float | None) -> Self:
        """How many items may fail."""
        return self._set(max_failures=max_failures)

    def timeout(self, timeout: float | None) -> Self:
        """Seconds that one item may take."""
        return self._set(timeout=timeout)

    def watchdog(self, watchdog: float | None) -> Self:
        """Seconds without movement after which the stacks of all workers are written out."""
        return self._set(watchdog=watchdog)

    def reseed_globals(self, reseed_globals: bool = True) -> Self:
        """Re-seed the global generators before each item."""
        return self._set(reseed_globals=reseed_globals)

    def pin_memory(self, pin_memory: bool = True) -> Self:
        """Hand torch tensors out in page-locked memory, where CUDA is there."""
        return self._set(pin_memory=pin_memory)

    def progress(self, progress: bool = True) -> Self:
        """Show a bar with items/s and the share of time spent waiting."""
        return self._set(progress=progress)

    def rank(self, rank: int, world_size: int) -> Self:
        """This process's share of a stream."""
        return self._set(rank=rank, world_size=world_size)
