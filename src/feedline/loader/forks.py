"""How many times this process has been forked into being: threads and locks of the parent are not there in a child."""

from __future__ import annotations

import os

__all__ = ["generation"]

_generation = 0


def _count() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


def generation() -> int:
    """Return a number that is another one in every forked child; costs no system call."""
    return _generation
