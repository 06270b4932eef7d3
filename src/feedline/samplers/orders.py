"""What orders have in common: slices, single positions, and the order that is only arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.samplers.protocol import Int64Array, Order, OrderTail, slice_bounds

__all__ = [
    "ComputedOrder",
    "RangeOrder",
    "ReadAhead",
    "ShiftedOrder",
    "as_indices",
    "gather",
    "longest_of",
    "order_from",
    "stride_of",
]

# A gather over an order that only has slices reads no wider slice than this: 512 KiB of indices.
_WIDEST = 1 << 16


def as_indices(values: Any) -> Int64Array:
    """Return what an order's slice gave as an int64 array of shape `(k,)`; no copy where it is one.

    Raises:
        TypeError: it is not a row of integers.
    """
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"an order's slice must be a 1-d array of integers, not {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64, copy=False)


def gather(order: Order, positions: Int64Array) -> Int64Array:
    """Return the indices at `positions` (ascending, in range), shape `(k,)`, int64.

    Orders with a method `at(positions)` answer at once; of others, slices are read that are no wider than needed.
    """
    if isinstance(order, np.ndarray):
        return as_indices(order[positions])
    at = getattr(order, "at", None)
    if at is not None:
        return as_indices(at(positions))
    result = np.empty(len(positions), np.int64)
    done = 0
    while done < len(positions):
        low = int(positions[done])
        count = int(np.searchsorted(positions[done:], low + _WIDEST))
        wanted = positions[done : done + count]
        block = as_indices(order[low : int(wanted[-1]) + 1])
        result[done : done + count] = block[wanted - low]
        done += count
    return result


def order_from(sampler: Any, length: int, epoch: int, position: int) -> Order:
    """Return `sampler`'s order from the global `position` on, by its own `order_from` if it has one."""
    own = getattr(sampler, "order_from", None)
    if own is not None:
        result: Order = own(length, epoch, position)
        return result
    order: Order = sampler.order(length, epoch)
    return OrderTail(order, position) if position else order


def longest_of(sampler: Any, length: int, position: int, epoch: int) -> int:
    """Return how many indices the rank with the most has from the global `position` on."""
    own = getattr(sampler, "longest", None)
    if own is not None:
        return int(own(length, position, epoch))
    return max(0, len(sampler.order(length, epoch)) - position)


def stride_of(sampler: Any) -> int:
    """Return how many items of the global order one item of `sampler`'s stands for."""
    return int(getattr(sampler, "stride", 1))


class ReadAhead:
    """Another order, of which slices that follow one another are read in larger blocks.

    A first slice, or one from elsewhere, is computed alone, so that a seek is as fast as it can be; one that begins where
    the last reading ended brings the next `block` indices along (8 bytes each are kept).

    Concurrency: may be read by several threads; they may then read the same indices twice.
    """

    def __init__(self, order: Order, block: int = 4096) -> None:
        self._order = order
        self._length = len(order)
        self._block = block
        # (place of the first index read, indices): one tuple, so that threads never mix two readings.
        self._read: tuple[int, Int64Array] = (-1, np.empty(0, np.int64))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> Int64Array:
        first, last = slice_bounds(part, self._length)
        start, indices = self._read
        end = start + len(indices)
        if start <= first and last <= end:
            return indices[first - start : last - start].copy()
        follows = start <= first <= end
        stop = min(self._length, max(last, first + self._block)) if follows else last
        indices = as_indices(self._order[first:stop])
        self._read = (first, indices)
        return indices[: last - first].copy()


class ComputedOrder:
    """An order of `length` indices whose slices are computed when they are asked for.

    Subclasses give `_span(first, last)`, with `0 <= first <= last <= length`. Slices are new arrays: whoever gets one may
    change it.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> Int64Array:
        first, last = slice_bounds(part, self._length)
        return self._span(first, last)

    def _span(self, first: int, last: int) -> Int64Array:
        raise NotImplementedError(f"{type(self).__name__} defines no _span")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self._length})"


class RangeOrder(ComputedOrder):
    """0, 1, ... `length` - 1, in constant memory."""

    def _span(self, first: int, last: int) -> Int64Array:
        return np.arange(first, last, dtype=np.int64)

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the indices at `positions`: these themselves."""
        return positions.copy()


class ShiftedOrder(ComputedOrder):
    """Another order with `offset` added to each index: an order within a part of a dataset."""

    def __init__(self, order: Order, offset: int) -> None:
        super().__init__(len(order))
        self._order = order
        self._offset = offset
        num_real = getattr(order, "num_real", None)
        if num_real is not None:
            self.num_real: int = num_real

    def _span(self, first: int, last: int) -> Int64Array:
        return as_indices(self._order[first:last]) + self._offset

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the indices at `positions`, shape `(k,)`."""
        return gather(self._order, positions) + self._offset
