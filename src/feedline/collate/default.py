"""`default_collate`: a list of items to one batch of the same structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from feedline.collate.containers import (
    is_dataclass_instance,
    join_dataclasses,
    join_dicts,
    join_lists,
    join_mappings,
    join_tuples,
)
from feedline.collate.foreign import is_jax_array, is_tensor, stack_jax_arrays, stack_tensors
from feedline.collate.mismatch import differing, refused
from feedline.collate.numeric import (
    Memory,
    join_bools,
    join_floats,
    join_ints,
    join_numbers,
    stack_arrays,
)
from feedline.errors import CollateError

__all__ = ["CONTAINERS", "common_family", "default_collate", "join_column"]


def default_collate(items: Sequence[Any], memory: Memory | None = None) -> Any:
    """Join items to one batch, part by part, keeping their structure.

    | part of an item | in the batch |
    | --- | --- |
    | `bool`, `int`, `float`, `complex` | an array of bool, int64 (uint64 if all fit only there), float64, complex128, shape `(b,)` |
    | NumPy scalars and arrays of `shape` | an array `(b, *shape)` of their dtype, in native byte order |
    | `str`, `bytes` (also NumPy's) | a list |
    | tuples, named tuples, lists, mappings, dataclasses | the same, of batches; by position, key or field |
    | torch tensors, JAX arrays | stacked, of the same kind |

    Different dtypes of arrays promote as NumPy's do, except integers to floats; bools of arrays with axes to integers,
    but no scalar ones. `[1.5, 2]` is float64 if every int is exact in it, and ints among NumPy scalars take their dtype
    if they fit. Mappings that can't be built again become dicts.

    Args:
        items: the items, at least one; a list or another sequence.
        memory: where large arrays go (`feedline.collate.buffers.BatchMemory`); new memory without it. If the items'
            arrays are the rows that it gave out, the block that they lie in becomes the batch, without a copy.

    Returns:
        A batch in memory of its own: new, writable, C-contiguous. Items are never changed.

    Raises:
        CollateError: shapes, keys, lengths, dtypes or types differ; or a part is `None`, an array of objects, a masked
            array or of an unknown type. It names the path in the item, the items, and what differs.
        OverflowError: a Python int fits no integer dtype; with `path` and `positions`, too.

    Concurrency: may be called from several threads at once.

    >>> default_collate([(np.zeros(2), 3, "a"), (np.ones(2), 4, "b")])
    (array([[0., 0.],
           [1., 1.]]), array([3, 4]), ['a', 'b'])
    """
    if not isinstance(items, (list, tuple)):
        items = list(items)
    if not items:
        raise CollateError("can't collate a batch of zero items")
    return join_column(memory, items, "")


# The loader hands the memory of a batch to collate functions that have this.
default_collate.takes_memory = True  # type: ignore[attr-defined]


def join_column(memory: Memory | None, column: Sequence[Any], path: str) -> Any:
    """Join one part of all items."""
    kind = type(column[0])
    if list(map(type, column)).count(kind) == len(column):
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return leaf(column, path, memory)
        container = _QUICK_CONTAINERS.get(kind)
        if container is not None:
            return container(column, path, partial(join_column, memory))
    return _join_any(memory, column, path)


def _texts(column: Sequence[Any], path: str, memory: Memory | None) -> list[Any]:
    return list(column)


_LEAVES: dict[type, Callable[[Sequence[Any], str, Memory | None], Any]] = {
    np.ndarray: stack_arrays,
    int: join_ints,
    float: join_floats,
    bool: join_bools,
    str: _texts,
    bytes: _texts,
}
_QUICK_CONTAINERS: dict[type, Callable[[Sequence[Any], str, Any], Any]] = {
    tuple: join_tuples,
    dict: join_dicts,
    list: join_lists,
}


def _join_any(memory: Memory | None, column: Sequence[Any], path: str) -> Any:
    """Join a column of several types, or of one that has no quick way."""
    family = common_family(column, path)
    container = CONTAINERS.get(family)
    if container is not None:
        return container(column, path, partial(join_column, memory))
    if family == "tensor":
        return stack_tensors(column, path)
    if family == "jax":
        return stack_jax_arrays(column, path)
    return join_numbers(column, path, memory) if family == "number" else list(column)


def common_family(column: Sequence[Any], path: str) -> str:
    """Tell what all of `column` are: "str", "bytes", "number", "tensor", "jax", or a key of `CONTAINERS`.

    Raises:
        CollateError: they are not all of one family, or containers of several types; or some can't be in a batch.
    """
    families = list(map(_family, column))
    for family, advice in _REFUSED.items():
        bad = [position for position, found in enumerate(families) if found == family]
        if bad:
            raise refused(path, bad, type(column[bad[0]]).__name__, advice)
    kinds: list[Any] = families if families[0] not in CONTAINERS else list(map(type, column))
    if kinds.count(kinds[0]) != len(kinds):
        raise differing(path, "types", [type(leaf).__name__ for leaf in column], _ONE_TYPE)
    return families[0]


_ONE_TYPE = "Every item needs the same type there"
#: Families with parts, and how they are joined: `f(column, path, join)`.
CONTAINERS: dict[str, Callable[[Sequence[Any], str, Any], Any]] = {
    "mapping": join_mappings,
    "dataclass": join_dataclasses,
    "tuple": join_tuples,
    "list": join_lists,
}
_REFUSED = {
    "None": "Fill in missing values in the transform, or use collate_fn=list",
    "unknown": "Turn it into arrays, numbers, text or containers of them in the transform, or use collate_fn=list",
}


def _family(leaf: Any) -> str:
    """Tell what `leaf` is joined as; `"unknown"` if nothing."""
    for family, kinds in _FAMILIES:
        if isinstance(leaf, kinds):
            return family
    if is_tensor(leaf):
        return "tensor"
    if is_jax_array(leaf):
        return "jax"
    if isinstance(leaf, Mapping):
        return "mapping"
    if is_dataclass_instance(leaf):
        return "dataclass"
    return "None" if leaf is None else "unknown"


# Order matters: np.str_ is a str and an np.generic, np.float64 a float.
_FAMILIES: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("str", str),
    ("bytes", bytes),
    ("number", (np.ndarray, np.generic, bool, int, float, complex)),
    ("tuple", tuple),
    ("list", list),
)
