"""A page that a worker process and its owner both see: what it is at, and what it may stop.

One side writes a word, the other reads it; each word has one writer, and a stale value only costs time.
"""

from __future__ import annotations

import mmap
import os

from feedline.loader.execution.shared_memory import anonymous_file, map_file

__all__ = ["ControlPage"]

_PAGE = mmap.PAGESIZE
_HEART, _TICKET, _STEPS = 0, 1, 2
_CANCELLED = 8
_CANCELLED_SLOTS = 16


class ControlPage:
    """Words of one worker.

    Args:
        descriptor: the file, which is closed; `None` makes one, and leaves it to be sent.

    Raises:
        OSError: there is no room, or no descriptor left.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor: int | None = None
        if descriptor is None:
            self.descriptor = descriptor = anonymous_file(_PAGE)
        self._words = memoryview(map_file(descriptor, _PAGE)).cast("B").cast("Q")
        if self.descriptor is None:
            os.close(descriptor)

    # -- the worker writes

    def beat(self) -> None:
        """Say that threads of the worker get to run."""
        self._words[_HEART] += 1

    def begin(self, ticket: int) -> None:
        """Say which task is at work; 0 for none."""
        self._words[_STEPS] = 0
        self._words[_TICKET] = ticket

    def step(self) -> None:
        """Say that the next item begins."""
        self._words[_STEPS] += 1

    # -- the owner writes

    def cancel(self, ticket: int) -> None:
        """Let the worker stop task `ticket` after its item."""
        self._words[_CANCELLED + ticket % _CANCELLED_SLOTS] = ticket

    # -- both read

    def is_cancelled(self, ticket: int) -> bool:
        """Tell whether task `ticket` may be stopped."""
        return self._words[_CANCELLED + ticket % _CANCELLED_SLOTS] == ticket

    @property
    def heart(self) -> int:
        """A number that changes while threads of the worker get to run."""
        return self._words[_HEART]

    @property
    def ticket(self) -> int:
        """The task at work, 0 for none."""
        return self._words[_TICKET]

    @property
    def steps(self) -> int:
        """How often `step` was called since the task began."""
        return self._words[_STEPS]
