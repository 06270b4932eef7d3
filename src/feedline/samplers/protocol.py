"""What a sampler is: a pure function from (length, epoch) to an order.

| member | required | meaning |
| --- | --- | --- |
| `order(length, epoch) -> Order` | yes | the indices of one epoch over a dataset of `length` items, for this rank |
| `order_from(length, epoch, position) -> Order` | no | the same epoch from `position` *items of the global order* on; default: `order(...)[position:]`, lazily |
| `stride` | no (1) | how many items of the global order one local item stands for: the world size, for a sampler that deals items out to ranks |
| `longest(length, position, epoch) -> int` | no | items that the rank with the most still has from `position` on; default: this order's own length |
| `options() -> dict` | no | what identifies the order, as JSON values, for the fingerprint of a state; without rank and world size where the global order does not depend on them |
| `seed` | no | the seed it was made with (`None`: fresh entropy, see `with_seed`) |
| `entropy` | no | the number that orders are really made from: the seed, or what was drawn for `seed=None` |
| `with_seed(seed) -> Sampler` | no | a copy with its seed(s) replaced: how an unseeded state brings its entropy along |

An `Order` has `__len__` and `__getitem__(slice) -> int64 array` (a slice with step 1, clipped as a list's). A NumPy
array is one. It may have `num_real: int`: entries from this place on are padding (`tail="mask"`); the loader then
yields `MaskedBatch`es. It may have `at(positions) -> int64 array`, the indices at single, ascending positions in range:
so a rank need not compute what belongs to the others.

Batch samplers have `batches(length, epoch) -> BatchOrder` instead of `order`, with `__len__` and
`__getitem__(k) -> int64 array`, the indices of batch `k`; and the same optional members, where `position` counts batches
of all ranks, and `batches_from(length, epoch, position)` is what `order_from` is to orders. A `BatchOrder` may have
`num_real`, which counts rows.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError

__all__ = [
    "BatchOrder",
    "BatchSamplerProtocol",
    "Int64Array",
    "Order",
    "OrderTail",
    "Sampler",
    "slice_bounds",
]

Int64Array: TypeAlias = npt.NDArray[np.int64]


@runtime_checkable
class Order(Protocol):
    """The indices of an epoch, by slices: nothing of size n is built for orders that do not need it."""

    def __len__(self) -> int:
        """Return how many indices the epoch has."""
        ...

    def __getitem__(self, part: slice, /) -> Int64Array:
        """Return the indices of `part`, shape `(k,)`, int64; the step must be 1."""
        ...


@runtime_checkable
class BatchOrder(Protocol):
    """The batches of an epoch, by number."""

    def __len__(self) -> int:
        """Return how many batches the epoch has."""
        ...

    def __getitem__(self, number: int, /) -> Int64Array:
        """Return the indices of batch `number`, shape `(b,)`, int64."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """In which order items are visited; see the module's table for the optional members."""

    def order(self, length: int, epoch: int) -> Order:
        """Return the order of `epoch` over a dataset of `length` items. Pure: equal arguments, equal order."""
        ...


@runtime_checkable
class BatchSamplerProtocol(Protocol):
    """Which items make which batch; see the module's table for the optional members."""

    def batches(self, length: int, epoch: int) -> BatchOrder:
        """Return the batches of `epoch` over a dataset of `length` items. Pure."""
        ...


def slice_bounds(part: slice, length: int) -> tuple[int, int]:
    """Return `(first, last)` of a slice of `length` places, clipped as a list's, with `first <= last`.

    Raises:
        TypeError: `part` is no slice.
        OptionError: its step is not 1.
    """
    if not isinstance(part, slice):
        raise TypeError(f"an order takes slices, such as order[0:10], not {type(part).__name__} {part!r}")
    first, last, step = part.indices(length)
    if step != 1:
        raise OptionError(f"an order takes slices with step 1, not {step}")
    return first, max(first, last)


class OrderTail:
    """The part of an order from `start` on, itself an order; slices are computed when they are asked for."""

    def __init__(self, order: Order, start: int) -> None:
        self._order = order
        self._start = min(start, len(order))
        num_real = getattr(order, "num_real", None)
        if num_real is not None:
            self.num_real: int = max(0, num_real - self._start)

    def __len__(self) -> int:
        return len(self._order) - self._start

    def __getitem__(self, part: slice) -> Int64Array:
        first, last = slice_bounds(part, len(self))
        return self._order[self._start + first : self._start + last]
