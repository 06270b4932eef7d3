"""The entry of the command line: runs a command and turns what goes wrong into one line and an exit code.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | the run failed: a missing or broken file, a check that did not hold, an extra that is not installed |
| 2 | wrong usage: an unknown command or option, a value that an option can't have |
| 130 | interrupted by Ctrl-C |

An error is one line on the standard error stream. `--debug`, before or after the command, adds the traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from feedline.cli.wording import describe_error
from feedline.early_interrupt import INTERRUPTED, restore
from feedline.errors import MissingExtraError

__all__ = ["INTERRUPTED", "run"]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: the words after `feedline`; by default those that the process was started with.

    Concurrency: for the main thread of a process of its own; it writes to the standard streams.
    """
    words, debug = _without_debug(sys.argv[1:] if arguments is None else arguments)
    try:
        invoke = _load_commands()
        # Until here a Ctrl-C has ended the process.
        restore()
        code = invoke(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _silence_output()
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            _complain(describe_error(error))
        return 1
    return code


def _load_commands() -> Callable[[Sequence[str]], int]:
    for library in ("typer", "rich"):
        try:
            importlib.import_module(library)
        except ModuleNotFoundError as error:
            raise MissingExtraError.of("the command line", "cli") from error
    from feedline.cli.commands import invoke

    return invoke


def _without_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Take `--debug` out wherever it stands: it belongs to every command. What follows `--` is left alone."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = [word for word in arguments[:end] if word != "--debug"]
    return [*words, *arguments[end:]], len(words) < end


def _complain(message: str) -> None:
    print(f"feedline: {message}", file=sys.stderr)


def _silence_output() -> None:
    # Whoever read our output has gone (`feedline info FILE | head -1`). What is still buffered would raise once more
    # when the interpreter flushes it at exit, so it goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
