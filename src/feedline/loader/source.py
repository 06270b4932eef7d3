"""Where an epoch's batches come from: dataset, sampler and batch size, made into plans.

A source answers in *units* of its global order: items, or batches where a batch sampler decides what a batch is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from feedline.datasets.kind import class_name, dataset_kind
from feedline.loader.plan import BatchOrderPlan, IterablePlan, OrderPlan, Plan
from feedline.samplers.protocol import Order, OrderTail

__all__ = ["BatchOrderSource", "GivenOrder", "IterableSource", "OrderSource", "Source", "dataset_length"]


class Source(Protocol):
    """Makes plans; holds no position."""

    #: Units of the global order that one unit of this rank stands for.
    stride: int

    def plan(self, epoch: int, position: int, first: int, stream: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan of `epoch` from `position` units of the global order on, its batches numbered from `first`."""
        ...

    def batches(self, epoch: int) -> int | None:
        """Return how many batches a whole epoch has here, or `None` where nobody knows."""
        ...

    def longest_left(self, epoch: int, position: int) -> int | None:
        """Return how many batches the rank with the most still has from `position` on."""
        ...

    def items(self, epoch: int) -> int | None:
        """Return how many items an epoch has, all ranks together, or `None` where nobody knows."""
        ...

    def whole(self, epoch: int) -> int | None:
        """Return the units of an epoch's global order, at least, or `None`; with `tail="drop"` there may be a few more."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what identifies the order, as JSON values."""
        ...

    def with_seed(self, seed: int) -> Source:
        """Return a copy whose seeds are replaced."""
        ...

    @property
    def entropy(self) -> int | None:
        """The number that an unseeded order is really made from; `None` for a seeded one."""
        ...


def dataset_length(dataset: Any) -> int:
    """Return `len(dataset)`."""
    return len(dataset)


def _described_dataset(dataset: Any) -> dict[str, Any]:
    return {"kind": dataset_kind(dataset), "length": dataset_length(dataset)}


