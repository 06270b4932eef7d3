"""Columns of torch tensors and JAX arrays, which stay what they are.

Both are recognised only if their module is loaded already: an item can't be a tensor otherwise, and importing them
takes seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from feedline.collate.mismatch import differing

__all__ = ["is_jax_array", "is_tensor", "stack_jax_arrays", "stack_tensors"]

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
    dtypes = [tensor.dtype for tensor in column]
    is_float = [dtype.is_floating_point or dtype.is_complex for dtype in dtypes]
    is_integer = [not f and dtype is not torch.bool for f, dtype in zip(is_float, dtypes)]
    if any(is_float) and any(is_integer):
        raise differing(path, "dtypes", dtypes, _KINDS)
    devices = [str(tensor.device) for tensor in column]
    if devices.count(devices[0]) != len(devices):
        raise differing(path, "devices", devices)
    return torch.stack(list(column))


def stack_jax_arrays(column: Sequence[Any], path: str) -> Any:
    """Stack JAX arrays on a new axis 0."""
    import jax.numpy as jnp

    _check_shapes(column, path)
    kinds = [jnp.issubdtype(array.dtype, jnp.integer) for array in column]
    inexact = [jnp.issubdtype(array.dtype, jnp.inexact) for array in column]
    if any(kinds) and any(inexact):
        raise differing(path, "dtypes", [array.dtype for array in column], _KINDS)
    return jnp.stack(column)


def _check_shapes(column: Sequence[Any], path: str) -> None:
    shapes = [tuple(leaf.shape) for leaf in column]
    if shapes.count(shapes[0]) != len(shapes):
        raise differing(path, "shapes", shapes, _RAGGED)
