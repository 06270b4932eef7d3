"""What stands in `loader.sampler` where the order is feedline's own: for frameworks and users who look there."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch.utils.data import Sampler

if TYPE_CHECKING:
    from feedline.torch.dataloader import DataLoader

__all__ = ["EpochSampler"]

#: Indices that are made at a time.
BLOCK = 4096


class EpochSampler(Sampler[int]):  # type: ignore[misc]  # torch is Any to the type checker
    """The indices of a loader's next epoch.

    Walking it changes nothing: the loader computes its order itself. `set_epoch(e)` is the loader's.

    Args:
        loader: whose order it is; known weakly.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader = weakref.ref(loader)

    def _owner(self) -> DataLoader:
        loader = self._loader()
        if loader is None:
            raise RuntimeError("the loader whose order this sampler shows is gone")
        return loader

    @property
    def epoch(self) -> int:
        """The loader's next epoch."""
        return self._owner().epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the loader's next `iter()` run `epoch`."""
        self._owner().set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        order = self._owner()._own_order()
        for start in range(0, len(order), BLOCK):
            yield from order[start : start + BLOCK].tolist()

    def __len__(self) -> int:
        return len(self._owner()._own_order())
