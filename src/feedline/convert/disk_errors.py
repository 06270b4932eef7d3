"""Errors of the disk that a result is written to: with the file's name, and with what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

__all__ = ["at_destination", "naming"]

_ADVICE = {
    errno.ENOSPC: "free some space on its disk, or convert to another disk",
    errno.EFBIG: "its file system, or a limit of this process (ulimit -f), allows no larger file: raise the limit, or "
    "make smaller shards (rows_per_shard, --rows-per-shard)",
    errno.EROFS: "its file system can only be read: convert to another one",
    errno.EIO: "its disk reports an error: check the disk, or convert to another",
}
if hasattr(errno, "EDQUOT"):
    _ADVICE[errno.EDQUOT] = "your quota is used up: free some of it, or convert to another disk"


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Put `path` into errors of the system that name no file, as those of writes to an open one do not."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or os.strerror(error.errno), path) from error


@contextlib.contextmanager
def at_destination(folder: str, destination: str) -> Iterator[None]:
    """Let errors of files in `folder`, where a result is made, name its `destination` and say what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        name = error.filename
        if advice is None or not isinstance(name, str) or not (name + os.sep).startswith(folder + os.sep):
            raise
        message = f"rows could not be written ({error.strerror}); {advice}"
        raise OSError(error.errno, message, destination) from error
