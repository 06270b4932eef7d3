"""Batches that were gathered together, taken apart again: views of one block of memory, which do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["can_split", "split_batch"]


def can_split(batch: Any) -> bool:
    """Tell whether `split_batch` can take `batch` apart: an array, or plain tuples and dicts of arrays."""
    if type(batch) is np.ndarray:
        return True
    if type(batch) is tuple:
        return all(map(can_split, batch))
    return type(batch) is dict and all(map(can_split, batch.values()))


def split_batch(batch: Any, count: int, size: int) -> list[Any]:
    """Return the `count` batches that `batch` holds along axis 0: each of `size` rows, the last perhaps shorter."""
    if type(batch) is np.ndarray:
        return [batch[start : start + size] for start in range(0, count * size, size)]
    if type(batch) is tuple:
        return list(zip(*[split_batch(part, count, size) for part in batch], strict=True))
    parts = [split_batch(part, count, size) for part in batch.values()]
    return [dict(zip(batch, values, strict=True)) for values in zip(*parts, strict=True)]
