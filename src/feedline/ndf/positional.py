"""Files read by position: no shared cursor, so any number of threads may read one at the same time.

Note [descriptors]
    An `OpenFile` owns its descriptor and closes it when the last reference to it goes. A reader keeps a reference in a
    local variable while it reads, so a descriptor is never closed (and its number never given to another file) under
    somebody who reads. Replacing the reference that a dataset holds is one atomic assignment; no lock is needed, and
    none can be left locked by a `fork`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CAN_ADVISE", "OpenFile", "absolute_path", "hint_ranges", "read_rows_by_call"]

# O_NONBLOCK: opening a named pipe must not wait for a writer; regular files ignore it.
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CAN_PREADV = hasattr(os, "preadv")
_CAN_PREAD = hasattr(os, "pread")
CAN_ADVISE = hasattr(os, "posix_fadvise")


def absolute_path(path: Any) -> str:
    """Return `path` (`str`, `bytes` or `PathLike`, decodable or not) as an absolute `str`.

    A later `chdir`, here or in a worker process, makes no difference to it.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"a path must be str, bytes or PathLike, not {type(path).__name__} {path!r}")
    return os.path.abspath(os.fsdecode(path))


class OpenFile:
    """A regular file, open for reading.

    Attributes:
        path: as given.
        fd: its descriptor.
        pid: the process that opened it, or that found it still open after a fork.
        size: bytes, when it was opened.
        stamp: size and time of change (nanoseconds), when it was opened.
        can_probe: whether the system can tell which parts are in memory; `False` once it has answered that it can't.
    """

    __slots__ = ("_cursor", "_identity", "can_probe", "fd", "path", "pid", "size", "stamp")

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.path = path
        self.fd = os.open(path, _FLAGS)
        status = os.fstat(self.fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory, not a file", path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file, so rows can't be read by position", path)
        self.pid = os.getpid()
        self.size = status.st_size
        self.can_probe = _CAN_PREADV and hasattr(os, "RWF_NOWAIT")
        self._identity = (status.st_dev, status.st_ino)
        self.stamp = (status.st_size, status.st_mtime_ns)
        self._cursor = threading.Lock() if not _CAN_PREAD else None

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, modules may be gone already, and the system closes everything.
        if is_ending():
            return
        fd, self.fd = self.fd, -1
        if fd >= 0 and self._is_ours(fd):
            os.close(fd)

    def _is_ours(self, fd: int) -> bool:
        # After a fork somebody may have closed all inherited descriptors, and the number may be another file's by now.
        # `pid` is missing only if the constructor failed.
        if getattr(self, "pid", -1) in (-1, os.getpid()):
            return True
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def survives_fork(self) -> bool:
        """Tell whether the descriptor, inherited from another process, is still this file; adopt it if so.

        Reads by position do not disturb the parent's, and the child sees the very file that the parent checked.
        """
        if not self._is_ours(self.fd):
            return False
        self.pid = os.getpid()
        return True

    def is_unchanged(self) -> bool:
        """Tell whether nobody has written to the file, cut it or let it grow since it was opened."""
        status = os.fstat(self.fd)
        return (status.st_size, status.st_mtime_ns) == self.stamp

    def current_size(self) -> int:
        """Return the file's size in bytes as it is now."""
        return os.fstat(self.fd).st_size

    def are_resident(self, offsets: Iterable[int]) -> bool:
        """Tell whether the bytes at `offsets` can all be read without waiting for the disk; `False` if it can't tell."""
        if not self.can_probe:
            return False
        into = [bytearray(1)]
        try:
            return all(os.preadv(self.fd, into, offset, os.RWF_NOWAIT) for offset in offsets)
        except BlockingIOError:
            return False
        except OSError:
            # This file system has no such reads.
            self.can_probe = False
            return False

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill `buffers`, flat and of bytes, one after the other with the file's bytes from `offset` on.

        Returns the bytes read: fewer than asked for only at the end of the file. The kernel may give less than was
        asked for (never more than 2 GiB at once); reading goes on then.
        """
        total = 0
        rest = [buffer for buffer in buffers if buffer.nbytes]
        while rest:
            got = self._read_once(rest, offset + total)
            if got == 0:
                break
            total += got
            while rest and got >= rest[0].nbytes:
                got -= rest.pop(0).nbytes
            if got:
                rest[0] = rest[0][got:]
        return total

    def _read_once(self, buffers: list[memoryview], offset: int) -> int:
        if _CAN_PREADV:
            # 1,024 is the least that a system allows in one call (IOV_MAX).
            return os.preadv(self.fd, buffers[:1024], offset)
        first = buffers[0]
        if _CAN_PREAD:
            data = os.pread(self.fd, min(first.nbytes, 1 << 30), offset)
        else:
            data = self._seek_and_read(min(first.nbytes, 1 << 30), offset)
        first[: len(data)] = data
        return len(data)

    def _seek_and_read(self, size: int, offset: int) -> bytes:
        # Where there is no positional read (Windows), the cursor is shared: one at a time.
        if self._cursor is None:
            raise RuntimeError("a file with positional reads has no cursor to move")
        with self._cursor:
            os.lseek(self.fd, offset, os.SEEK_SET)
            return os.read(self.fd, size)


def read_rows_by_call(file: OpenFile, buffers: Sequence[list[memoryview]], offsets: list[int]) -> int:
    """Read at each of `offsets` into the buffer at its place, one system call each; return the bytes read in all.

    Buffers beyond the last offset are left alone. A call may have given less than its buffer holds: the caller
    compares the sum.
    """
    if _CAN_PREADV:
        # `map` keeps the loop out of the interpreter: these few instructions are the cost of a row.
        return sum(map(os.preadv, repeat(file.fd), buffers, offsets))
    return sum(map(file.read_into, buffers, offsets))


def hint_ranges(file: OpenFile, offsets: npt.NDArray[np.int64], lengths: Iterable[int]) -> None:
    """Ask the system to read the ranges ahead; does nothing where it takes no such hints."""
    if not CAN_ADVISE:
        return
    advise, fd, will_need = os.posix_fadvise, file.fd, os.POSIX_FADV_WILLNEED
    for offset, length in zip(offsets.tolist(), lengths):
        advise(fd, offset, length, will_need)
