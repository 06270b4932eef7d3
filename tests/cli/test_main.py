"""Exit codes, one-line errors, and `--debug`, for every command alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types

import numpy as np
import pytest

from feedline.cli.commands import COMMANDS
from feedline.errors import NdfError


@pytest.fixture
def odd_command(monkeypatch):
    """Give the command line a command `odd` that raises what it is told to."""

    def install(error):
        def command() -> None:
            """Raise."""
            raise error

        module = types.ModuleType("odd_command")
        module.command = command
        monkeypatch.setitem(sys.modules, "odd_command", module)
        monkeypatch.setitem(COMMANDS, "odd", "odd_command")

    return install


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_is_to_be_had_everywhere(cli, words) -> None:
    result = cli(*words)
    assert result.code == 0
    assert result.err == ""
    assert "Usage" in result.out


def test_the_help_of_the_whole_lists_every_command_with_what_it_does(cli) -> None:
    out = cli("--help").out
    for name in COMMANDS:
        assert name in out
    assert "Read an .ndf file to its end" in out


def test_the_version_is_told(cli) -> None:
    result = cli("--version")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("feedline ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "No such command 'nonsense'; see 'feedline --help'"),
        (["--nonsense"], "No such option: --nonsense"),
        (["info"], "Missing argument 'FILE'; see 'feedline info --help'"),
        (["info", "--nonsense", "x"], "see 'feedline info --help'"),
        (["info", "--rows", "-1", "x"], "Invalid value for '--rows'"),
        (["info", "--rows", "many", "x"], "Invalid value for '--rows'"),
        (["verify", "one", "two"], "unexpected extra argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_one_line_and_exit_code_2(cli, words, said) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.startswith("feedline: ")
    assert result.err.count("\n") == 1


def test_no_command_at_all_is_wrong_usage_and_shows_the_help(cli) -> None:
    result = cli()
    assert (result.code, result.out) == (2, "")
    assert "Usage" in result.err


@pytest.mark.parametrize("name", ["info", "verify"])
def test_a_missing_file_is_one_line_and_exit_code_1(cli, name, tmp_path) -> None:
    path = tmp_path / "missing.ndf"
    result = cli(name, path)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"feedline: No such file or directory: {path}\n"


@pytest.mark.parametrize("words", [["--debug", "info"], ["info", "--debug"]], ids=["before", "after"])
def test_debug_shows_the_traceback_before_or_after_the_command(cli, words, tmp_path) -> None:
    result = cli(*words, tmp_path / "missing.ndf")
    assert result.code == 1
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert "FileNotFoundError" in result.err


def test_debug_after_a_double_dash_is_a_file_of_that_name(cli) -> None:
    result = cli("info", "--", "--debug")
    assert result.code == 1
    assert result.err.startswith("feedline: No such file or directory: ")
    assert result.err.endswith("--debug\n")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("x"), "feedline: KeyError: 'x' (--debug shows the traceback)\n"),
        (NdfError("it is\nbroken", kind="empty", path="p"), "feedline: it is; broken (kind: empty)\n"),
        (OSError("the disk is on fire"), "feedline: the disk is on fire\n"),
        (FileNotFoundError(2, "No such file", "a\x1b[31m"), "feedline: No such file: a\\x1b[31m\n"),
    ],
    ids=["unforeseen", "of several lines", "of the system", "with a name that a terminal would obey"],
)
def test_an_error_of_a_command_is_one_line_and_exit_code_1(cli, odd_command, error, line) -> None:
    odd_command(error)
    result = cli("odd")
    assert (result.code, result.out, result.err) == (1, "", line)


def test_notes_on_an_error_are_part_of_the_line(cli, odd_command) -> None:
    error = ValueError("bad")
    error.add_note("at item 3")
    odd_command(error)
    assert "bad" in cli("odd").err
    assert cli("odd").err.rstrip().endswith("; at item 3")


def test_an_interrupt_is_exit_code_130_without_a_traceback(cli, odd_command) -> None:
    odd_command(KeyboardInterrupt())
    result = cli("odd")
    assert (result.code, result.out, result.err) == (130, "", "feedline: interrupted\n")


@pytest.mark.parametrize(
    "place", ["epoch  1 ", "epoch  8 "], ids=["in its own process", "in the second process"]
)
def test_an_interrupt_from_the_keyboard_ends_a_running_demo_with_130(start_cli, tmp_path, place) -> None:
    pytest.importorskip("sklearn", reason="the demo needs the extra 'demo'")
    with start_cli("demo", "--dir", tmp_path, start_new_session=True) as process:
        line = ""
        while place not in line:
            line = process.stdout.readline()
            assert line, process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "feedline: interrupted\n"


def test_a_reader_that_has_gone_is_no_reason_for_a_traceback(start_cli, make_ndf) -> None:
    for extra in ([], ["--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        with start_cli("info", make_ndf(np.ones((2, 3))), *extra, stdout=writing) as process:
            os.close(writing)
            _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_its_libraries_it_says_what_to_install(library) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from feedline.cli.main import run; sys.exit(run(['info', 'x']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert (
        result.stderr == "feedline: the command line needs an optional library: pip install 'feedline[cli]'\n"
    )


def test_python_m_feedline_is_the_same_command(start_cli) -> None:
    with start_cli("nonsense") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err == "feedline: No such command 'nonsense'; see 'feedline --help'\n"
