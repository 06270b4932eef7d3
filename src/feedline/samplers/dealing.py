"""How an order is dealt out to ranks, as arithmetic: position `p` goes to rank `p % world_size`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.errors import OptionError
from feedline.samplers.arguments import check_int
from feedline.samplers.job import find_job
from feedline.samplers.protocol import Int64Array

__all__ = ["Share", "check_ranks", "check_shared_seed", "longest_share"]


def check_ranks(rank: Any, world_size: Any) -> tuple[int, int]:
    """Return `(rank, world_size)`, what is `None` taken from the running job.

    Raises:
        TypeError: one is not integer-like.
        OptionError: one is out of range, or only one is given and no job is running that would tell the other.
    """
    job = None
    if rank is None or world_size is None:
        job = find_job()
        if job is None and (rank is not None or world_size is not None):
            missing = "rank" if rank is None else "world_size"
            raise OptionError(
                f"{missing} is missing, and no job is running that would tell it: give both or neither"
            )
    job_rank, job_size = job or (0, 1)
    world_size = check_int("world_size", job_size if world_size is None else world_size, 1)
    rank = check_int("rank", job_rank if rank is None else rank, 0)
    if rank >= world_size:
        raise OptionError(f"rank must be below world_size ({world_size}), not {rank}")
    return rank, world_size


def check_shared_seed(inner: Any) -> None:
    """Raise an `OptionError` if `inner` is unseeded: each rank would draw entropy of its own."""
    if getattr(inner, "seed", 0) is None:
        raise OptionError(
            f"{inner!r} has seed=None: every rank would draw entropy of its own and see another order; give all "
            f"ranks the same seed"
        )


def longest_share(total: int, position: int, world_size: int, tail: str) -> int:
    """Return how many places the rank with the most has, of `total` from `position` on."""
    left = max(0, total - position)
    return left // world_size if tail == "drop" else -(-left // world_size)


@dataclass(frozen=True)
class Share:
    """One rank's places in a global order of `total`.

    Attributes:
        total: places in the global order.
        step: the world size.
        start: the rank's first place.
        own: how many of its places lie below `total`.
        count: how many places it has in all; those from `own` on start the order anew.
    """

    total: int
    step: int
    start: int
    own: int
    count: int

    @classmethod
    def of(cls, total: int, position: int, rank: int, world_size: int, tail: str) -> Share:
        """Return the share of `rank` in what is left from `position` on; a position beyond the end leaves nothing."""
        position = min(position, total)
        own = max(0, -(-(total - position - rank) // world_size))
        count = own if tail == "exact" else longest_share(total, position, world_size, tail)
        return cls(total, world_size, position + rank, min(own, count), count)

    def places(self, first: int, last: int) -> Int64Array:
        """Return the global places of this rank's entries `first` ... `last` - 1; padding lies beyond `total`."""
        return self.start + np.arange(first, last, dtype=np.int64) * self.step
