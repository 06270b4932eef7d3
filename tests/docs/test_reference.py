"""The reference names everything that is public, and nothing that is not there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PUBLIC = ("feedline", "feedline.images", "feedline.torch", "feedline.jax", "feedline.ray", "feedline.convert")
TESTING = sorted((ROOT / "src" / "feedline" / "testing").glob("[a-z]*.py"))


def names_in(source: Path) -> list[str]:
    """Return the module's `__all__` without importing it: its libraries may be missing."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{source} has no __all__")


def source_of(module: str) -> Path:
    path = ROOT.joinpath("src", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def documented() -> list[str]:
    """Return what the pages have an entry for, or a heading, where it is another library's own."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    return re.findall(r"^(?:::: |## )(feedline[\w.]*)$", text, re.MULTILINE)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    missing = {f"{module}.{name}" for name in names_in(source_of(module))} - set(documented())
    assert not missing


@pytest.mark.parametrize("source", TESTING, ids=lambda path: path.stem)
def test_every_name_for_tests_is_in_the_reference(source: Path) -> None:
    missing = {f"feedline.testing.{source.stem}.{name}" for name in names_in(source)} - set(documented())
    assert not missing


def test_nothing_is_in_the_reference_twice() -> None:
    names = documented()
    assert sorted(names) == sorted(set(names))


def test_the_reference_names_nothing_that_is_not_there() -> None:
    for name in documented():
        if name.startswith(("feedline.torch", "feedline.jax", "feedline.ray", "feedline.testing")):
            continue  # what may be missing here; the build of the site reads their source
        module, _, attribute = name.rpartition(".")
        assert source_of(name).exists() or hasattr(importlib.import_module(module), attribute), name


def test_every_command_is_in_the_reference() -> None:
    source = (ROOT / "src" / "feedline" / "cli" / "commands.py").read_text(encoding="utf-8")
    commands = re.findall(r'^    "(\w+)": "feedline\.cli\.', source, re.MULTILINE)
    page = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    assert commands
    assert [command for command in commands if f"\n## feedline {command}" not in page] == []
