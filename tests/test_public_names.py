"""What `feedline` and `feedline.images` export is explicit, sorted, documented, and there."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types

import pytest

import feedline
import feedline.errors
import feedline.images

#: The modules that users import names from.
PUBLIC = [feedline, feedline.images]
NAMES = [
    pytest.param(module, name, id=f"{module.__name__}.{name}") for module in PUBLIC for name in module.__all__
]


def by_name(module: types.ModuleType) -> str:
    return module.__name__


@pytest.mark.parametrize("module", PUBLIC, ids=by_name)
def test_the_list_of_public_names_is_sorted_and_has_no_name_twice(module: types.ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_exists(module: types.ModuleType, name: str) -> None:
    assert hasattr(module, name)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_class_and_function_has_a_docstring_of_its_own(
    module: types.ModuleType, name: str
) -> None:
    value = getattr(module, name)
    if isinstance(value, type) or inspect.isroutine(value):
        assert vars(value).get("__doc__") if isinstance(value, type) else value.__doc__


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_is_public_where_it_is_defined(module: types.ModuleType, name: str) -> None:
    value = getattr(module, name)
    if isinstance(value, type) or inspect.isroutine(value):
        home = sys.modules[value.__module__]
        assert home.__name__.startswith("feedline.")
        assert name in home.__all__


@pytest.mark.parametrize("module", PUBLIC, ids=by_name)
def test_nothing_that_looks_public_is_missing_from_the_list(module: types.ModuleType) -> None:
    found = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert found - set(module.__all__) == set()


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
