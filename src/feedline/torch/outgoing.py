"""What is done to a batch in the consumer's thread, so that tensors come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from feedline.loader.batch import MaskedBatch
from feedline.loader.delivery import pin
from feedline.torch.collation import as_tensors
from feedline.torch.workers import unpacked

__all__ = ["outgoing", "unchanged"]

Step = Callable[[Any], Any]


def outgoing(*, packed: bool, whole: bool, masked: bool, pinned: bool) -> Step | None:
    """Return what is done to each batch; `None` for nothing.

    Args:
        packed: it comes from a worker process, with its tensors packed.
        whole: it was gathered as a whole, and is made of arrays.
        masked: it may be a `MaskedBatch`.
        pinned: its tensors go to page-locked memory.
    """
    chosen = ((unpacked, packed), (as_tensors, whole), (_mask_as_tensor, masked), (pin, pinned))
    steps: list[Step] = [step for step, is_due in chosen if is_due]
    if len(steps) < 2:
        return steps[0] if steps else None
    return lambda batch: _all(steps, batch)


def _all(steps: list[Step], batch: Any) -> Any:
    for step in steps:
        batch = step(batch)
    return batch


def _mask_as_tensor(batch: Any) -> Any:
    if type(batch) is not MaskedBatch:
        return batch
    return MaskedBatch(as_tensors(batch.data), torch.from_numpy(batch.mask))


def unchanged(batch: Any) -> Any:
    """Return `batch`."""
    return batch
