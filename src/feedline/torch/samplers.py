"""What stands in `loader.sampler` where the order is feedline's own: for frameworks and users who look there."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler

if TYPE_CHECKING:
    from feedline.torch.dataloader import DataLoader

__all__ = ["EpochSampler"]


class EpochSampler(Sampler[int]):
    """The indices of a loader's next epoch.

    Walking it changes nothing: the loader computes its order itself. `set_epoch(e)` is the loader's.

    Args:
        loader: whose order it is; known weakly.
        order: the sampler of feedline that gives it.
    """

    def __init__(self, loader: DataLoader, order: Any) -> None:
        self._loader = weakref.ref(loader)
        self._dataset = loader.dataset
        self._order = order

    @property
    def epoch(self) -> int:
        """The loader's next epoch."""
        loader = self._loader()
        return 0 if loader is None else loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the loader's next `iter()` run `epoch`."""
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        order = self._order.order(len(self._dataset), self.epoch)
        for start in range(0, len(order), 4096):
            yield from order[start : start + 4096].tolist()

    def __len__(self) -> int:
        return len(self._order.order(len(self._dataset), self.epoch))
