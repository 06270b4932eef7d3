"""`default_collate` and `default_convert` with torch's results, at a fraction of torch's time for common items.

Columns of equal NumPy arrays, numbers and NumPy scalars are joined by `feedline.collate` and seen as tensors without a
copy. Whatever is not that simple goes to torch's own function, so results and errors are torch's by construction; and
if functions were added to `default_collate_fn_map`, all of it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_convert
from torch.utils.data._utils.collate import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from feedline.collate.numeric import Memory, stack_arrays

__all__ = ["as_tensors", "default_collate", "default_convert", "is_tensor_dtype"]

#: Batches of tensors from this size on go to memory that was used before: fresh pages cost more than the copy.
POOLED_BYTES = 64 * 1024

_untouched = dict(default_collate_fn_map)
_dtype_of = attrgetter("dtype")
_shape_of = attrgetter("shape")


def default_collate(batch: Sequence[Any], memory: Memory | None = None) -> Any:
    """Join items to one batch of tensors, as `torch.utils.data.default_collate` does, equal in types and values.

    Args:
        batch: the items, at least one.
        memory: where large arrays go; new memory without it.

    Returns:
        Tensors with a new axis 0 in the place of tensors, arrays and numbers; tuples become lists, as torch has it;
        text stays as it is.

    Raises:
        RuntimeError, TypeError, KeyError: as torch raises them, for items that can't be joined.

    Concurrency: may be called from several threads at once.

    >>> default_collate([(1, 2.0), (3, 4.0)])
    [tensor([1, 3]), tensor([2., 4.], dtype=torch.float64)]
    """
    if default_collate_fn_map != _untouched:
        return torch.utils.data.default_collate(batch)
    if not isinstance(batch, (list, tuple)):
        batch = list(batch)
    return _join(batch, memory)


# The loader hands the memory of a batch to collate functions that have this.
default_collate.takes_memory = True  # type: ignore[attr-defined]


def _join(column: Sequence[Any], memory: Memory | None) -> Any:
    kind = type(column[0])
    if list(map(type, column)).count(kind) == len(column):
        join = _QUICK.get(kind)
        if join is not None:
            return join(column, memory)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return kind(*[_join(part, memory) for part in zip(*column, strict=False)])
        if issubclass(kind, (np.number, np.bool_)) and is_tensor_dtype(column[0].dtype):
            return torch.from_numpy(np.array(column, column[0].dtype))
    return torch_collate(column, collate_fn_map=default_collate_fn_map)


def _join_arrays(column: Sequence[Any], memory: Memory | None) -> Any:
    first = column[0]
    count = len(column)
    if (
        list(map(_dtype_of, column)).count(first.dtype) != count
        or list(map(_shape_of, column)).count(first.shape) != count
        or not is_tensor_dtype(first.dtype)
    ):
        return torch_collate(column, collate_fn_map=default_collate_fn_map)
    return torch.from_numpy(stack_arrays(column, "", memory))


def _join_tensors(column: Sequence[Any], memory: Memory | None) -> Any:
    first = column[0]
    nbytes = first.nbytes * len(column)
    if (
        memory is None
        or nbytes < POOLED_BYTES
        or first.layout is not torch.strided
        or first.is_nested
        or first.device.type != "cpu"
    ):
        return torch_collate(column, collate_fn_map=default_collate_fn_map)
    numpy_dtype = _NUMPY_DTYPES.get(first.dtype)
    if numpy_dtype is None or any(
        tensor.requires_grad or tensor.dtype != first.dtype or tensor.shape != first.shape
        for tensor in column
    ):
        return torch_collate(column, collate_fn_map=default_collate_fn_map)
    out = torch.from_numpy(memory.allocate((len(column), *first.shape), numpy_dtype))
    return torch.stack(list(column), out=out)


def _join_ints(column: Sequence[int], memory: Memory | None) -> Any:
    try:
        return torch.from_numpy(np.array(column, np.int64))
    except OverflowError:
        return torch_collate(column, collate_fn_map=default_collate_fn_map)


def _join_floats(column: Sequence[float], memory: Memory | None) -> Any:
    return torch.from_numpy(np.array(column, np.float64))


def _join_bools(column: Sequence[bool], memory: Memory | None) -> Any:
    return torch.from_numpy(np.array(column, np.bool_))


def _texts(column: Sequence[Any], memory: Memory | None) -> Any:
    return column


def _join_tuples(column: Sequence[Any], memory: Memory | None) -> Any:
    if list(map(len, column)).count(len(column[0])) != len(column):
        return torch_collate(column, collate_fn_map=default_collate_fn_map)
    return [_join(part, memory) for part in zip(*column, strict=True)]


def _join_dicts(column: Sequence[dict[Any, Any]], memory: Memory | None) -> Any:
    return {key: _join(list(map(itemgetter(key), column)), memory) for key in column[0]}


_QUICK: dict[type, Callable[[Any, Memory | None], Any]] = {
    np.ndarray: _join_arrays,
    torch.Tensor: _join_tensors,
    int: _join_ints,
    float: _join_floats,
    bool: _join_bools,
    str: _texts,
    bytes: _texts,
    tuple: _join_tuples,
    list: _join_tuples,
    dict: _join_dicts,
}

_NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    getattr(torch, name): np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
_TENSOR_DTYPES = frozenset(_NUMPY_DTYPES.values())


def is_tensor_dtype(dtype: np.dtype[Any]) -> bool:
    """Tell whether torch has this dtype, in this byte order."""
    return dtype in _TENSOR_DTYPES and dtype.isnative


def as_tensors(batch: Any) -> Any:
    """Return a batch of NumPy arrays (one, or tuples, lists and dicts of them) as tensors that see the same memory.

    A tuple becomes a list, as in torch's batches.
    """
    if isinstance(batch, np.ndarray):
        return torch.from_numpy(batch)
    if type(batch) is dict:
        return {key: as_tensors(part) for key, part in batch.items()}
    if type(batch) in (tuple, list):
        return [as_tensors(part) for part in batch]
    return batch
