"""A block of bytes in files without a name: written by several threads, mapped in one piece.

A file is written to by one thread at a time (the system locks it), and most of the time goes into its fresh pages. So a
large block is spread over a few files, which whoever maps it puts side by side.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from typing import Any

from feedline.loader.execution.shared_memory import anonymous_file, map_file, map_files

__all__ = ["map_block", "write_block"]

#: Threads, and files, for one block at most: the memory is no faster.
MAX_FILES = 4
#: Less in one file is not worth a thread.
MIN_FILE_BYTES = 64 << 20
_WRITE_BYTES = 16 << 20


def write_block(parts: list[Any], layout: list[tuple[int, int]], size: int) -> tuple[list[int], int]:
    """Write `parts` to files; return their descriptors, and the bytes of the block in each but the last.

    Args:
        parts: objects with contiguous buffers.
        layout: (offset, length) of each part in the block.
        size: bytes of the block.

    Raises:
        OSError: there is no room, or no descriptor left.
    """
    count = _count_files(size)
    step = -(-size // (count * mmap.PAGESIZE)) * mmap.PAGESIZE
    files: list[int] = []
    try:
        # What is made before one fails is in the list by then.
        files.extend(anonymous_file(min(step, size - start)) for start in range(0, size, step))
        _Writing(parts, layout, files, step).run()
    except BaseException:
        for descriptor in files:
            os.close(descriptor)
        raise
    return files, step


def _count_files(size: int) -> int:
    # Only where a mapping can be put at a given place, and where files lie in memory.
    if sys.platform != "linux":
        return 1
    return max(1, min(MAX_FILES, len(os.sched_getaffinity(0)), size // MIN_FILE_BYTES))


class _Writing:
    """Writes all files at once; the calling thread takes the first."""

    def __init__(self, parts: list[Any], layout: list[tuple[int, int]], files: list[int], step: int) -> None:
        self._parts = [memoryview(part).cast("B") for part in parts]
        self._layout = layout
        self._files = files
        self._step = step
        self._errors: list[BaseException] = []

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._write_file, args=(number,), name="feedline-writer", daemon=True)
            for number in range(1, len(self._files))
        ]
        started = []
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
            self._write_file(0)
        except BaseException as error:
            self._errors.append(error)
        finally:
            # Nobody may close a file that is still written to, whatever happens here.
            for thread in started:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def _write_file(self, number: int) -> None:
        start = number * self._step
        try:
            for part, (offset, length) in zip(self._parts, self._layout):
                first, last = max(start, offset), min(start + self._step, offset + length)
                while first < last and not self._errors:
                    piece = part[first - offset : min(last - offset, first - offset + _WRITE_BYTES)]
                    first += os.pwrite(self._files[number], piece, first - start)
        except BaseException as error:
            self._errors.append(error)


def map_block(files: list[int], step: int, size: int) -> Any:
    """Return the bytes of a block, private to this process once written to, as an object with a buffer.

    Raises:
        OSError: there is no room in the address space, or the process has too many mappings.
    """
    if len(files) == 1:
        return map_file(files[0], size, private=True)
    return map_files(files, step, size)
