"""What kind of dataset it is, in words that stay the same from run to run (for the fingerprint of a state)."""

from __future__ import annotations

from typing import Any

__all__ = ["Named", "class_name", "dataset_kind"]


def class_name(cls: type) -> str:
    """Return a class's qualified name: `feedline.Name` for feedline's own, else `module.qualname`.

    Feedline's classes go by their public name, so that a state still loads after a module has been moved.
    """
    if cls.__module__.partition(".")[0] == "feedline":
        return f"feedline.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"


class Named:
    """A dataset that tells its kind itself: the base of feedline's datasets."""

    def kind(self) -> str:
        """Return the qualified class name; datasets made of others name these, too, in parentheses."""
        return class_name(type(self))


def dataset_kind(dataset: Any) -> str:
    """Return the kind of any dataset.

    >>> dataset_kind([1, 2, 3])
    'builtins.list'
    """
    # A `kind` of somebody else's class may mean anything; only our own is asked.
    return dataset.kind() if isinstance(dataset, Named) else class_name(type(dataset))
