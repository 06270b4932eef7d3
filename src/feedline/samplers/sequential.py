"""The order in which a dataset lies."""

from __future__ import annotations

from typing import Any

from feedline.keys import check_epoch
from feedline.samplers.arguments import check_length
from feedline.samplers.orders import RangeOrder

__all__ = ["SequentialSampler"]


class SequentialSampler:
    """Visits 0, 1, ... n - 1, in constant memory; every epoch alike.

    >>> from feedline.samplers.sequential import SequentialSampler
    >>> SequentialSampler().order(10**12, epoch=0)[5:8]
    array([5, 6, 7])
    """

    def order(self, length: int, epoch: int) -> RangeOrder:
        """Return the order 0, 1, ... `length` - 1."""
        check_epoch(epoch)
        return RangeOrder(check_length(length))

    def options(self) -> dict[str, Any]:
        """Return what identifies the order: nothing."""
        return {}

    def __repr__(self) -> str:
        return "SequentialSampler()"
