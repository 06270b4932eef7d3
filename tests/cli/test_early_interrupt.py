"""Ctrl-C while the command line is still being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import feedline
from feedline.early_interrupt import is_command

#: Sends Ctrl-C when the module with a certain name is about to be imported.
INTERRUPTING = """
import os, signal, sys
{before}
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
#: As installers write it.
SCRIPT = """
import sys
from feedline.cli.main import run
if __name__ == "__main__":
    sys.exit(run())
"""
IMPORTED = [
    "feedline.errors",
    "numpy",
    "feedline.cli.commands",
    "feedline.cli.main",
    "typer",
    "feedline.cli.info",
]


@pytest.fixture
def interrupted(tmp_path):
    """Run Python with words behind it; Ctrl-C comes when a module is imported."""

    def call(name, *words, before=""):
        (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(name=name, before=before))
        paths = f"{tmp_path}:{Path(feedline.__file__).parents[1]}"
        return subprocess.run(
            [sys.executable, *words],
            env={"PYTHONPATH": paths, "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.mark.parametrize("name", IMPORTED)
@pytest.mark.parametrize("started", [["-m", "feedline"], ["-Pm", "feedline"], ["feedline"]], ids=" ".join)
def test_an_interrupt_among_the_imports_is_exit_code_130_without_a_traceback(
    interrupted, tmp_path, started, name
) -> None:
    if started == ["feedline"]:
        script = tmp_path / "feedline"
        script.write_text(SCRIPT)
        started = [str(script)]
    done = interrupted(name, *started, "info", "--help")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "feedline: interrupted\n")


def test_whoever_imports_the_library_gets_a_keyboard_interrupt_as_from_any_import(interrupted) -> None:
    done = interrupted("feedline.loader.dataloader", "-c", "from feedline import DataLoader", "feedline")
    assert done.returncode in (-signal.SIGINT, 130)
    assert done.stderr.strip().endswith("KeyboardInterrupt")


def test_a_command_that_is_to_ignore_the_signal_goes_on(interrupted) -> None:
    before = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    done = interrupted("numpy", "-m", "feedline", "--version", before=before)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("feedline ")


@pytest.mark.parametrize(
    ("argv", "started_with", "expected"),
    [
        (["-m"], ["python", "-m", "feedline"], True),
        (["-m", "info", "feedline"], ["python", "-X", "dev", "-m", "feedline", "info", "feedline"], True),
        (["-m"], ["python", "-Imfeedline"], True),
        (["-m"], ["python", "-m", "feedline.torch"], False),
        (["-m", "feedline"], ["python", "-m", "pytest", "feedline"], False),
        (["/venv/bin/feedline"], ["/venv/bin/python", "/venv/bin/feedline"], True),
        (["C:/venv/feedline.exe", "info"], ["C:/venv/python.exe", "C:/venv/feedline.exe", "info"], True),
        (["feedline/train.py"], ["python", "feedline/train.py"], False),
        (["feedline.py"], ["python", "feedline.py"], False),
        (["-c", "feedline"], ["python", "-c", "import feedline", "feedline"], False),
        # A worker process that multiprocessing has started, with the words of its parent.
        (["/venv/bin/feedline"], ["python", "-c", "from multiprocessing.spawn import spawn_main"], False),
        # An interpreter inside of another program.
        ([], [], False),
        (["feedline"], [], False),
    ],
)
def test_only_the_command_line_takes_itself_for_it(argv, started_with, expected) -> None:
    assert is_command(argv, started_with) is expected
