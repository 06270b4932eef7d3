"""Which modules a worker process can't import: what is defined in them travels by value.

`__main__` (a script, a notebook) is never imported by a worker, so that scripts need no guard. Other modules are looked
for in the places of `sys.path`, without importing anything.
"""

from __future__ import annotations

import importlib.machinery
import sys
import weakref
from itertools import count
from typing import Any

__all__ = ["can_import", "class_of", "key_of", "register_class", "sent_class"]

#: Classes that were sent by value, by a key that names them on both sides of a pipe.
_by_key: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
_keys: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_numbers = count()


def can_import(name: str) -> bool:
    """Tell whether `import name` in a new process finds the module that has this name here."""
    if name in ("__main__", "__mp_main__"):
        return False
    if name in sys.builtin_module_names or name.partition(".")[0] in sys.stdlib_module_names:
        return True
    module = sys.modules.get(name)
    spec = _find(name)
    if spec is None:
        return False
    here = getattr(module, "__file__", None)
    return here is None or spec.origin is None or _same(spec.origin, here)


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find `name` package by package, importing none of them."""
    places: Any = None
    spec = None
    whole = ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = _ask_finders(whole, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
        if places is None:
            # What lies deeper in a plain module is made by that module, as os.path is.
            return spec
    return spec


def _ask_finders(name: str, places: Any) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, places) if find is not None else None
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return None


def _same(one: str, other: str) -> bool:
    return one == other or one.removesuffix("c") == other.removesuffix("c")


def key_of(cls: type) -> str | None:
    """Return the key of a class that was sent by value."""
    return _keys.get(cls)


def sent_class(cls: type, process: int) -> str:
    """Return the key of `cls`, a new one if it is sent for the first time."""
    key = _keys.get(cls)
    if key is None:
        key = f"{process}-{next(_numbers)}"
        _keys[cls] = key
        _by_key[key] = cls
    return key


def class_of(key: str) -> type:
    """Return the class that was sent, or has arrived, under `key`.

    Raises:
        LookupError: it is gone.
    """
    cls = _by_key.get(key)
    if cls is None:
        raise LookupError("a class that was defined in __main__, or locally, is gone")
    return cls


def register_class(key: str, make: Any, *arguments: Any) -> type:
    """Return the class that arrives under `key`, made only once; called when it is unpickled."""
    cls = _by_key.get(key)
    if cls is None:
        cls = make(*arguments)
        assert isinstance(cls, type)
        _keys[cls] = key
        _by_key[key] = cls
    return cls
