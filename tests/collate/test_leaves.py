"""Batches taken apart and built again: every type comes back as what it was."""

from __future__ import annotations

import gc
import weakref
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pytest

from feedline.collate.leaves import map_leaves

Pair = namedtuple("Pair", ["x", "y"])


class Row(dict):
    def __init__(self, *arguments, unit: str = "m") -> None:
        super().__init__(*arguments)
        self.unit = unit


class Listed(list):
    unit = "m"


class Picky(tuple):
    def __new__(cls, one, two):
        return super().__new__(cls, (one, two))


@dataclass(frozen=True)
class Box:
    side: object
    made: list = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        self.made.append("by __init__")


def doubled(leaf):
    return leaf * 2 if isinstance(leaf, int) else leaf


CASES = {
    "a leaf": (1, 2),
    "text": ("ab", "ab"),
    "bytes": (b"ab", b"ab"),
    "None": (None, None),
    "a dict": ({"b": 1, "a": 2}, {"b": 2, "a": 4}),
    "a list": ([1, [2, "x"]], [2, [4, "x"]]),
    "a tuple": ((1, (2,)), (2, (4,))),
    "a named tuple": (Pair(1, "x"), Pair(2, "x")),
    "an ordered dict": (OrderedDict(b=1, a=2), OrderedDict(b=2, a=4)),
    "a user dict": (UserDict(a=1), UserDict(a=2)),
    "a counter": (Counter(a=1), Counter(a=2)),
    "a user list": (UserList([1]), UserList([2])),
    "a subclass of list": (Listed([1]), Listed([2])),
    "a deque": (deque([1, 2]), deque([2, 4])),
    "a read-only mapping": (MappingProxyType({"a": 1}), MappingProxyType({"a": 2})),
    "a range, which can't hold others": (range(1, 3), [2, 4]),
    "a tuple that can't be built again": (Picky(1, 2), [2, 4]),
}


@pytest.mark.parametrize("name", CASES)
def test_types_and_order_are_kept(name: str) -> None:
    given, expected = CASES[name]
    before = repr(given)
    found = map_leaves(doubled, given)
    assert type(found) is type(expected)
    assert found == expected
    if hasattr(expected, "keys"):
        assert list(found) == list(expected)
    assert repr(given) == before


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_change_is_given_back_itself(name: str) -> None:
    given = CASES[name][0]
    assert map_leaves(lambda leaf: leaf, given) is given


def test_attributes_of_subclasses_come_along() -> None:
    found = map_leaves(doubled, Row({"a": 1}, unit="cm"))
    assert (type(found), found, found.unit) == (Row, {"a": 2}, "cm")
    made = map_leaves(doubled, defaultdict(list, a=1))
    assert made["new"] == []


def test_dataclasses_are_copied_without_being_made_anew() -> None:
    box = Box(3)
    found = map_leaves(doubled, box)
    assert (found.side, box.side) == (6, 3)
    assert found.made == ["by __init__"]
    assert map_leaves(doubled, Box) is Box


def test_a_value_that_stops_is_not_looked_into() -> None:
    seen = []
    map_leaves(
        lambda leaf: seen.append(leaf), {"a": [1, 2], "b": (3,)}, stop=lambda value: type(value) is list
    )
    assert seen == [[1, 2], 3]


def test_nothing_keeps_a_batch_once_it_is_done() -> None:
    array = np.ones(3)
    known = weakref.ref(array)
    gc.disable()
    try:
        map_leaves(lambda leaf: leaf + 1, {"a": [array]})
        del array
        assert known() is None
    finally:
        gc.enable()
