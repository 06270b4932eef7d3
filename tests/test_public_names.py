"""What `feedline` exports is explicit, sorted, documented, and there."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types

import pytest

import feedline
import feedline.errors


def test_the_list_of_public_names_is_sorted_and_has_no_name_twice() -> None:
    assert list(feedline.__all__) == sorted(set(feedline.__all__))


@pytest.mark.parametrize("name", feedline.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert hasattr(feedline, name)


@pytest.mark.parametrize("name", feedline.__all__)
def test_every_public_class_and_function_has_a_docstring_of_its_own(name: str) -> None:
    value = getattr(feedline, name)
    if isinstance(value, type) or inspect.isroutine(value):
        assert value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__, name


@pytest.mark.parametrize("name", feedline.__all__)
def test_every_public_name_is_public_where_it_is_defined(name: str) -> None:
    value = getattr(feedline, name)
    if isinstance(value, type) or inspect.isroutine(value):
        home = sys.modules[value.__module__]
        assert home.__name__.startswith("feedline.")
        assert name in home.__all__


def test_nothing_that_looks_public_is_missing_from_the_list() -> None:
    found = {
        name
        for name, value in vars(feedline).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert found - set(feedline.__all__) == set()


def test_every_error_is_exported() -> None:
    assert set(feedline.errors.__all__) <= set(feedline.__all__)


def test_a_star_import_brings_exactly_the_public_names() -> None:
    code = "from feedline import *; print(*sorted(n for n in globals() if not n.startswith('__') or n == '__version__'))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.split() == sorted(feedline.__all__)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        feedline.no_such_name