def _described_sampler(sampler: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": class_name(type(sampler))}
    options = getattr(sampler, "options", None)
    if callable(options):
        described["options"] = plain(options())
    elif hasattr(sampler, "__len__"):
        described["length"] = len(sampler)
    return described


def plain(value: Any) -> Any:
    """Return `value` as what JSON gives back: tuples as lists, NumPy scalars as Python's."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _is_trusted(sampler: Any) -> bool:
    """Tell whether its orders need no look: feedline's own, whose inner samplers are feedline's own."""
    inner = getattr(sampler, "inner", None)
    own = type(sampler).__module__.partition(".")[0] == "feedline" and not isinstance(sampler, GivenOrder)
    return own and (inner is None or _is_trusted(inner))


def _entropy_of(sampler: Any) -> int | None:
    if getattr(sampler, "seed", 0) is not None:
        return None
    entropy: int | None = getattr(sampler, "entropy", None)
    return entropy


def _reseeded(sampler: Any, seed: int) -> Any:
    with_seed = getattr(sampler, "with_seed", None)
    return sampler if with_seed is None else with_seed(seed)


class GivenOrder:
    """A NumPy array of indices as a sampler: the same order in every epoch."""

    def __init__(self, indices: npt.NDArray[Any]) -> None:
        self._indices = indices

    def order(self, length: int, epoch: int) -> Order:
        """Return the array."""
        return self._indices

    def __len__(self) -> int:
        return len(self._indices)


class OrderSource:
    """A sampler with `order(length, epoch)`, in chunks of `batch_size`."""

    def __init__(self, dataset: Any, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._trusted = _is_trusted(sampler)
        self.stride: int = getattr(sampler, "stride", 1)

    def plan(self, epoch: int, position: int, first: int, stream: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan of `epoch`."""
        return OrderPlan(
            self._order(epoch, position),
            epoch,
            self._batch_size,
            drop_last=self._drop_last,
            first=first,
            trusted=self._trusted,
        )

    def _order(self, epoch: int, position: int) -> Order:
        length = dataset_length(self._dataset)
        if position == 0:
            return self._whole_order(length, epoch)
        order_from = getattr(self._sampler, "order_from", None)
        if order_from is not None:
            tail: Order = order_from(length, epoch, position)
            return tail
        return OrderTail(self._whole_order(length, epoch), position)

    def _whole_order(self, length: int, epoch: int) -> Order:
        order: Order = self._sampler.order(length, epoch)
        if not (hasattr(order, "__len__") and hasattr(order, "__getitem__")):
            raise TypeError(
                f"{type(self._sampler).__name__}.order({length}, {epoch}) returned {order!r}; an order has a length and "
                f"slices, as a NumPy array has"
            )
        return order

    def _chunks(self, items: int) -> int:
        return items // self._batch_size if self._drop_last else -(-items // self._batch_size)

    def items(self, epoch: int) -> int:
        """Return the items of an epoch, all ranks together, padding included."""
        longest = getattr(self._sampler, "longest", None)
        if longest is None:
            return len(self._order(epoch, 0)) * self.stride
        items: int = longest(dataset_length(self._dataset), 0, epoch)
        return items * self.stride

    def whole(self, epoch: int) -> int:
        """Return the items of an epoch."""
        return self.items(epoch)

    def batches(self, epoch: int) -> int:
        """Return the batches of a whole epoch."""
        return self._chunks(len(self._order(epoch, 0)))

    def longest_left(self, epoch: int, position: int) -> int:
        """Return the batches that the rank with the most still has."""
        longest = getattr(self._sampler, "longest", None)
        if longest is not None:
            return self._chunks(longest(dataset_length(self._dataset), position, epoch))
        return self._chunks(len(self._order(epoch, position)))

    def describe(self) -> dict[str, Any]:
        """Return dataset, sampler, batch size and drop_last."""
        return {
            "dataset": _described_dataset(self._dataset),
            "sampler": _described_sampler(self._sampler),
            "batch_size": self._batch_size,
            "drop_last": self._drop_last,
        }

    def with_seed(self, seed: int) -> OrderSource:
        """Return a copy with another seed."""
        return OrderSource(self._dataset, _reseeded(self._sampler, seed), self._batch_size, self._drop_last)

    @property
    def entropy(self) -> int | None:
        """What stands in for `seed=None`."""
        return _entropy_of(self._sampler)


class BatchOrderSource:
    """A batch sampler with `batches(length, epoch)`; its unit is a batch."""

    def __init__(self, dataset: Any, sampler: Any) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self.stride: int = getattr(sampler, "stride", 1)

    def plan(self, epoch: int, position: int, first: int, stream: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan of `epoch`."""
        length = dataset_length(self._dataset)
        # A sampler that deals batches out to ranks must be told where all of them stood: its own order has every
        # `stride`-th batch only.
        batches_from = getattr(self._sampler, "batches_from", None)
        if position and batches_from is not None:
            return BatchOrderPlan(batches_from(length, epoch, position), epoch, first=first)
        return BatchOrderPlan(self._sampler.batches(length, epoch), epoch, first=first, skip=position)

    def batches(self, epoch: int) -> int:
        """Return the batches of a whole epoch."""
        return len(self._sampler.batches(dataset_length(self._dataset), epoch))

    def items(self, epoch: int) -> int:
        """Return the dataset's length: how many items batches have, only the sampler knows."""
        return dataset_length(self._dataset)

    def whole(self, epoch: int) -> int:
        """Return the batches of an epoch, all ranks together."""
        return self.longest_left(epoch, 0) * self.stride

    def longest_left(self, epoch: int, position: int) -> int:
        """Return the batches that the rank with the most still has."""
        longest = getattr(self._sampler, "longest", None)
        if longest is not None:
            left: int = longest(dataset_length(self._dataset), position, epoch)
            return left
        return max(0, self.batches(epoch) - position)

    def describe(self) -> dict[str, Any]:
        """Return dataset and batch sampler."""
        return {
            "dataset": _described_dataset(self._dataset),
            "batch_sampler": _described_sampler(self._sampler),
        }

    def with_seed(self, seed: int) -> BatchOrderSource:
        """Return a copy with another seed."""
        return BatchOrderSource(self._dataset, _reseeded(self._sampler, seed))

    @property
    def entropy(self) -> int | None:
        """What stands in for `seed=None`."""
        return _entropy_of(self._sampler)


class IterableSource:
    """A user's own iterable of indices, or (`batch_size=None`) of batches of indices."""

    stride = 1
    entropy: int | None = None

    def __init__(self, dataset: Any, indices: Iterable[Any], batch_size: int | None, drop_last: bool) -> None:
        self._dataset = dataset
        self._indices = indices
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._walked = False
        self._warned = False

    def plan(self, epoch: int, position: int, first: int, stream: Mapping[str, Any] | None = None) -> Plan:
        """Start walking the iterable, `position` units of it dropped."""
        set_epoch = getattr(self._indices, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        walk = iter(self._indices)
        if self._walked and walk is self._indices and not self._warned:
            self._warned = True
            warnings.warn(
                f"the sampler {type(self._indices).__name__} is an iterator and used up: this epoch may be "
                f"empty; give a list, or an object that can be iterated anew",
                UserWarning,
                stacklevel=4,
            )
        self._walked = True
        return IterablePlan(
            walk, epoch, self._batch_size, drop_last=self._drop_last, first=first, skip=position
        )

    @property
    def is_one_shot(self) -> bool:
        """Whether the iterable is an iterator: it can be walked once."""
        return isinstance(self._indices, Iterator)

    def items(self, epoch: int) -> int:
        """Return the indices of an epoch, if the iterable has a length and gives indices; else the dataset's length."""
        if self._batch_size is None or not isinstance(self._indices, Sized):
            return dataset_length(self._dataset)
        return len(self._indices)

    def whole(self, epoch: int) -> int | None:
        """Return the units of an epoch, if the iterable has a length."""
        return len(self._indices) if isinstance(self._indices, Sized) else None

    def batches(self, epoch: int) -> int | None:
        """Return the batches of an epoch, if the iterable has a length."""
        if not isinstance(self._indices, Sized):
            return None
        units = len(self._indices)
        if self._batch_size is None:
            return units
        return units // self._batch_size if self._drop_last else -(-units // self._batch_size)

    def longest_left(self, epoch: int, position: int) -> int | None:
        """Return the batches that are left, if the iterable has a length."""
        if not isinstance(self._indices, Sized):
            return None
        units = max(0, len(self._indices) - position)
        if self._batch_size is None:
            return units
        return units // self._batch_size if self._drop_last else -(-units // self._batch_size)

    def describe(self) -> dict[str, Any]:
        """Return dataset, iterable, batch size and drop_last."""
        described = {
            "dataset": _described_dataset(self._dataset),
            "sampler" if self._batch_size else "batch_sampler": _described_sampler(self._indices),
        }
        if self._batch_size is not None:
            described["batch_size"] = self._batch_size  # type: ignore[assignment]
            described["drop_last"] = self._drop_last  # type: ignore[assignment]
        return described

    def with_seed(self, seed: int) -> IterableSource:
        """Return it as it is: its order is the user's."""
        return self
