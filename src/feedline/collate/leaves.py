"""A batch taken apart and built again, leaf by leaf, with its types kept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

__all__ = ["map_leaves"]

Leaf = Callable[[Any], Any]
Stop = Callable[[Any], bool]


def map_leaves(function: Leaf, batch: Any, *, stop: Stop | None = None) -> Any:
    """Return `batch` with `function(leaf)` in the place of every leaf.

    Containers are mappings, tuples (named ones, too), lists and other sequences, and dataclass instances: they come
    back as what they were, with their attributes; where a class can't be built again, as a dict or a list. Text, bytes,
    `None`, arrays and everything unknown are leaves. If nothing changes in a container, it is returned itself.

    Args:
        function: called once for each leaf, in order.
        batch: anything; never modified.
        stop: tells that a value is a leaf, whatever its type.

    >>> from feedline.collate.leaves import map_leaves
    >>> map_leaves(lambda leaf: leaf * 2, {"a": [1, 2], "b": (3,)})
    {'a': [2, 4], 'b': (6,)}
    """

    # No closure that knows itself: such a cycle would keep batches until garbage is collected.
    return _walk(function, stop, batch)


def _walk(function: Leaf, stop: Stop | None, value: Any) -> Any:
    if stop is not None and stop(value):
        return function(value)
    kind = type(value)
    if kind is dict:
        return _unless_equal(value, {key: _walk(function, stop, part) for key, part in value.items()})
    if kind is tuple or kind is list:
        parts = [_walk(function, stop, part) for part in value]
        if all(map(_is, parts, value)):
            return value
        return parts if kind is list else tuple(parts)
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return function(value)
    if isinstance(value, Mapping):
        built = {key: _walk(function, stop, value[key]) for key in value}
        return _unless_equal(value, built, _same_mapping)
    if isinstance(value, Sequence):
        return _same_sequence(value, [_walk(function, stop, part) for part in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return _same_dataclass(value, {name: _walk(function, stop, getattr(value, name)) for name in names})
    return function(value)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _unless_equal(
    value: Mapping[Any, Any],
    parts: dict[Any, Any],
    build: Callable[[Any, dict[Any, Any]], Any] | None = None,
) -> Any:
    if all(parts[key] is value[key] for key in parts):
        return value
    return parts if build is None else build(value, parts)


def _same_mapping(value: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    try:
        if isinstance(value, MutableMapping):
            # A copy, so that attributes are kept; entry by entry, since update() of a Counter would add.
            clone: Any = copy.copy(value)
            for key, part in parts.items():
                clone[key] = part
            return clone
        return type(value)(parts)  # type: ignore[call-arg]
    except Exception:  # a class of the user's: whatever it raises, it can't be built again
        return parts


def _same_sequence(value: Sequence[Any], parts: list[Any]) -> Any:
    if all(map(_is, parts, value)):
        return value
    try:
        if isinstance(value, tuple):
            make = getattr(type(value), "_make", None)
            return make(parts) if make is not None else type(value)(parts)
        if isinstance(value, MutableSequence):
            clone: Any = copy.copy(value)
            for place, part in enumerate(parts):
                clone[place] = part
            return clone
        return type(value)(parts)  # type: ignore[call-arg]
    except Exception:  # as above
        return parts


def _same_dataclass(value: Any, parts: dict[str, Any]) -> Any:
    if all(part is getattr(value, name) for name, part in parts.items()):
        return value
    # `__init__` and `__post_init__` are not called again: they may do more than store.
    clone = copy.copy(value)
    for name, part in parts.items():
        object.__setattr__(clone, name, part)  # frozen ones refuse setattr
    return clone
