"""What a user reads when items don't go together: where in the item, which items, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from feedline.errors import CollateError

__all__ = ["differing", "refused", "too_large"]

_MAX_GROUPS = 6
_MAX_POSITIONS = 8


def differing(path: str, what: str, values: Sequence[Any], advice: str = "") -> CollateError:
    """Make the error for items that differ in `what`; `values` has one (hashable) value for each item.

    `positions` of the error are those of the items that differ from most (in a tie: from the first).
    """
    groups: dict[Any, list[int]] = {}
    for position, value in enumerate(values):
        groups.setdefault(value, []).append(position)
    usual = max(groups, key=lambda value: len(groups[value]))
    odd = sorted(p for value, positions in groups.items() if value != usual for p in positions)
    shown = [f"{value} in {_items(positions)}" for value, positions in list(groups.items())[:_MAX_GROUPS]]
    if len(groups) > _MAX_GROUPS:
        shown.append(f"and {len(groups) - _MAX_GROUPS} more")
    text = f"can't collate {_place(path)}: {what} differ: {'; '.join(shown)}"
    return CollateError(f"{text}. {advice}" if advice else text, path=path, positions=tuple(odd))


def refused(path: str, positions: Iterable[int], what: str, advice: str) -> CollateError:
    """Make the error for items that can't be part of any batch: `what` they are, and what to do."""
    places = tuple(positions)
    return CollateError(
        f"can't collate {_place(path)}: {what} in {_items(places)}. {advice}", path=path, positions=places
    )


def too_large(path: str, positions: Iterable[int], what: str) -> OverflowError:
    """Make the error for ints that no dtype holds; it has `path` and `positions` as a `CollateError` has."""
    places = tuple(positions)
    error = OverflowError(f"can't collate {_place(path)}: {what} in {_items(places)}")
    error.__dict__.update(path=path, positions=places)
    return error


def _place(path: str) -> str:
    return path or "the items"


def _items(positions: Sequence[int]) -> str:
    shown = ", ".join(map(str, positions[:_MAX_POSITIONS]))
    more = len(positions) - _MAX_POSITIONS
    text = f"{shown} and {more} more" if more > 0 else shown
    return f"item {text}" if len(positions) == 1 else f"items {text}"
