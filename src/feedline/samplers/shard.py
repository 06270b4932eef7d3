"""One contiguous part of a dataset."""

from __future__ import annotations

import copy
import struct
from typing import Any, Self

from feedline.errors import OptionError
from feedline.keys import derive_key
from feedline.samplers.arguments import check_int, check_length
from feedline.samplers.inner import Wrapping
from feedline.samplers.orders import ShiftedOrder, longest_of, order_from, stride_of
from feedline.samplers.protocol import Sampler

__all__ = ["ShardSampler"]


class ShardSampler(Wrapping):
    """Visits the items `[shard * n // num_shards, (shard + 1) * n // num_shards)`, ordered by the inner sampler.

    Together the shards have every item once (if the inner order has), and each reads one contiguous part of the
    storage. They may differ by one item: where all ranks must do as many steps, `DistributedSampler` is the choice.

    Args:
        inner: orders the part, as if it were a dataset of its own.
        shard: 0 to `num_shards` - 1.
        num_shards: how many parts there are, at least 1.

    Raises:
        TypeError: an argument has a wrong type.
        OptionError: `shard` or `num_shards` out of range; an inner sampler with `seed=None` for one of several
            shards, which would see different entropy.

    Determinism: depends on (inner, shard, num_shards, length, epoch) only. Shards do not share a shuffle: of several,
    each hashes its number into the inner sampler's seed, so that parts of equal length are not shuffled alike.

    >>> from feedline.samplers.sequential import SequentialSampler
    >>> from feedline.samplers.shard import ShardSampler
    >>> [ShardSampler(SequentialSampler(), s, 3).order(7, epoch=0)[:].tolist() for s in range(3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """

    def __init__(self, inner: Sampler, shard: int, num_shards: int) -> None:
        super().__init__(inner)
        self.num_shards = check_int("num_shards", num_shards, 1)
        self.shard = check_int("shard", shard, 0)
        if self.shard >= self.num_shards:
            raise OptionError(f"shard must be below num_shards ({self.num_shards}), not {self.shard}")
        if self.num_shards > 1 and getattr(self.inner, "seed", 0) is None:
            raise OptionError(
                f"{self.inner!r} has seed=None: each shard would draw entropy of its own; give all the same seed"
            )
        self._own = self._own_sampler()

    def _own_sampler(self) -> Any:
        seed = getattr(self.inner, "entropy", getattr(self.inner, "seed", None))
        if self.num_shards == 1 or seed is None or not hasattr(self.inner, "with_seed"):
            return self.inner
        place = struct.pack("<QQ", self.shard, self.num_shards)
        return self.inner.with_seed(
            int.from_bytes(derive_key("feedline shard", seed, 0, place, size=8), "little")
        )

    @property
    def stride(self) -> int:
        """The inner sampler's stride."""
        return stride_of(self.inner)

    def _bounds(self, length: Any) -> tuple[int, int]:
        length = check_length(length)
        return self.shard * length // self.num_shards, (self.shard + 1) * length // self.num_shards

    def order(self, length: int, epoch: int) -> ShiftedOrder:
        """Return this shard's order of `epoch`."""
        first, last = self._bounds(length)
        return ShiftedOrder(self._own.order(last - first, epoch), first)

    def order_from(self, length: int, epoch: int, position: int) -> ShiftedOrder:
        """Return what is left of this shard's `epoch` after `position` items of it."""
        first, last = self._bounds(length)
        return ShiftedOrder(order_from(self._own, last - first, epoch, position), first)

    def longest(self, length: int, position: int = 0, epoch: int = 0) -> int:
        """Return how many items the largest shard has after `position` items of it."""
        return longest_of(self._own, -(-check_length(length) // self.num_shards), position, epoch)

    def with_seed(self, seed: int | None) -> Self:
        """Return a copy whose inner sampler has the seed `seed`; raises as the constructor does."""
        other = copy.copy(self)
        ShardSampler.__init__(other, self._reseeded(seed), self.shard, self.num_shards)
        return other

    def options(self) -> dict[str, Any]:
        """Return what identifies the orders of all shards, as JSON values: not which shard this is."""
        return {"num_shards": self.num_shards, "inner": self._inner_options()}

    def __repr__(self) -> str:
        return f"ShardSampler({self.inner!r}, shard={self.shard}, num_shards={self.num_shards})"
