"""Lists and functions of locations, what is refused when they are built, and what is shown of them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedline.datasets.fetching.locations import Locations
from feedline.datasets.fetching.object_keys import KeyRules
from feedline.datasets.fetching.paths import PathRules
from feedline.datasets.fetching.urls import UrlRules
from feedline.errors import FetchError, OptionError

PATHS, URLS, KEYS = PathRules(), UrlRules(), KeyRules()


def test_a_list_gives_its_items_and_takes_negative_indices_as_a_list_does() -> None:
    locations = Locations.listed(PATHS, ["a", b"\xff", Path("c")], "paths")
    assert [locations.locate(index) for index in (0, -2, 2, np.int64(-1))] == [
        (0, "a"),
        (1, b"\xff"),
        (2, "c"),
        (2, "c"),
    ]


@pytest.mark.parametrize("index", [3, -4, 2**80])
def test_an_index_out_of_range_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match=str(index)):
        Locations.listed(PATHS, ["a", "b", "c"], "paths").locate(index)


@pytest.mark.parametrize("index", [1.0, "1", None])
def test_an_index_that_is_no_int_is_a_type_error(index: Any) -> None:
    with pytest.raises(TypeError):
        Locations.listed(PATHS, ["a", "b", "c"], "paths").locate(index)


@pytest.mark.parametrize(
    ("rules", "values", "error", "named"),
    [
        (PATHS, "one/path", TypeError, r"list of paths, not one path: write \[path\]"),
        (PATHS, b"one", TypeError, "list of paths"),
        (PATHS, Path("one"), TypeError, "list of paths"),
        (URLS, "http://h/", TypeError, r"write \[URL\]"),
        (PATHS, {"a", "b"}, TypeError, "sorted"),
        (PATHS, {"a": 1}, TypeError, "dict"),
        (PATHS, 7, TypeError, "int"),
        (PATHS, ["a", 1], TypeError, r"places\[1\]"),
        (PATHS, ["a", ""], OptionError, r"places\[1\]: .*empty"),
        (PATHS, ["a\0b"], OptionError, "NUL"),
        (PATHS, [b"a\0b"], OptionError, "NUL"),
        (PATHS, ["ü" * 33000], OptionError, "65536"),
        (URLS, [b"http://h/"], TypeError, r"places\[0\].*bytes"),
        (KEYS, [b"key"], TypeError, "bytes"),
        (KEYS, [""], OptionError, "empty"),
        (KEYS, ["/a"], OptionError, "segment"),
        (KEYS, ["a/"], OptionError, "segment"),
        (KEYS, ["a//b"], OptionError, "segment"),
        (KEYS, ["a/../b"], OptionError, r"'\.\.'"),
        (KEYS, ["."], OptionError, r"'\.'"),
        (KEYS, ["a\x01"], OptionError, "x01"),
        (KEYS, ["a\udc80"], OptionError, "Unicode"),
        (KEYS, ["k" * 65537], OptionError, "65536"),
    ],
)
def test_bad_lists_are_refused_when_built_with_the_position(
    rules: Any, values: Any, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        Locations.listed(rules, values, "places")


def test_any_ordered_iterable_is_a_list() -> None:
    for values in (("a", "b"), iter(["a", "b"]), np.array(["a", "b"]), (name for name in "ab")):
        locations = Locations.listed(PATHS, values, "paths")
        assert [locations.locate(index)[1] for index in range(2)] == ["a", "b"]


def test_an_arrow_array_is_a_list() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert Locations.listed(PATHS, pa.array(["a", "b"]), "paths").locate(1) == (1, "b")


def test_a_list_is_copied() -> None:
    values = ["a"]
    locations = Locations.listed(PATHS, values, "paths")
    values[0] = "changed"
    assert locations.locate(0)[1] == "a"


def test_a_function_is_called_when_an_item_is_fetched_with_the_index_from_0() -> None:
    asked: list[Any] = []

    def where(index: int) -> str:
        asked.append(index)
        return f"f{index}"

    locations = Locations.from_function(PATHS, where, 10)
    assert asked == []
    assert locations.locate(np.int32(-1)) == (9, "f9")
    assert asked == [9]
    assert type(asked[0]) is int


@pytest.mark.parametrize("value", ["", 7, None, "a\0"])
def test_a_bad_location_of_a_function_is_an_error_of_its_item(value: Any) -> None:
    locations = Locations.from_function(PATHS, lambda index: value, 3)
    with pytest.raises(FetchError, match="item 2") as caught:
        locations.locate(2)
    assert (caught.value.kind, caught.value.index, caught.value.attempts) == ("location", 2, 0)


def test_what_a_function_raises_is_the_error() -> None:
    def where(index: int) -> str:
        raise OptionError("mine")

    with pytest.raises(OptionError, match=r"^mine$"):
        Locations.from_function(PATHS, where, 3).locate(0)


def test_a_function_must_be_callable_and_have_a_length() -> None:
    with pytest.raises(TypeError, match="callable"):
        Locations.from_function(PATHS, "x", 3)
    with pytest.raises(TypeError, match="length"):
        Locations.from_function(PATHS, str, None)
    with pytest.raises(OptionError, match="-1"):
        Locations.from_function(PATHS, str, -1)


def test_undecodable_paths_are_shown_printably() -> None:
    assert PATHS.show(b"a\xffb") == "a\\xffb"
    assert PATHS.show(os.fsdecode(b"a\xffb")) == "a\\xffb"
    assert PATHS.show("ü\ud800") == "ü\\xed\\xa0\\x80"
    assert PATHS.show(Path("x") / "ü") == f"x{os.sep}ü"


def test_locations_pickle() -> None:
    locations = pickle.loads(pickle.dumps(Locations.listed(URLS, ["http://h/a"], "urls")))
    assert locations.locate(0) == (0, "http://h/a")
