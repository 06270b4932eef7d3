"""Which columns of a table are features and which are labels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from feedline.errors import OptionError

__all__ = ["as_names", "choose"]


def as_names(option: str, given: Any) -> tuple[str, ...] | None:
    """Return a list of names as a tuple; `None` stays `None`.

    Raises:
        TypeError: it is a single text, or no list of texts.
        OptionError: a name is there twice.
    """
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{option} must be a list of names such as ['y'], not {given!r}")
    names = tuple(given)
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"{option} must be a list of names, but has {name!r}")
        if name in names[:place]:
            raise OptionError(f"{option} names {name!r} twice")
    return names


def choose(
    what: str, names: Sequence[str], labels: Sequence[str] | None, columns: Sequence[str] | None
) -> tuple[list[int], list[int]]:
    """Return the places of features and of labels among `names`.

    Args:
        what: where they are, for the messages.
        names: all there are.
        labels: those that are labels, in this order; `None` for none.
        columns: those that are features, in this order; `None` for all that are no labels.

    Raises:
        OptionError: a name that isn't there, or is there twice; a column that is both; nothing is left.

    >>> choose("'t.csv'", ["a", "b", "y"], ["y"], None)
    ([0, 1], [2])
    """
    chosen_labels = [_place(what, names, name) for name in labels or ()]
    if columns is None:
        features = [place for place in range(len(names)) if place not in set(chosen_labels)]
    else:
        features = [_place(what, names, name) for name in columns]
        both = set(features) & set(chosen_labels)
        if both:
            raise OptionError(f"{names[min(both)]!r} of {what} can't be a feature and a label")
    if not features and not chosen_labels:
        raise OptionError(f"{what} has no columns")
    return features, chosen_labels


def _place(what: str, names: Sequence[str], name: str) -> int:
    found = [place for place, other in enumerate(names) if other == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise OptionError(f"{what} has {len(found)} columns named {name!r}, so the name does not tell which")
    shown = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    raise OptionError(f"{what} has no column {name!r}; it has {shown}")
