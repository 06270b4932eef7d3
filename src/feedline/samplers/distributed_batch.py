"""Whole batches dealt out to the ranks of a job."""

from __future__ import annotations

import copy
from typing import Any, Self

from feedline.errors import OptionError
from feedline.samplers.arguments import check_batch_number, check_choice, check_position
from feedline.samplers.dealing import Share, check_ranks, check_shared_seed, longest_share
from feedline.samplers.inner import Wrapping, check_batch_sampler
from feedline.samplers.orders import stride_of
from feedline.samplers.protocol import BatchOrder, BatchSamplerProtocol, Int64Array

__all__ = ["DealtBatches", "DistributedBatchSampler"]


class DistributedBatchSampler(Wrapping):
    """Deals the batches of a batch sampler out to ranks: batch `k` goes to rank `k % world_size`.

    For batches that can't be cut from an order, such as those of `LengthBucketSampler`; for others,
    `BatchSampler(DistributedSampler(...), batch_size)` deals out single items.

    Args:
        inner: makes the whole job's batches, the same on all ranks.
        rank: this process, 0 to `world_size` - 1; default: the running job's (see `running_job`).
        world_size: processes in the job; default: the running job's.
        tail: `"pad"` (the batches start anew until all ranks have as many), `"drop"` or `"exact"`.

    Raises:
        TypeError: an argument has a wrong type.
        OptionError: as `DistributedSampler`'s.

    Determinism: depends on (inner, rank, world_size, tail, length, epoch) only.

    >>> from feedline.samplers.bucket import LengthBucketSampler
    >>> from feedline.samplers.distributed_batch import DistributedBatchSampler
    >>> inner = LengthBucketSampler([5, 90, 6, 88, 4, 91], batch_size=3)
    >>> [sorted(DistributedBatchSampler(inner, r, 2).batches(6, epoch=0)[0].tolist()) for r in range(2)]
    [[1, 3, 5], [0, 2, 4]]
    """

    _check = staticmethod(check_batch_sampler)

    def __init__(
        self,
        inner: BatchSamplerProtocol,
        rank: int | None = None,
        world_size: int | None = None,
        tail: str = "pad",
    ) -> None:
        super().__init__(inner)
        if stride_of(self.inner) != 1:
            raise OptionError(
                f"DistributedBatchSampler needs the batches of the whole job; {self.inner!r} deals them out already"
            )
        check_shared_seed(self.inner)
        self.rank, self.world_size = check_ranks(rank, world_size)
        self.tail = check_choice("tail", tail, ("pad", "drop", "exact"))

    @property
    def stride(self) -> int:
        """Batches of the whole job that one batch of this rank stands for: the world size."""
        return self.world_size

    def batches(self, length: int, epoch: int) -> DealtBatches:
        """Return this rank's batches of `epoch`."""
        return self.batches_from(length, epoch, 0)

    def batches_from(self, length: int, epoch: int, position: int) -> DealtBatches:
        """Return this rank's part of what is left of `epoch` after `position` batches of the whole job."""
        batches = self.inner.batches(length, epoch)
        share = Share.of(len(batches), check_position(position), self.rank, self.world_size, self.tail)
        return DealtBatches(batches, share)

    def longest(self, length: int, position: int = 0, epoch: int = 0) -> int:
        """Return how many batches the rank with the most has after `position` batches of the whole job."""
        total = len(self.inner.batches(length, epoch))
        return longest_share(total, check_position(position), self.world_size, self.tail)

    def with_seed(self, seed: int | None) -> Self:
        """Return a copy whose inner sampler has the seed `seed`; raises as the constructor does."""
        other = copy.copy(self)
        DistributedBatchSampler.__init__(other, self._reseeded(seed), self.rank, self.world_size, self.tail)
        return other

    def options(self) -> dict[str, Any]:
        """Return what identifies the batches of the whole job, as JSON values: not the rank, nor the world size."""
        return {"tail": self.tail, "inner": self._inner_options()}

    def __repr__(self) -> str:
        return (
            f"DistributedBatchSampler({self.inner!r}, rank={self.rank}, world_size={self.world_size}, "
            f"tail={self.tail!r})"
        )


class DealtBatches:
    """Every `world_size`-th batch of a whole job's."""

    def __init__(self, batches: BatchOrder, share: Share) -> None:
        self._batches = batches
        self._share = share

    def __len__(self) -> int:
        return self._share.count

    def __getitem__(self, number: int) -> Int64Array:
        place = self._share.start + check_batch_number(number, self._share.count) * self._share.step
        return self._batches[place % self._share.total]
