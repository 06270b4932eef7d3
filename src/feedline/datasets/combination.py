"""What all combinations of datasets share: a position is located in a part, and the part is asked.

Note [forwarding]
    A combination has the optional methods of the dataset contract only where its parts have them: `__getitems__`,
    `take` and `take_into` if all parts do (for `take` with rows of the same form), `prefetch` and `location` if any does. Elsewhere
    the attribute is `None`, which a loader takes as "not there".

Note [async parts]
    Combinations of asynchronous datasets are asynchronous datasets: `Subset(files, ...)` makes an instance of a
    subclass that is an `AsyncDataset`, too, with the same name and kind. Synchronous and asynchronous parts can't be
    mixed: a batch is either awaited or not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from feedline.datasets.indexing import check_index, check_indices
from feedline.datasets.kind import Named
from feedline.datasets.protocol import Allocate, AsyncDataset, Int64Array

__all__ = ["AsyncCombination", "Combination", "check_many", "check_part", "check_parts"]


def check_part(label: str, dataset: Any) -> Any:
    """Return `dataset` if it has random access.

    Raises:
        TypeError: it has no `__getitem__` or no `__len__`, or is a text or a class.
    """
    if isinstance(dataset, (str, bytes, type)):
        raise TypeError(f"{label} must be a dataset, not {dataset!r}")
    missing = [name for name in ("__getitem__", "__len__") if not hasattr(dataset, name)]
    if missing:
        raise TypeError(
            f"{label} must be a dataset with random access: {type(dataset).__name__} has no {' and no '.join(missing)}"
        )
    return dataset


def check_parts(labels: Sequence[str], datasets: Sequence[Any]) -> tuple[Any, ...]:
    """Return `datasets`, checked one by one, and that all are asynchronous or none.

    Raises:
        TypeError: as `check_part`; or some are asynchronous and some are not.
    """
    parts = tuple(check_part(label, dataset) for label, dataset in zip(labels, datasets))
    waits = [isinstance(part, AsyncDataset) for part in parts]
    if any(waits) and not all(waits):
        raise TypeError(
            f"synchronous and asynchronous datasets can't be combined: {labels[waits.index(True)]} is an AsyncDataset, "
            f"{labels[waits.index(False)]} is not; wrap the latter in an AsyncDataset"
        )
    return parts


class Combination(Named):
    """Datasets seen as one. Subclasses set `parts` and say where a position lies.

    Concurrency: as its parts. Pickles with them.
    """

    parts: tuple[Any, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def _locate(self, position: int) -> tuple[int, Any]:
        """Return (number of the part, index in it) of `position`, which lies in [0, len)."""

    @abstractmethod
    def _locate_many(self, positions: Int64Array) -> tuple[Int64Array | None, Int64Array | list[Any]]:
        """Return the same for many positions; `None` for the parts' numbers if there is only one part."""

    def locate(self, index: int) -> tuple[int, Any]:
        """Return which part item `index` comes from, and its index there."""
        return self._locate(check_index(index, len(self), type(self).__name__))

    def __getitem__(self, index: int) -> Any:
        """Return item `index`; negative indices count from the end."""
        part, inner = self.locate(index)
        return self.parts[part][inner]

    def __iter__(self) -> Iterator[Any]:
        # Without it, an IndexError out of a part would be taken for the end.
        return (self[position] for position in range(len(self)))

    @property
    def __getitems__(self) -> Callable[[Sequence[int] | Int64Array], Any] | None:
        """`__getitems__(indices)`: the items `indices`, in order, one call for each part that they lie in."""
        if all(callable(getattr(part, "__getitems__", None)) for part in self.parts):
            return self._getitems
        return None

    @property
    def location(self) -> Callable[[int], str | None] | None:
        """`location(index)`: where item `index` lies, as its part tells; `None` from a part that can't."""
        if any(callable(getattr(part, "location", None)) for part in self.parts):
            return self._location
        return None

    @property
    def prefetch(self) -> Callable[[Sequence[int] | Int64Array], None] | None:
        """`prefetch(indices)`: the hint, passed on to the parts that take one."""
        if any(callable(getattr(part, "prefetch", None)) for part in self.parts):
            return self._prefetch
        return None

    @property
    def take(self) -> Callable[[Int64Array, Allocate], Any] | None:
        """`take(indices, allocate)`: the batch in one gather per part, where all parts have rows of the same form."""
        return self._take if self._can("take") else None

    @property
    def take_into(self) -> Callable[[Int64Array, Sequence[Any]], None] | None:
        """`take_into(indices, outs)`: the batch into the caller's arrays, where there is `take` and the parts can."""
        return self._take_into if self._can("take_into") else None

    @property
    def take_rows(self) -> int:
        """Rows that a group of batches should have at least for `take`."""
        return max((int(getattr(part, "take_rows", 1)) for part in self.parts), default=1)

    @property
    def row_specs(self) -> tuple[Any, ...] | None:
        """Shape of a row and dtype in the batch, for each array; `None` where there is no `take`."""
        return getattr(self.parts[0], "row_specs", None) if self._can("take") else None

    @property
    def row_names(self) -> tuple[str, ...] | None:
        """Names of the arrays, where batches are dicts."""
        return getattr(self.parts[0], "row_names", None)

    def _can(self, method: str) -> bool:
        if not all(callable(getattr(part, method, None)) for part in self.parts):
            return False
        if len(self.parts) == 1:
            return True
        forms = [(getattr(part, "row_specs", None), getattr(part, "row_names", None)) for part in self.parts]
        # What can't tell its form may stack with the others or not: collation decides, item by item.
        return forms[0][0] is not None and all(form == forms[0] for form in forms)

    def _split(self, indices: Any) -> list[tuple[int, Any, Any]]:
        """Return (part, indices in it, places among `indices`) for every part that occurs; places `None` for all."""
        positions = check_indices(indices, len(self), type(self).__name__)
        numbers, inner = self._locate_many(positions)
        if numbers is None or len(positions) == 0:
            return [(0, inner, None)]
        first = int(numbers[0])
        if (numbers == first).all():
            return [(first, inner, None)]
        found = []
        for part in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == part)
            found.append((part, _pick(inner, places), places))
        return found

    def _getitems(self, indices: Sequence[int] | Int64Array) -> list[Any]:
        split = self._split(indices)
        groups = [list(self.parts[part].__getitems__(_plain(inner))) for part, inner, _ in split]
        return _joined(split, groups)

    def _location(self, index: int) -> str | None:
        part, inner = self.locate(index)
        tell = getattr(self.parts[part], "location", None)
        return tell(inner) if callable(tell) else None

    def _prefetch(self, indices: Sequence[int] | Int64Array) -> None:
        for part, inner, _ in self._split(indices):
            hint = getattr(self.parts[part], "prefetch", None)
            if callable(hint):
                hint(_plain(inner))

    def _take(self, indices: Int64Array, allocate: Allocate) -> Any:
        split = self._split(indices)
        if split[0][2] is None:
            part, inner, _ = split[0]
            return self.parts[part].take(inner, allocate)
        outs = [allocate((len(indices), *spec.shape), spec.dtype) for spec in self.parts[0].row_specs]
        self._scatter(split, outs)
        names = self.row_names
        return tuple(outs) if names is None else dict(zip(names, outs))

    def _take_into(self, indices: Int64Array, outs: Sequence[Any]) -> None:
        split = self._split(indices)
        if split[0][2] is None:
            self.parts[split[0][0]].take_into(split[0][1], outs)
        else:
            self._scatter(split, outs)

    def _scatter(self, split: list[tuple[int, Any, Any]], outs: Sequence[Any]) -> None:
        for part, inner, places in split:
            try:
                batch = self.parts[part].take(inner, np.empty)
            except IndexError as error:
                # The part has shrunk. Its place is among the indices that it was asked for, not among ours.
                if hasattr(error, "position"):
                    error.position = int(places[error.position])
                raise
            for out, rows in zip(outs, batch.values() if isinstance(batch, dict) else batch):
                out[places] = rows


