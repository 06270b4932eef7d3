"""What comes from an object store is read-only, and a batch is the user's to write to: it gets memory of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.collate.buffers import BufferPool

__all__ = ["StoreMemory"]


class StoreMemory:
    """Copies memory of the store into the loader's pool.

    The copy is made by the thread that receives results, without the GIL where it is long, so the consumer does not wait for it; the
    store's memory is free at once, whatever the consumer keeps, and a batch outlives the connection to the cluster.
    """

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool

    def own(self, buffer: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return the bytes of `buffer`, shape `(n,)`, in writable memory that nobody else sees."""
        copy = self._pool.allocate(buffer.shape, np.uint8)
        copy[...] = buffer
        return copy
