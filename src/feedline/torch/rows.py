"""Whole batches gathered at once from datasets that lie in memory, where torch would fetch item by item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import TensorDataset

from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.protocol import Allocate, Int64Array
from feedline.torch.collation import is_tensor_dtype

__all__ = ["ROWS_AT_ONCE", "take_of"]

#: Groups of at least so many rows make a gather worth its start.
ROWS_AT_ONCE = ArrayDataset.take_rows


def take_of(dataset: Any) -> Callable[[Int64Array, Allocate], Any] | None:
    """Return `take(indices, allocate)` that gathers arrays, the batch that collated items would be; `None` if there is none.

    There is one for `TensorDataset` itself (not for subclasses, which may do more), and for datasets of feedline whose
    rows have dtypes that torch knows.
    """
    if type(dataset) is TensorDataset:
        rows = _TensorRows(dataset)
        return rows.take if rows.can_take() else None
    take = getattr(dataset, "take", None)
    specs = getattr(dataset, "row_specs", None)
    if not callable(take) or specs is None or not all(is_tensor_dtype(spec.dtype) for spec in specs):
        return None
    return take  # type: ignore[no-any-return]


class _TensorRows:
    """Rows of a `TensorDataset`, seen as arrays."""

    def __init__(self, dataset: TensorDataset) -> None:
        self._dataset = dataset
        self._seen: tuple[Any, ...] | None = None
        self._rows: ArrayDataset | None = None

    def can_take(self) -> bool:
        return all(
            type(tensor) is torch.Tensor
            and tensor.layout is torch.strided
            and tensor.device.type == "cpu"
            and not tensor.requires_grad
            and tensor.ndim > 0
            and not tensor.is_quantized
            and _has_numpy(tensor)
            for tensor in self._dataset.tensors
        )

    def take(self, indices: Int64Array, allocate: Allocate) -> Any:
        """Return a dict of arrays, by the tensors' places."""
        tensors = self._dataset.tensors
        if self._rows is None or self._seen is not tensors:
            self._rows = ArrayDataset({str(place): tensor.numpy() for place, tensor in enumerate(tensors)})
            self._seen = tensors
        gather = self._rows.take
        assert gather is not None
        return tuple(gather(indices, allocate).values())

    def __getstate__(self) -> dict[str, Any]:
        # The rows are the tensors' memory, seen another way: made again where they are needed.
        return {"_dataset": self._dataset, "_seen": None, "_rows": None}


def _has_numpy(tensor: torch.Tensor) -> bool:
    try:
        return is_tensor_dtype(tensor[:0].numpy().dtype)
    except (TypeError, RuntimeError):
        return False
