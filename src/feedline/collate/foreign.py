"""Columns of torch tensors and JAX arrays, which stay what they are.

Both are recognised only if their module is loaded already: an item can't be a tensor otherwise, and importing them
takes seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from feedline.collate.mismatch import differing, refused

__all__ = [
    "PAD_ADVICE",
    "PAD_REFUSED",
    "is_jax_array",
    "is_tensor",
    "pad_jax_arrays",
    "pad_tensors",
    "stack_jax_arrays",
    "stack_tensors",
]

_RAGGED = "Make them equal in the transform, use padded_collate(), or collate_fn=list"
_KINDS = "Integers are not turned into floats: choose one dtype in the transform"


def is_tensor(leaf: Any) -> bool:
    """Tell whether `leaf` is a torch tensor."""
    # A module may be there, but only half loaded, by another thread.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(leaf, kind)


def is_jax_array(leaf: Any) -> bool:
    """Tell whether `leaf` is a JAX array."""
    kind = getattr(sys.modules.get("jax"), "Array", None)
    return kind is not None and isinstance(leaf, kind)


def stack_tensors(column: Sequence[Any], path: str) -> Any:
    """Stack torch tensors on a new axis 0, on their device; gradients flow through, as with `torch.stack`."""
    import torch

    _check_shapes(column, path)
    _check_tensors(column, path)
    return torch.stack(list(column))


def pad_tensors(column: Sequence[Any], path: str, length: int, pad_value: Any) -> Any:
    """Stack torch tensors of unequal lengths, each padded to `length` along axis 0.

    Raises:
        CollateError: dtypes or devices don't go together, or `pad_value` is not representable.
    """
    import torch

    _check_tensors(column, path)
    for position, tensor in enumerate(column):
        if not _tensor_holds(tensor, pad_value):
            raise refused(path, [position], PAD_REFUSED.format(pad_value, tensor.dtype), PAD_ADVICE)
    rests = [tensor.new_full((length - len(tensor), *tensor.shape[1:]), pad_value) for tensor in column]
    return torch.stack([torch.cat([tensor, rest]) for tensor, rest in zip(column, rests)])


PAD_REFUSED = "pad_value {!r} is not representable in {}, the dtype"
PAD_ADVICE = "Choose another pad_value, or another dtype in the transform"


def _tensor_holds(tensor: Any, value: Any) -> bool:
    """Tell whether `value` keeps its meaning as an element of `tensor`; floats may be rounded."""
    try:
        held = tensor.new_full((), value).item()
    except (RuntimeError, TypeError, OverflowError, ValueError):
        return False
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return bool(np.isfinite(held) == np.isfinite(value))
    return bool(held == value)


def _check_tensors(column: Sequence[Any], path: str) -> None:
    import torch

    dtypes = [tensor.dtype for tensor in column]
    inexact = [dtype.is_floating_point or dtype.is_complex for dtype in dtypes]
    integer = [not known and dtype is not torch.bool for known, dtype in zip(inexact, dtypes)]
    if any(inexact) and any(integer):
        raise differing(path, "dtypes", dtypes, _KINDS)
    devices = [str(tensor.device) for tensor in column]
    if devices.count(devices[0]) != len(devices):
        raise differing(path, "devices", devices, "Move them to one device in the transform")


def stack_jax_arrays(column: Sequence[Any], path: str) -> Any:
    """Stack JAX arrays on a new axis 0."""
    import jax.numpy as jnp

    _check_shapes(column, path)
    _check_jax_arrays(column, path)
    return jnp.stack(column)


def pad_jax_arrays(column: Sequence[Any], path: str, length: int, pad_value: Any) -> Any:
    """Stack JAX arrays of unequal lengths, each padded to `length` along axis 0."""
    import jax.numpy as jnp

    _check_jax_arrays(column, path)
    widths = [((0, length - len(array)), *((0, 0) for _ in array.shape[1:])) for array in column]
    return jnp.stack(
        [jnp.pad(array, width, constant_values=pad_value) for array, width in zip(column, widths)]
    )


def _check_jax_arrays(column: Sequence[Any], path: str) -> None:
    import jax.numpy as jnp

    integer = [jnp.issubdtype(array.dtype, jnp.integer) for array in column]
    inexact = [jnp.issubdtype(array.dtype, jnp.inexact) for array in column]
    if any(integer) and any(inexact):
        raise differing(path, "dtypes", [array.dtype for array in column], _KINDS)


def _check_shapes(column: Sequence[Any], path: str) -> None:
    shapes = [tuple(leaf.shape) for leaf in column]
    if shapes.count(shapes[0]) != len(shapes):
        raise differing(path, "shapes", shapes, _RAGGED)
