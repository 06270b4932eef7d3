"""What `MODULE:NAME` and `path/to/file.py:NAME` on the command line mean."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from feedline.errors import OptionError

__all__ = ["import_target", "split_target"]


def split_target(target: str) -> tuple[str, str]:
    """Return the module (or file) and the name in `target`; nothing is imported.

    Raises:
        OptionError: it is not of this form.

    >>> split_target("package.module:name")
    ('package.module', 'name')
    """
    place, colon, name = target.rpartition(":")
    if not (colon and place and name):
        raise OptionError(f"{target!r} must be MODULE:NAME, or path/to/file.py:NAME")
    return place, name


def import_target(target: str) -> Any:
    """Return what `target` names, modules in the present folder included.

    Raises:
        OptionError: it is not of this form, or the module has no such name.
        FileNotFoundError: there is no such file.
        ImportError: the module is not there, or fails.
    """
    place, name = split_target(target)
    if place.endswith(".py") or os.sep in place:
        path = Path(place)
        if not path.is_file():
            raise FileNotFoundError(2, "no such file", place)
        folder, module_name = path.resolve().parent, path.stem
    else:
        folder, module_name = Path.cwd(), place
    # In front, as Python itself does with a script's folder.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found: Any = importlib.import_module(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{place} has no {part!r}; it was asked for as {target!r}")
        found = getattr(found, part)
    return found
