"""`TemporaryFile`: a file on its way to its place, and what becomes of those whose writers were killed.

Note [held]
    A writer that is killed can't tidy up, and another one can't tell by its look whether a file is still written. So each
    writer holds an advisory lock on its file, which the kernel lets go of with the process, and a later writer of the same
    path removes what nobody holds. Three things keep it from removing what somebody does:

    - A file is renamed to its place while it is locked, so there is no moment in which it is finished and free.
    - Who has removed a file's name had its lock, and who has just got a lock looks whether the name still means this file:
      else the lock is worth nothing, since the file was another's leftover, or has itself been taken for one before it was
      locked.
    - Names have the host in them. On some network file systems locks are seen by one host alone.

    Where there are no such locks (Windows, some file systems), nothing is removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any

__all__ = ["SLOTS", "TemporaryFile"]

#: Names that writers of one path take in turn: so many leftovers are looked for, whatever else is in the folder.
SLOTS = 16
_FLAGS = os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _locks: Any = None
else:
    _locks = _fcntl


class TemporaryFile:
    """A new, empty file beside `target`, open for writing and locked; leftovers of killed writers are removed before.

    Attributes:
        path: where it is.
        descriptor: what it is written by; `None` once it is closed.

    Raises:
        OSError: it can't be made.

    Concurrency: one thread at a time. Of a fork, only the parent may keep or discard it.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.descriptor: int | None = None
        if _locks is not None:
            for path in _slots(target):
                _remove_leftover(path)
        for path in _names(target):
            try:
                # The mode is what `open` gives, so the umask decides.
                descriptor = os.open(path, os.O_WRONLY | _FLAGS, 0o666)
            except FileExistsError:
                continue  # another writer is at it
            if _is_kept(descriptor, path):
                self.path = path
                self.descriptor = descriptor
                return
            os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "too many writers at once of the same file", target)

    def keep(self) -> None:
        """Give the file its place, in one step, and close it."""
        if _locks is None:
            self.close()  # Windows renames no file that is open
        os.replace(self.path, self._target)
        self.close()

    def discard(self) -> None:
        """Close the file, and remove it, unless it has got its place."""
        if _locks is None:
            self.close()  # Windows removes no file that is open
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        elif self.descriptor is not None:
            # Once it has got its place, another writer may have made a file of this name.
            if _means(self.path, self.descriptor):
                os.unlink(self.path)
            self.close()

    def close(self) -> None:
        """Close the file; does nothing the second time."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _slots(target: str) -> list[str]:
    """Return the names that writers of `target` on this host take."""
    folder, name = os.path.split(target)
    place = hashlib.sha256(os.fsencode(f"{os.uname().nodename}\0{name}")).hexdigest()[:16]
    return [os.path.join(folder, f".feedline-{place}-{slot}.tmp") for slot in range(SLOTS)]


def _names(target: str) -> Iterator[str]:
    """Yield the names that a new file may have, best first: behind the slots those that nobody else takes."""
    if _locks is not None:
        yield from _slots(target)
    for _ in range(SLOTS):
        yield os.path.join(os.path.dirname(target), f".feedline-{secrets.token_hex(8)}.tmp")


def _remove_leftover(path: str) -> None:
    """Remove `path` if a killed writer has left it there; what can't be removed is left as it is."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # usually there is none; or it is another user's
        return
    try:
        if _lock(descriptor) and _means(path, descriptor):
            os.unlink(path)
    except OSError:
        return  # a folder in which this user may not remove it: the new file gets another name
    finally:
        os.close(descriptor)


def _is_kept(descriptor: int, path: str) -> bool:
    """Lock a file that was just made; tell whether it was not taken for a leftover meanwhile."""
    if _locks is None:
        return True
    try:
        if not _lock(descriptor):
            return False
    except OSError:  # no locks on this file system: then nobody else can lock it, and take it for a leftover
        return True
    return _means(path, descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file without waiting; `False` if somebody else has the lock, an `OSError` if there are no locks."""
    try:
        _locks.flock(descriptor, _locks.LOCK_EX | _locks.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _means(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
