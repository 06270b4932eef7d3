"""Columns of tuples, lists, mappings and dataclasses: taken apart, joined part by part, and built again.

A container is built again without calling its `__init__`, where that is possible, and never by changing one of the
items.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from feedline.collate.mismatch import differing

__all__ = [
    "is_dataclass_instance",
    "join_dataclasses",
    "join_dicts",
    "join_lists",
    "join_mappings",
    "join_tuples",
]

#: `join(column, path) -> batch` for one part of all items.
Join = Callable[[Sequence[Any], str], Any]

_RAGGED = "Nothing is cut: make them equal in the transform, use padded_collate(), or collate_fn=list"
_KEYS = "Every item needs the same keys"


def join_tuples(column: Sequence[tuple[Any, ...]], path: str, join: Join) -> tuple[Any, ...]:
    """Join tuples of one type by position, named ones by field."""
    parts = _join_by_position(column, path, join)
    first = column[0]
    kind = type(first)
    if kind is tuple:
        return tuple(parts)
    if hasattr(kind, "_make"):
        made: tuple[Any, ...] = kind._make(parts)
        return made
    rebuilt: tuple[Any, ...] = _rebuilt(
        kind, tuple(parts), lambda made: len(made) == len(parts) and all(map(operator.is_, made, parts))
    )
    return rebuilt


def join_lists(column: Sequence[list[Any]], path: str, join: Join) -> list[Any]:
    """Join lists of one type and length by position."""
    parts = _join_by_position(column, path, join)
    if type(column[0]) is list:
        return parts
    # A copy, so that attributes of a subclass are kept, whatever its __init__ wants.
    made = copy.copy(column[0])
    made[:] = parts
    return made


def _join_by_position(column: Sequence[Sequence[Any]], path: str, join: Join) -> list[Any]:
    first = column[0]
    lengths = list(map(len, column))
    if lengths.count(len(first)) != len(lengths):
        raise differing(path, "lengths", lengths, _RAGGED)
    names = getattr(first, "_fields", None)
    if names is not None:
        return [join(part, f"{path}.{name}") for name, part in zip(names, zip(*column))]
    return [join(part, f"{path}[{place}]") for place, part in enumerate(zip(*column))]


def join_dicts(column: Sequence[dict[Any, Any]], path: str, join: Join) -> dict[Any, Any]:
    """Join plain dicts by key; the order of keys is that of the first item."""
    first = column[0]
    columns = None
    if list(map(len, column)).count(len(first)) == len(column):
        try:
            columns = [list(map(operator.itemgetter(key), column)) for key in first]
        except KeyError:
            columns = None  # as many keys, but not the same ones
    if columns is None:
        _check_keys(column, path)
        columns = [[item[key] for item in column] for key in first]
    return {key: join(part, f"{path}[{key!r}]") for key, part in zip(first, columns)}


def join_mappings(column: Sequence[Mapping[Any, Any]], path: str, join: Join) -> Mapping[Any, Any]:
    """Join mappings of one type by key; one that can't be built again becomes a dict."""
    _check_keys(column, path)
    first = column[0]
    parts = {key: join([item[key] for item in column], f"{path}[{key!r}]") for key in first}
    kind = type(first)
    if issubclass(kind, dict):
        # The copy of a dict has entries of its own; that of another mapping may share them with the item.
        clone: Any = copy.copy(first)
        for key, part in parts.items():  # update() of a Counter would add
            clone[key] = part
        return cast(Mapping[Any, Any], clone)
    rebuilt: Mapping[Any, Any] = _rebuilt(
        kind, parts, lambda made: made.keys() == parts.keys() and all(made[k] is parts[k] for k in parts)
    )
    return rebuilt


def _check_keys(column: Sequence[Mapping[Any, Any]], path: str) -> None:
    keys = column[0].keys()
    if all(item.keys() == keys for item in column):
        return
    raise differing(path, "keys", [f"[{', '.join(map(repr, item))}]" for item in column], _KEYS)


def join_dataclasses(column: Sequence[Any], path: str, join: Join) -> Any:
    """Join dataclass instances of one type by field, also those that `__init__` doesn't take.

    `__init__` and `__post_init__` are not called: they are made for an item, not for a batch.
    """
    kind: Any = type(column[0])
    made = kind.__new__(kind)
    for field in dataclasses.fields(kind):
        have = [hasattr(item, field.name) for item in column]
        if not any(have):
            continue  # declared with init=False, and never set
        where = f"{path}.{field.name}"
        if not all(have):
            raise differing(where, "fields", ["set" if here else "not set" for here in have])
        part = join(list(map(operator.attrgetter(field.name), column)), where)
        object.__setattr__(made, field.name, part)  # frozen ones refuse setattr
    return made


def _rebuilt(kind: type[Any], parts: Any, holds_parts: Callable[[Any], bool]) -> Any:
    """Return `kind(parts)`, or `parts` if that class can't be built so, or keeps something else."""
    try:
        made = kind(parts)
        if type(made) is kind and holds_parts(made):
            return made
    except Exception:  # a constructor of the user's: whatever it raises, it can't be used
        return parts
    return parts


def is_dataclass_instance(item: Any) -> bool:
    """Tell an instance from a dataclass itself."""
    return dataclasses.is_dataclass(item) and not isinstance(item, type)
