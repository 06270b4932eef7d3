"""Datasets made of datasets: `Subset`, `ConcatDataset` and `MapDataset`. All are random access, so all resume by a seek."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from feedline.datasets.combination import AsyncCombination, Combination, check_many, check_part, check_parts
from feedline.datasets.indexing import check_indices
from feedline.datasets.kind import class_name, dataset_kind
from feedline.datasets.protocol import AsyncDataset, Int64Array
from feedline.errors import OptionError

__all__ = ["ConcatDataset", "MapDataset", "Subset"]


class Subset(Combination):
    """The items `indices` of a dataset, in that order; repeats are allowed.

    Args:
        dataset: any dataset with random access; of an `AsyncDataset`, the subset is one, too.
        indices: ints, negative ones counted from the end, in a list, an array (copied) or a `range` (kept as it is,
            in no memory); or any hashable keys that the dataset takes.

    Raises:
        TypeError: the dataset is none, or an index is a bool, a float, `None` or not hashable; a mask of bools says
            what to do. A set has no order, and is refused, too.
        OptionError: an int is out of range for the dataset.

    >>> Subset(["a", "b", "c"], [2, 0])[0]
    'c'
    """

    def __new__(cls, dataset: Any = None, indices: Any = None) -> Subset:
        """Make the asynchronous form of asynchronous datasets; see the note in `feedline.datasets.combination`."""
        return object.__new__(_AsyncSubset if cls is Subset and isinstance(dataset, AsyncDataset) else cls)

    def __init__(self, dataset: Any, indices: Iterable[Any]) -> None:
        self.parts = (check_part("the dataset", dataset),)
        self.indices = _check_subset(indices, dataset)

    @property
    def dataset(self) -> Any:
        """The dataset that items are taken from."""
        return self.parts[0]

    def __len__(self) -> int:
        return len(self.indices)

    def _locate(self, position: int) -> tuple[int, Any]:
        found = self.indices[position]
        return 0, int(found) if isinstance(found, np.integer) else found

    def _locate_many(self, positions: Int64Array) -> tuple[None, Int64Array | list[Any]]:
        indices = self.indices
        if isinstance(indices, range):
            return None, indices.start + indices.step * positions
        if isinstance(indices, np.ndarray):
            return None, indices[positions]
        return None, [indices[position] for position in positions.tolist()]

    def kind(self) -> str:
        """Return the qualified class name, with the dataset's in parentheses."""
        return f"{class_name(Subset if type(self) is _AsyncSubset else type(self))}({dataset_kind(self.dataset)})"

    def __repr__(self) -> str:
        return f"Subset({self.dataset!r}, {_told(self.indices)})"


class _AsyncSubset(Subset, AsyncCombination):
    """A subset of an `AsyncDataset`."""


