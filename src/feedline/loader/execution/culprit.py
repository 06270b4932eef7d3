"""Which part of a loader can't be sent to a worker process, named by its path."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["describe_unpicklable"]

MAX_DEPTH = 12
MAX_PARTS = 1000


def describe_unpicklable(parts: Mapping[str, Any], dump: Callable[[Any], Any], error: BaseException) -> str:
    """Return a line that names what can't be pickled in `parts` (name to object), as `dataset.f: why`.

    Args:
        parts: what was to be sent.
        dump: raises if its argument can't be.
        error: what was raised for all of them together; told if no single part is to blame.
    """
    for name, value in parts.items():
        found = _search(name, value, dump, set(), 0)
        if found is not None:
            path, why = found
            return f"{path}: {_tell(why)}"
    return _tell(error)


def _tell(error: BaseException) -> str:
    text = str(error)
    return text if text and isinstance(error, TypeError) else f"{type(error).__name__}: {text}"


def _search(
    path: str, value: Any, dump: Callable[[Any], Any], seen: set[int], depth: int
) -> tuple[str, BaseException] | None:
    """Return the deepest part of `value` that can't be dumped, and what that raises; `None` if it can be."""
    if id(value) in seen:
        return None
    try:
        dump(value)
        return None
    except Exception as error:
        why = error
    seen.add(id(value))
    if depth < MAX_DEPTH:
        for step, part in _parts(value):
            found = _search(path + step, part, dump, seen, depth + 1)
            if found is not None:
                return found
    return path, why


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (how it is reached, part) for what `value` is made of."""
    if isinstance(value, (list, tuple)):
        for place, part in enumerate(value[:MAX_PARTS]):
            yield f"[{place}]", part
    elif isinstance(value, Mapping):
        for key in list(value)[:MAX_PARTS]:
            yield f"[{key!r}]", value[key]
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _closure(value)
    else:
        for name, part in list(getattr(value, "__dict__", {}).items()):
            yield f".{name}", part
        for name in _slots(type(value)):
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)


def _closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f" (its variable {name!r})", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f" (its global {name!r})", function.__globals__[name]


def _slots(cls: type) -> list[str]:
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.extend([slots] if isinstance(slots, str) else slots)
    return [name for name in names if not name.startswith("__")]
