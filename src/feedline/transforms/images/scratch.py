"""Memory that a thread decodes into, again and again.

Fresh memory for every image costs page faults, a third of the time that decoding takes. A thread keeps one buffer, as
large as its largest image so far (but not above 64 MiB), and nobody sees it once the decoded pixels are copied or
resized out of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

__all__ = ["Scratch", "borrowed"]

_KEPT_BYTES = 64 * 2**20
_own = threading.local()


class Scratch:
    """One buffer, grown when more is asked for."""

    def __init__(self) -> None:
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def __call__(self, size: int) -> npt.NDArray[np.uint8]:
        """Return uint8 memory of `size` bytes, content undefined; it is the same as at the last call."""
        if size > len(self._buffer):
            self._buffer = np.empty(size, np.uint8)
        return self._buffer[:size]

    def holds(self, array: npt.NDArray[np.generic]) -> bool:
        """Tell whether `array` may lie in this memory."""
        return bool(np.may_share_memory(array, self._buffer))


@contextmanager
def borrowed() -> Iterator[Scratch]:
    """Lend this thread's buffer for the time of a `with` block.

    Who borrows while it is lent (a step that decodes inside a step that decodes) gets another one.
    """
    scratch: Scratch = _own.__dict__.pop("scratch", None) or Scratch()
    try:
        yield scratch
    finally:
        if len(scratch._buffer) <= _KEPT_BYTES:
            _own.scratch = scratch
