"""Ctrl-C while the command line is still being imported: a quiet end, as later in a command.

Python shows a traceback through all of the imports that are under way, and no `except` can stand around those of the package
itself, which come before the first line of the command. So the package's first import is this module: in a process that was
started as `feedline` or `python -m feedline` it lets the signal end the process until `restore` is called. In every other
process it does nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

__all__ = ["INTERRUPTED", "is_command", "restore"]

#: The exit code after Ctrl-C, as shells have it: 128 and the number of the signal.
INTERRUPTED = 130
_NAMES = ("feedline", "feedline.exe")


def is_command(argv: Sequence[str], started_with: Sequence[str]) -> bool:
    """Tell whether a process is the command line.

    Args:
        argv: `sys.argv`; its first word may still be `-m`.
        started_with: `sys.orig_argv`, all words that the interpreter was started with.

    >>> is_command(["-m", "info", "a.ndf"], ["python3", "-P", "-m", "feedline", "info", "a.ndf"])
    True
    >>> is_command(["/usr/bin/feedline"], ["/usr/bin/python3", "/usr/bin/feedline"])
    True
    >>> is_command(["train.py", "feedline"], ["python3", "train.py", "feedline"])
    False
    """
    if not 0 < len(argv) < len(started_with):
        return False
    # What `argv` begins with, as it was written: the words behind it are the same in both.
    word = started_with[len(started_with) - len(argv)]
    if argv[0] == "-m":
        # Also in one word with the option and others before it: -Imfeedline.
        return word == "feedline" or (word.startswith("-") and word.endswith("mfeedline"))
    return word == argv[0] and os.path.basename(word) in _NAMES


def restore() -> None:
    """Have Ctrl-C raise a `KeyboardInterrupt` again, where this module has changed that; for the main thread."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    """End the process: nothing is begun yet, so there is nothing to tidy up."""
    try:
        os.write(2, b"feedline: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


if (
    is_command(getattr(sys, "argv", ()), sys.orig_argv)
    and threading.current_thread() is threading.main_thread()
    # Whoever ignores the signal (nohup), or treats it in another way, goes on to do so.
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _end)
