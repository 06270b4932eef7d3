"""What samplers that change another sampler's order have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline.samplers.protocol import BatchSamplerProtocol, Sampler

__all__ = ["Wrapping", "check_batch_sampler", "check_sampler"]


def check_sampler(owner: str, inner: Any) -> Sampler:
    """Return `inner`, a sampler with an `order`.

    Raises:
        TypeError: it is none: a class, a dataset, a list of indices, a batch sampler.
    """
    if isinstance(inner, type):
        raise TypeError(
            f"{owner} takes a sampler, not the class {inner.__name__}: write {inner.__name__}(...)"
        )
    if callable(getattr(inner, "order", None)):
        sampler: Sampler = inner
        return sampler
    if callable(getattr(inner, "batches", None)):
        raise TypeError(f"{owner} takes a sampler of single indices, not {inner!r}, which makes batches")
    raise TypeError(
        f"{owner} takes a sampler with order(length, epoch), such as RandomSampler(seed=0), not "
        f"{type(inner).__name__}; the dataset is given to the loader"
    )


def check_batch_sampler(owner: str, inner: Any) -> BatchSamplerProtocol:
    """Return `inner`, a sampler with `batches`; raises a `TypeError` if it is none."""
    if isinstance(inner, type):
        raise TypeError(
            f"{owner} takes a batch sampler, not the class {inner.__name__}: write {inner.__name__}(...)"
        )
    if not callable(getattr(inner, "batches", None)):
        raise TypeError(
            f"{owner} takes a sampler with batches(length, epoch), such as LengthBucketSampler(...), not "
            f"{type(inner).__name__}"
        )
    sampler: BatchSamplerProtocol = inner
    return sampler


class Wrapping:
    """Holds an inner sampler, and speaks for its seed.

    A wrapper has the attributes `seed` and `entropy` if and only if its inner sampler has them.
    """

    def __init__(self, inner: Any) -> None:
        self.inner: Any = self._check(type(self).__name__, inner)

    # What an inner sampler must be; samplers of batches have another check here.
    _check: Callable[[str, Any], Any] = staticmethod(check_sampler)

    @property
    def seed(self) -> int | None:
        """The inner sampler's seed."""
        seed: int | None = self.inner.seed
        return seed

    @property
    def entropy(self) -> int:
        """The number that the inner sampler's orders are made from."""
        entropy: int = self.inner.entropy
        return entropy

    def _reseeded(self, seed: int | None) -> Any:
        with_seed = getattr(self.inner, "with_seed", None)
        return self.inner if with_seed is None else with_seed(seed)

    def _inner_options(self) -> dict[str, Any]:
        options = getattr(self.inner, "options", None)
        own = {} if options is None else options()
        return {"kind": type(self.inner).__qualname__, **own}
