"""What happens to a batch in the consumer's thread, after it is loaded and before it is handed out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from feedline.collate.leaves import map_leaves
from feedline.loader.iterator import DataLoaderIterator

__all__ = ["DeliveringIterator", "can_pin", "pin"]

Deliver = Callable[[Any], Any]


class DeliveringIterator(DataLoaderIterator):
    """An iterator whose batches go through `deliver` on their way out."""

    def __init__(self, deliver: Deliver, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._deliver = deliver


def can_pin() -> bool:
    """Tell whether torch is loaded and has CUDA: page-locked memory is of no use otherwise."""
    torch = sys.modules.get("torch")
    # A torch that is only being imported on another thread has made no tensor yet.
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and bool(cuda.is_available())


def pin(batch: Any) -> Any:
    """Return `batch` with its torch tensors in page-locked memory, and everything else as it is.

    Types are kept: named tuples, dataclasses and subclasses of dict or list come back as what they were. An object that
    has a `pin_memory()` of its own is asked, and not looked into. Without CUDA the batch itself is returned.
    """
    return map_leaves(_pin_leaf, batch, stop=_pins_itself) if can_pin() else batch


def _pins_itself(value: Any) -> bool:
    return callable(getattr(value, "pin_memory", None))


def _pin_leaf(leaf: Any) -> Any:
    return leaf.pin_memory() if _pins_itself(leaf) else leaf
