"""Plain words for a terminal: errors in one line, names and numbers that are safe to print."""

from __future__ import annotations

import os
from typing import Any

from feedline.errors import FeedlineError, NdfError

__all__ = ["count", "describe_error", "printable", "size"]


def describe_error(error: BaseException) -> str:
    """Return one line that says what failed; for an error that nobody foresaw, with its type and how to learn more."""
    if isinstance(error, NdfError):
        text = f"{error} (kind: {error.kind})"
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.strerror}: {os.fsdecode(error.filename)}"
    elif isinstance(error, (FeedlineError, OSError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error} (--debug shows the traceback)"
    notes = getattr(error, "__notes__", [])
    lines = [line.strip() for part in (text, *notes) for line in part.splitlines()]
    return printable("; ".join(line for line in lines if line))


def printable(text: Any) -> str:
    """Return `text` with everything escaped that a terminal might obey or can't encode.

    >>> printable("digits\\x1b[2J.ndf")
    'digits\\\\x1b[2J.ndf'
    """
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return "".join(escaped)


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun.

    >>> count(1, "row"), count(1797, "row")
    ('1 row', '1,797 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Return a size in bytes with a unit that suits it (powers of 1024).

    >>> size(28), size(934_468), size(5 * 2**30)
    ('28 bytes', '912.6 KiB', '5.0 GiB')
    """
    if number < 1024:
        return count(number, "byte")
    value, unit = float(number), 0
    while value >= 1024 and unit < 4:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}"
