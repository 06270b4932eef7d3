"""One attempt to read one file: whole, under a cap, and never by waiting on something that is no file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from feedline.datasets.fetching.attempts import Failure, Steps, with_retries
from feedline.datasets.fetching.paths import FilePath
from feedline.datasets.fetching.retry import Retry

__all__ = ["Read", "file_fetch", "read_file", "timed_out"]

# Opening must not wait for a writer of a FIFO, nor make a terminal ours; on Windows it must not translate line ends.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_PASSING = {errno.ETIMEDOUT, errno.EINTR, errno.EAGAIN, errno.EWOULDBLOCK}
_KINDS = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ETIMEDOUT: "timeout",
    errno.ENAMETOOLONG: "location",
    errno.ELOOP: "location",
    errno.EINVAL: "location",
    errno.EISDIR: "location",
    errno.ENXIO: "location",
}


def read_file(path: FilePath, max_bytes: int) -> bytes | Failure:
    """Return the content of a file, or why it can't be had; at most `max_bytes` + 1 bytes are read.

    The size is asked first and read in one call, with one byte more, which tells the end: no buffer is grown or cut.

    Concurrency: any thread; the file is open only during the call.
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        return _failure(error, "opened")
    try:
        return _read(fd, max_bytes)
    except OSError as error:
        return _failure(error, "read")
    finally:
        os.close(fd)


def _read(fd: int, max_bytes: int) -> bytes | Failure:
    status = os.fstat(fd)
    size = status.st_size
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "a device, a FIFO or a socket"
        return Failure("location", f"it is {what}, not a file")
    if size > max_bytes:
        return Failure("too_large", f"the file is larger than max_bytes={max_bytes}: it has {size} bytes")
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    # It grew, or the system gave less at a time (2 GiB are its most, a network file system may give less).
    pieces, total = [data], len(data)
    while total <= max_bytes and (piece := os.read(fd, min(max_bytes + 1 - total, 1 << 20))):
        pieces.append(piece)
        total += len(piece)
    if total > max_bytes:
        return Failure(
            "too_large", f"the file is larger than max_bytes={max_bytes}: it grows while it is read"
        )
    if total < size:
        return Failure("truncated", f"the file was cut while it was read: {total} of {size} bytes came")
    return b"".join(pieces)


def _failure(error: OSError, what: str) -> Failure:
    kind = _KINDS.get(error.errno or 0, "store")
    reason = error.strerror or type(error).__name__
    return Failure(kind, f"it can't be {what}: {reason}", passing=error.errno in _PASSING)


class Read(NamedTuple):
    """A step: read the file `path` once; the result is `bytes` or a `Failure`."""

    path: FilePath


def file_fetch(path: FilePath, index: int, retry: Retry, show: Callable[[], str]) -> Steps[bytes]:
    """Fetch the file `path`, item `index`: yields `Read` and `Wait`, returns the content.

    Raises:
        FetchError: the file can't be had, after the retries.
    """
    return with_retries(lambda: _attempt(path), retry, index, show)


def _attempt(path: FilePath) -> Steps[bytes | Failure]:
    outcome: bytes | Failure = yield Read(path)
    return outcome


def timed_out(seconds: float) -> Failure:
    """Return the failure of an attempt that took longer than `seconds`."""
    return Failure("timeout", f"timed out after {seconds:g} s", passing=True)
