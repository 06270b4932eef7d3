"""`MODULE:NAME` and `path/to/file.py:NAME`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from feedline import OptionError
from feedline.cli.targets import import_target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "deep").mkdir()
    (tmp_path / "target_here.py").write_text("class Made:\n    inner = 7\n")
    (tmp_path / "deep" / "target_there.py").write_text("value = 8\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_of_the_present_folder_is_found(folder: Path) -> None:
    assert import_target("target_here:Made.inner") == 7


@pytest.mark.parametrize("absolute", [False, True])
def test_a_file_is_found_by_its_path(folder: Path, absolute: bool) -> None:
    path = Path("deep") / "target_there.py"
    assert import_target(f"{folder / path if absolute else path}:value") == 8


@pytest.mark.parametrize("target", ["target_here", "target_here:", ":value", ""])
def test_another_form_is_refused(folder: Path, target: str) -> None:
    with pytest.raises(OptionError, match="must be MODULE:NAME, or path/to/file"):
        import_target(target)


def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(OptionError, match="target_here has no 'loader'"):
        import_target("target_here:loader")
    with pytest.raises(FileNotFoundError, match=r"missing\.py"):
        import_target("missing.py:loader")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        import_target("no_such_module:loader")
