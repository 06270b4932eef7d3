"""Rows of a file in a memory map."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.ndf.layout import HEADER_BYTES, NdfHeader
from feedline.ndf.positional import OpenFile

__all__ = ["RowMap"]


class RowMap:
    """All rows of a file, mapped into memory as bytes.

    Rows begin at byte 28, so that float64 views of them are unaligned, and NumPy's `take` would copy the whole file to
    align it: rows are gathered as bytes, which always are.
    """

    def __init__(self, file: OpenFile, header: NdfHeader) -> None:
        # The array keeps the map alive, and the map goes with the last array over it.
        mapped = mmap.mmap(file.fd, header.file_bytes, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            # Without it the kernel reads around every fault: sixteen pages where one is needed.
            mapped.madvise(mmap.MADV_RANDOM)
        octets = np.frombuffer(mapped, np.uint8, offset=HEADER_BYTES)
        self._rows: npt.NDArray[np.uint8] = octets.reshape(header.n, header.row_bytes)

    def gather(self, places: npt.NDArray[np.int64], into: npt.NDArray[Any]) -> None:
        """Copy the rows `places`, all in [0, n), into `into`, uint8, C-contiguous, shape `(b, row_bytes)`."""
        # mode="clip" with `out` avoids NumPy's buffered path; the places are valid, so nothing is ever clipped.
        self._rows.take(places, 0, into, "clip")
