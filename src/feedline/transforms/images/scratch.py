"""Memory that a thread decodes into, again and again.

Fresh memory for every image costs page faults, a third of the time that decoding takes. A thread keeps a few buffers, as
large as its largest image so far (but not above 64 MiB), and nobody sees them once the pixels are copied or resized out of
them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Scratch", "borrowed"]

_KEPT_BYTES = 64 * 2**20
_own = threading.local()


class Scratch:
    """Buffers, grown when more is asked for: one for decoded pixels, one for what is made of them, one for a file."""

    __slots__ = ("_buffer", "_file", "_image")

    def __init__(self) -> None:
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._image: npt.NDArray[Any] = np.empty(0, np.uint8)
        self._file = bytearray()

    def __call__(self, size: int) -> npt.NDArray[np.uint8]:
        """Return uint8 memory of `size` bytes, content undefined; it is the same as at the last call."""
        if size > len(self._buffer):
            self._buffer = np.empty(size, np.uint8)
        return self._buffer[:size]

    def image(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array besides the decoded pixels, content undefined; at the next call it may be the same memory."""
        last = self._image
        if last.shape == shape and last.dtype == dtype:
            return last
        dtype = np.dtype(dtype)
        self._image = np.empty(shape, dtype)
        return self._image

    def copied(self, data: memoryview, end: int) -> memoryview:
        """Return a copy of the first `end` bytes of `data`, to be written to; valid until the next call."""
        if end > len(self._file):
            self._file = bytearray(end + end // 2)
        copy = memoryview(self._file)[:end]
        copy[:] = data[:end]
        return copy

    def holds(self, array: npt.NDArray[np.generic]) -> bool:
        """Tell whether `array` may lie in this memory."""
        return bool(np.may_share_memory(array, self._buffer) or np.may_share_memory(array, self._image))

    def is_small(self) -> bool:
        """Tell whether it may be kept."""
        return len(self._buffer) + self._image.nbytes + len(self._file) <= _KEPT_BYTES


class borrowed:
    """Lends this thread's buffers for the time of a `with` block.

    Who borrows while they are lent (a step that decodes inside a step that decodes) gets others.
    """

    __slots__ = ("_scratch",)

    def __enter__(self) -> Scratch:
        self._scratch: Scratch = _own.__dict__.pop("scratch", None) or Scratch()
        return self._scratch

    def __exit__(self, *error: object) -> None:
        if self._scratch.is_small():
            _own.scratch = self._scratch
