"""What a dataset is: three contracts, as tables.

Map-style (`Dataset`): any object with these; no base class is needed.

| method | required | called |
| --- | --- | --- |
| `__getitem__(index)` | yes | once per item, on several threads at once if there are several workers |
| `__len__()` | yes | at every start of an epoch, to size it |
| `__getitems__(indices)` | no | once per batch instead, when items are not fetched in parallel; returns as many items, in order; `None` turns it off |
| `prefetch(indices)` | no | as soon as the loader knows that these will be asked for; a hint that returns at once |
| `location(index)` | no | for an item that failed, where the error does not tell: its path, URL or key, without secrets, as a `str` |
| `take(indices, allocate)` | no | once per batch instead of all of the above, when there is no transform and the default collation |

`take(indices, allocate)` is the fast path of datasets that lie in arrays: `indices` is an int64 array of shape `(b,)`,
and the result is the whole batch, equal bit for bit to `default_collate` of the items. `allocate(shape, dtype)` gives
the memory to fill (new to everybody else, perhaps reused). It checks the indices itself: an index out of range is an
`IndexError` whose attribute `position` tells its place in `indices`, and nothing wraps. An attribute `take_rows: int`
asks the loader for batches in groups of at least so many rows (memory-bound gathers amortise their start so).

Asynchronous (`AsyncDataset`): subclass it.

| method | required | awaited |
| --- | --- | --- |
| `async __getitem__(index)` | yes | once per item; up to `item_concurrency` of a batch and `num_workers` batches at once |
| `__len__()` | yes | called, not awaited |
| `async __getitems__(indices)` | no | once per batch instead, when `item_concurrency == 1` |
| `location(index)` | no | called, not awaited, as above |
| `async aclose()` | no | once per event loop, when that loop ends; at most 5 s |

Streams (`IterableDataset`): any iterable without `__getitem__`, or a subclass.

| method | required | called |
| --- | --- | --- |
| `__iter__()` | yes | once per epoch, by one reader |
| `__len__()` | no | to size the epoch |
| `shard(index, count)` | no | gives the sub-stream of one rank |
| `state_dict()` / `load_state_dict(state)` | no | for an exact seek; without them resume replays the stream, without transforms |
| `set_epoch(epoch)` | no | before each `__iter__` |
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = [
    "Allocate",
    "AsyncDataset",
    "Dataset",
    "Int64Array",
    "IterableDataset",
    "is_stream",
]

T_co = TypeVar("T_co", covariant=True)

Int64Array: TypeAlias = npt.NDArray[np.int64]
#: `allocate(shape, dtype)` gives C-contiguous, writable memory for a batch, its content undefined.
Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], npt.NDArray[Any]]


@runtime_checkable
class Dataset(Protocol[T_co]):
    """Random access to items: see the module's first table. May be subclassed, need not be."""

    def __getitem__(self, index: Any, /) -> T_co:
        """Return the item `index`; an `IndexError` (or `KeyError`) if there is none."""
        ...

    def __len__(self) -> int:
        """Return the number of items."""
        ...


class AsyncDataset(ABC):
    """Items that are awaited: see the module's second table."""

    @abstractmethod
    async def __getitem__(self, index: Any) -> Any:
        """Return the item `index`."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    async def aclose(self) -> None:
        """Release what belongs to the running event loop (connections, files)."""


class IterableDataset(ABC):
    """A stream of items: see the module's third table."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Start the stream anew."""


def is_stream(dataset: Any) -> bool:
    """Tell whether `dataset` is a stream: an iterable without `__getitem__`, or an `IterableDataset`."""
    if isinstance(dataset, IterableDataset):
        return True
    # torch's IterableDataset inherits a __getitem__ that only raises.
    foreign = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
    if foreign is not None and isinstance(dataset, foreign):
        return True
    kind = type(dataset)
    return hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__")
