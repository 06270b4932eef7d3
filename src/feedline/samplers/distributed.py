"""One order dealt out to the ranks of a job."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from feedline.errors import OptionError
from feedline.samplers.arguments import check_choice, check_position
from feedline.samplers.dealing import Share, check_ranks, check_shared_seed, longest_share
from feedline.samplers.inner import Wrapping
from feedline.samplers.orders import ComputedOrder, as_indices, gather, stride_of
from feedline.samplers.protocol import Int64Array, Order, Sampler
from feedline.samplers.random import RandomSampler

__all__ = ["DistributedOrder", "DistributedSampler"]

_TAILS = ("pad", "drop", "exact", "mask")


class DistributedSampler(Wrapping):
    """Deals an order out to ranks: position `p` goes to rank `p % world_size`.

    Args:
        inner: the sampler of the whole job's order, the same on all ranks; default: `RandomSampler()`, as torch's.
        rank: this process, 0 to `world_size` - 1; default: the running job's (see `running_job`).
        world_size: processes in the job; default: the running job's.
        tail: what happens when the order's n indices do not divide evenly.
            `"pad"`: the order starts anew, as often as needed, so that every rank has ceil(n / world_size).
            `"drop"`: the rest is left out, so that every rank has floor(n / world_size).
            `"exact"`: each index goes to exactly one rank; ranks may differ by one.
            `"mask"`: padded as `"pad"`, with `num_real` telling where padding starts, so that batches can be masked.

    Raises:
        TypeError: an argument has a wrong type; a dataset stands where the sampler should.
        OptionError: a rank or world size out of range; one of the two without the other outside of a job; an unknown
            `tail`; an inner sampler with `seed=None`, whose entropy the ranks would not share.

    Determinism: the order depends on (inner, rank, world_size, tail, length, epoch) only. The global order does not
    depend on the ranks: a position in it, saved by a job of one size, is where a job of another size goes on.

    >>> from feedline.samplers.distributed import DistributedSampler
    >>> from feedline.samplers.sequential import SequentialSampler
    >>> [DistributedSampler(SequentialSampler(), r, 3).order(7, epoch=0)[:].tolist() for r in range(3)]
    [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    """

    def __init__(
        self,
        inner: Sampler | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        tail: str = "pad",
    ) -> None:
        super().__init__(RandomSampler() if inner is None else inner)
        if stride_of(self.inner) != 1:
            raise OptionError(
                f"DistributedSampler needs the order of the whole job; {self.inner!r} deals it out already"
            )
        check_shared_seed(self.inner)
        self.rank, self.world_size = check_ranks(rank, world_size)
        self.tail = check_choice("tail", tail, _TAILS)

    @property
    def stride(self) -> int:
        """Items of the global order that one item of this rank stands for: the world size."""
        return self.world_size

    def order(self, length: int, epoch: int) -> DistributedOrder:
        """Return this rank's part of the order of `epoch`."""
        return self.order_from(length, epoch, 0)

    def order_from(self, length: int, epoch: int, position: int) -> DistributedOrder:
        """Return this rank's part of what is left of `epoch` after `position` items of the global order.

        The rest is dealt out anew from rank 0 on, under the same rule for its tail.
        """
        order = self.inner.order(length, epoch)
        share = Share.of(len(order), check_position(position), self.rank, self.world_size, self.tail)
        return DistributedOrder(order, share, masked=self.tail == "mask")

    def longest(self, length: int, position: int = 0, epoch: int = 0) -> int:
        """Return how many indices the rank with the most has after `position` items of the global order."""
        total = len(self.inner.order(length, epoch))
        return longest_share(total, check_position(position), self.world_size, self.tail)

    def with_seed(self, seed: int | None) -> Self:
        """Return a copy whose inner sampler has the seed `seed`; raises as the constructor does."""
        other = copy.copy(self)
        inner = self._reseeded(seed)
        DistributedSampler.__init__(other, inner, self.rank, self.world_size, self.tail)
        return other

    def options(self) -> dict[str, Any]:
        """Return what identifies the global order, as JSON values: not the rank, nor the world size."""
        return {"tail": self.tail, "inner": self._inner_options()}

    def __repr__(self) -> str:
        return (
            f"DistributedSampler({self.inner!r}, rank={self.rank}, world_size={self.world_size}, "
            f"tail={self.tail!r})"
        )


class DistributedOrder(ComputedOrder):
    """Every `world_size`-th index of a global order, from `position + rank` on.

    Attributes:
        num_real: for `tail="mask"` only: entries from this place on are padding.
    """

    def __init__(self, order: Order, share: Share, masked: bool) -> None:
        super().__init__(share.count)
        self._order = order
        self._share = share
        if masked:
            self.num_real: int = share.own

    def _span(self, first: int, last: int) -> Int64Array:
        share = self._share
        if last <= share.own:
            return self._real(first, last)
        real = self._real(first, max(first, share.own))
        padding = share.places(max(first, share.own), last)
        # Padding starts less than one world size beyond the end, so it needs more than one turn only in an order
        # that is shorter than the world is large.
        if share.total < share.step:
            wrapped = as_indices(self._order[0 : share.total])[padding % share.total]
        else:
            wrapped = gather(self._order, padding - share.total)
        return np.concatenate((real, wrapped))

    def _real(self, first: int, last: int) -> Int64Array:
        share = self._share
        if share.step == 1:
            return as_indices(self._order[share.start + first : share.start + last])
        return gather(self._order, share.places(first, last))
