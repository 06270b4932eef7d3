"""Chunks of an order."""

from __future__ import annotations

import copy
from typing import Any, Self

from feedline.samplers.arguments import check_batch_number, check_bool, check_int, check_position
from feedline.samplers.inner import Wrapping
from feedline.samplers.orders import ReadAhead, longest_of, order_from, stride_of
from feedline.samplers.protocol import Int64Array, Order, Sampler

__all__ = ["BatchSampler", "ChunkedOrder"]


class BatchSampler(Wrapping):
    """Cuts an order into batches of `batch_size`; the last one may be smaller.

    Args:
        sampler: gives the order.
        batch_size: indices in a batch, at least 1.
        drop_last: leave a smaller last batch out.

    Raises:
        TypeError: an argument has a wrong type.
        OptionError: `batch_size` is below 1.

    Determinism: as the sampler's. Concurrency: immutable.

    >>> from feedline.samplers.batch import BatchSampler
    >>> from feedline.samplers.sequential import SequentialSampler
    >>> batches = BatchSampler(SequentialSampler(), batch_size=2, drop_last=False).batches(5, epoch=0)
    >>> [batches[k].tolist() for k in range(len(batches))]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler, batch_size: int, drop_last: bool = False) -> None:
        super().__init__(sampler)
        self.batch_size = check_int("batch_size", batch_size, 1)
        self.drop_last = check_bool("drop_last", drop_last)

    @property
    def sampler(self) -> Any:
        """The sampler whose order is cut."""
        return self.inner

    @property
    def stride(self) -> int:
        """Batches of the whole job that one batch stands for: the inner sampler's stride."""
        return stride_of(self.inner)

    def batches(self, length: int, epoch: int) -> ChunkedOrder:
        """Return the batches of `epoch` over `length` items."""
        return ChunkedOrder(self.inner.order(length, epoch), self.batch_size, self.drop_last)

    def batches_from(self, length: int, epoch: int, position: int) -> ChunkedOrder:
        """Return the batches that are left of `epoch` after `position` batches of the whole job."""
        done = check_position(position) * self.batch_size
        return ChunkedOrder(order_from(self.inner, length, epoch, done), self.batch_size, self.drop_last)

    def longest(self, length: int, position: int = 0, epoch: int = 0) -> int:
        """Return how many batches the rank with the most has after `position` batches of the whole job."""
        done = check_position(position) * self.batch_size
        items = longest_of(self.inner, length, done, epoch)
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)

    def with_seed(self, seed: int | None) -> Self:
        """Return a copy whose sampler has the seed `seed`."""
        other = copy.copy(self)
        other.inner = self._reseeded(seed)
        return other

    def options(self) -> dict[str, Any]:
        """Return what identifies the batches, as JSON values."""
        return {"batch_size": self.batch_size, "drop_last": self.drop_last, "sampler": self._inner_options()}

    def __repr__(self) -> str:
        return f"BatchSampler({self.inner!r}, batch_size={self.batch_size}, drop_last={self.drop_last})"


class ChunkedOrder:
    """An order by chunks of `size`: `chunks[k]` is its slice from `k * size` on.

    Attributes:
        num_real: only if the order has it: rows from this one on, counted through all batches, are padding.
    """

    def __init__(self, order: Order, size: int, drop_last: bool) -> None:
        self._order = ReadAhead(order)
        self._size = size
        total = len(order)
        self._length = total // size if drop_last else -(-total // size)
        num_real = getattr(order, "num_real", None)
        if num_real is not None:
            self.num_real: int = num_real

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Int64Array:
        place = check_batch_number(number, self._length)
        return self._order[place * self._size : (place + 1) * self._size]

    def __repr__(self) -> str:
        return f"ChunkedOrder(size={self._size}, batches={self._length})"
