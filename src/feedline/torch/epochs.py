"""Who sets the epoch: a sampler's `set_epoch`, called by the user or a framework, or the loader by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["EpochVoice", "chain_of"]


class _Told(int):
    """An epoch that the loader told a sampler: a plain int in its place is what somebody else has set."""


def chain_of(sampler: Any) -> Iterator[Any]:
    """Yield `sampler`, and the sampler within it (`.sampler`, as of a torch `BatchSampler`), and so on."""
    seen: list[Any] = []
    while sampler is not None and not any(sampler is one for one in seen):
        seen.append(sampler)
        yield sampler
        sampler = getattr(sampler, "sampler", None)


class EpochVoice:
    """Tells a sampler the loader's epoch, and hears when somebody else has told it another one.

    Lightning, Accelerate and many training loops call `loader.sampler.set_epoch(e)` before an epoch: then that is the
    epoch. Where nobody calls it, the loader counts, so that no order is repeated for want of a call.

    Args:
        sampler: it, or one within it, may have `set_epoch(epoch)` and `epoch`, as torch's `DistributedSampler`.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = next(
            (one for one in chain_of(sampler) if callable(getattr(one, "set_epoch", None))), None
        )
        self._last: int | None = None
        self._is_marked = False

    def tell(self, epoch: int) -> None:
        """Set the sampler's epoch."""
        if self._sampler is None:
            return
        self._sampler.set_epoch(_Told(epoch))
        self._last = epoch
        # A sampler that keeps `int(epoch)` loses the mark: then only another number tells.
        self._is_marked = type(getattr(self._sampler, "epoch", None)) is _Told

    def heard(self) -> int | None:
        """Return the epoch that somebody else has set since `tell`, or `None`."""
        present = getattr(self._sampler, "epoch", None)
        if self._sampler is None or isinstance(present, (bool, _Told)) or not isinstance(present, int):
            return None
        if self._last is not None and not self._is_marked and present == self._last:
            return None
        return int(present)