class ConcatDataset(Combination):
    """Datasets one after the other; their lengths are asked once, when it is built.

    Args:
        datasets: a list of datasets with random access, all of them asynchronous or none.

    Raises:
        TypeError: it is no list of datasets, or of both sorts.
        OptionError: the list is empty.

    >>> ConcatDataset([["a", "b"], ["c"]])[2]
    'c'
    """

    def __new__(cls, datasets: Any = None) -> ConcatDataset:
        """Make the asynchronous form of asynchronous datasets; see the note in `feedline.datasets.combination`."""
        waits = isinstance(datasets, (list, tuple)) and any(
            isinstance(part, AsyncDataset) for part in datasets
        )
        return object.__new__(_AsyncConcatDataset if cls is ConcatDataset and waits else cls)

    def __init__(self, datasets: Sequence[Any]) -> None:
        given = check_many("ConcatDataset", datasets)
        if not given:
            raise OptionError("ConcatDataset needs at least one dataset, not an empty list")
        self.parts = check_parts([f"datasets[{number}]" for number in range(len(given))], given)
        self._stops: Int64Array = np.cumsum([len(part) for part in self.parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._stops[-1])

    def _locate(self, position: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._stops, position, side="right"))
        return part, position - (int(self._stops[part - 1]) if part else 0)

    def _locate_many(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        parts = np.searchsorted(self._stops, positions, side="right")
        starts = np.concatenate((np.zeros(1, np.int64), self._stops[:-1]))
        return parts, positions - starts[parts]

    def kind(self) -> str:
        """Return the qualified class name, with the parts' in parentheses."""
        inner = ", ".join(dataset_kind(part) for part in self.parts)
        cls = ConcatDataset if type(self) is _AsyncConcatDataset else type(self)
        return f"{class_name(cls)}({inner})"

    def __repr__(self) -> str:
        return f"ConcatDataset([{', '.join(map(repr, self.parts))}])"


class _AsyncConcatDataset(ConcatDataset, AsyncCombination):
    """A concatenation of `AsyncDataset`s."""


class MapDataset(Combination):
    """What `fn` makes of each item of a dataset.

    Args:
        dataset: any dataset with random access; of an `AsyncDataset`, the result is one, too.
        fn: called as `fn(item)`, on several threads at once if there are several workers. It runs where the item is
            fetched: of an `AsyncDataset`, on the event loop, so work belongs in a loader's `transform` there.

    Raises:
        TypeError: the dataset is none; `fn` is not callable, or a coroutine function.

    >>> MapDataset([1, 2, 3], lambda x: 10 * x)[-1]
    30
    """

    def __new__(cls, dataset: Any = None, fn: Any = None) -> MapDataset:
        """Make the asynchronous form of asynchronous datasets; see the note in `feedline.datasets.combination`."""
        return object.__new__(
            _AsyncMapDataset if cls is MapDataset and isinstance(dataset, AsyncDataset) else cls
        )

    def __init__(self, dataset: Any, fn: Callable[[Any], Any]) -> None:
        self.parts = (check_part("the dataset", dataset),)
        if not callable(fn):
            raise TypeError(f"fn must be callable, not {type(fn).__name__} {fn!r}")
        if inspect.iscoroutinefunction(fn):
            raise TypeError(
                f"fn must be a plain function: {fn!r} would have to be awaited; subclass AsyncDataset"
            )
        self.fn = fn

    @property
    def dataset(self) -> Any:
        """The dataset that items come from."""
        return self.parts[0]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return `fn` of item `index`; negative indices count from the end."""
        return self.fn(super().__getitem__(index))

    def _locate(self, position: int) -> tuple[int, int]:
        return 0, position

    def _locate_many(self, positions: Int64Array) -> tuple[None, Int64Array]:
        return None, positions

    def _getitems(self, indices: Any) -> Any:
        return [self.fn(item) for item in super()._getitems(indices)]

    def _can(self, method: str) -> bool:
        # What is gathered are rows, not what `fn` makes of them.
        return False

    def kind(self) -> str:
        """Return the qualified class name, with the dataset's in parentheses."""
        cls = MapDataset if type(self) is _AsyncMapDataset else type(self)
        return f"{class_name(cls)}({dataset_kind(self.dataset)})"

    def __repr__(self) -> str:
        return f"MapDataset({self.dataset!r}, {getattr(self.fn, '__qualname__', repr(self.fn))})"


class _AsyncMapDataset(MapDataset, AsyncCombination):
    """A mapped `AsyncDataset`."""

    async def __getitem__(self, index: int) -> Any:
        """Return `fn` of item `index`; negative indices count from the end."""
        return self.fn(await AsyncCombination.__getitem__(self, index))

    async def _getitems(self, indices: Any) -> list[Any]:  # type: ignore[override]
        return [self.fn(item) for item in await AsyncCombination._getitems(self, indices)]


def _check_subset(indices: Any, dataset: Any) -> range | Int64Array | tuple[Hashable, ...]:
    if isinstance(indices, (str, bytes, AbstractSet, Mapping)) or not isinstance(indices, Iterable):
        raise TypeError(f"indices must be a list of indices, not {type(indices).__name__}")
    given = list(indices) if not isinstance(indices, (range, np.ndarray)) else indices
    if isinstance(given, np.ndarray) and given.dtype.kind not in "iu":
        if given.dtype == np.bool_:
            raise TypeError("indices are a mask of bools: give the places, np.flatnonzero(mask)")
        given = given.tolist()
    if isinstance(given, list):
        keys = tuple(_check_key(key, position) for position, key in enumerate(given))
        if not all(type(key) is int for key in keys):
            return keys
        given = np.array(keys, dtype=object if keys else np.int64)
    if isinstance(dataset, Mapping):
        # Its ints are keys like any others, with no order and no end.
        return given if isinstance(given, range) else given.astype(np.int64)
    return _check_bounds(given, len(dataset))


def _check_bounds(indices: range | Int64Array, length: int) -> range | Int64Array:
    ends = np.array([indices[0], indices[-1]]) if isinstance(indices, range) and indices else indices
    try:
        checked = check_indices(ends, length, "the dataset")
        if not isinstance(indices, range):
            # A copy: the caller may go on using the array.
            return checked.copy()
        return (
            indices if len(indices) == 0 or min(ends) >= 0 else check_indices(indices, length, "the dataset")
        )
    except IndexError as error:
        raise OptionError(f"indices of a subset must lie in its dataset: {error}") from None


def _check_key(key: Any, position: int) -> Hashable:
    if key is None or isinstance(key, (bool, np.bool_, float, np.floating, complex)):
        raise TypeError(f"indices[{position}] is {key!r}: an index must be an int, or a key such as a str")
    try:
        return operator.index(key)
    except TypeError:
        pass
    try:
        hash(key)
    except TypeError:
        raise TypeError(
            f"indices[{position}] is {key!r}: a key must be hashable, {type(key).__name__} is not"
        ) from None
    return key  # type: ignore[no-any-return]


def _told(indices: range | Int64Array | tuple[Hashable, ...]) -> str:
    if isinstance(indices, range) or len(indices) <= 6:
        return repr(indices) if isinstance(indices, range) else repr(list(indices[:6]))
    shown = ", ".join(repr(index) for index in list(indices[:3]))
    return f"[{shown}, ... {len(indices)} in all]"
