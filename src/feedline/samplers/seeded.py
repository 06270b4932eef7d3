"""What samplers with a seed have in common."""

from __future__ import annotations

import copy
from typing import Any, Self

from feedline.keys import check_seed, fresh_seed

__all__ = ["Seeded"]


class Seeded:
    """Holds a seed, or the entropy that stands in for `seed=None`.

    Concurrency: immutable, so safe to share between threads.
    """

    _seed: int | None
    _entropy: int

    def __init__(self, seed: Any) -> None:
        # Fresh entropy is drawn here, once: an unseeded sampler is as pure a function as any other.
        self._seed = None if seed is None else check_seed(seed)
        self._entropy = fresh_seed() if self._seed is None else self._seed

    @property
    def seed(self) -> int | None:
        """The seed that was given; `None` for an unseeded sampler."""
        return self._seed

    @property
    def entropy(self) -> int:
        """The number that orders are made from: the seed, or what was drawn for `seed=None`."""
        return self._entropy

    def with_seed(self, seed: int | None) -> Self:
        """Return a copy that has the seed `seed`, all else equal; raises as the constructor does."""
        other = copy.copy(self)
        Seeded.__init__(other, seed)
        return other