class AsyncCombination(Combination, AsyncDataset):
    """A combination whose parts are awaited."""

    async def __getitem__(self, index: int) -> Any:
        """Return item `index`; negative indices count from the end."""
        part, inner = self.locate(index)
        return await self.parts[part][inner]

    # An async dataset has no iterator, and no gather.
    __iter__ = None  # type: ignore[assignment]
    take = None
    take_into = None

    async def _getitems(self, indices: Sequence[int] | Int64Array) -> list[Any]:  # type: ignore[override]
        split = self._split(indices)
        calls = (self.parts[part].__getitems__(_plain(inner)) for part, inner, _ in split)
        import asyncio  # not for everybody: it takes longer to import than all of this library

        return _joined(split, [list(group) for group in await asyncio.gather(*calls)])

    async def aclose(self) -> None:
        """Close all parts, each once, and then raise the first error among theirs."""
        parts = {id(part): part for part in self.parts}.values()
        import asyncio

        results = await asyncio.gather(*(part.aclose() for part in parts), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


def _plain(inner: Any) -> list[Any]:
    return inner.tolist() if isinstance(inner, np.ndarray) else list(inner)


def _pick(inner: Any, places: Int64Array) -> Any:
    return inner[places] if isinstance(inner, np.ndarray) else [inner[place] for place in places.tolist()]


def _joined(split: list[tuple[int, Any, Any]], groups: list[list[Any]]) -> list[Any]:
    """Put the groups' items where their places are."""
    for (part, inner, _), group in zip(split, groups):
        if len(group) != len(inner):
            raise ValueError(
                f"__getitems__ of part {part} returned {len(group)} items for {len(inner)} indices; it must return "
                f"as many, in order"
            )
    if split[0][2] is None:
        return groups[0]
    items: list[Any] = [None] * sum(len(group) for group in groups)
    for (_, _, places), group in zip(split, groups):
        for place, item in zip(places.tolist(), group):
            items[place] = item
    return items


def check_many(what: str, datasets: Any) -> Sequence[Any]:
    """Return `datasets` if it is a list or a tuple; raises a `TypeError` for a single dataset, and for anything else."""
    if not isinstance(datasets, (list, tuple)):
        raise TypeError(f"{what} takes a list of datasets, not {type(datasets).__name__}")
    return datasets
