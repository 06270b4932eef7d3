"""How many times this process has been forked into being: threads and locks of the parent are not there in a child."""

from __future__ import annotations

import os

__all__ = ["current", "generation"]

#: A number that is another one in every forked child; read it through `generation()`, or here where calls count.
current = 0


def _count() -> None:
    global current
    current += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


def generation() -> int:
    """Return a number that is another one in every forked child; costs no system call."""
    return current
