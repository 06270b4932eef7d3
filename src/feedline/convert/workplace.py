"""The folder in which a result is being made, beside its destination: `DESTINATION.part`.

```text
corpus.part/
  plan.json       the digest of the plan and of the source; written first
  finished.jsonl  a line for each part that is done: its number and checksum; the last may be torn
  result/         the shards, or the single file
  lock            held by the process that works here
```

When all is done, `result/` (or the file in it) is renamed to the destination, and the rest is removed. Until then the
destination is what it was. A run that was killed leaves the folder; the next one with the same plan, of a source that
has not changed, goes on from there, and one with another starts anew.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from typing import Any

from feedline.convert.disk_errors import naming
from feedline.convert.plan import SINGLE_FILE, Plan
from feedline.convert.work import Job, Written
from feedline.ndf.layout import pack_header
from feedline.ndf.shards import PART_SUFFIX, Shard, ShardIndex, holds_index, write_index
from feedline.ndf.writer import sync_folder

try:
    import fcntl
except ImportError:  # where there is no such lock (Windows), two runs at the same time are up to the user
    fcntl = None  # type: ignore[assignment]

__all__ = ["Workplace", "check_destination"]

_PLAN = "plan.json"
_FINISHED = "finished.jsonl"


def check_destination(path: str, is_single: bool, overwrite: bool) -> None:
    """Raise an error unless a result may be put at `path`.

    Raises:
        FileExistsError: something is there, and `overwrite` is false; or it is nothing that may be replaced: a folder
            of something else, or a file where shards go.
        FileNotFoundError: the folder that it goes into does not exist.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no folder to write the result to", folder)
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise FileExistsError(f"{path!r} exists; overwrite=True (--overwrite) replaces it")
    if is_single and not os.path.isfile(path):
        raise FileExistsError(f"{path!r} is no file, so a file can't replace it")
    if not is_single and not (os.path.isdir(path) and not os.path.islink(path) and holds_index(path)):
        raise FileExistsError(f"{path!r} is no folder of shards, and only such a folder is replaced by one")


class Workplace:
    """The folder of one conversion, locked for this process until `close()`.

    Args:
        destination: where the result goes, absolute.
        plan: what is to be made.
        digest: of plan and source.

    Attributes:
        known: checksums of the parts that an earlier run has finished, by number.
        was_stale: whether there was something of another plan or source, which is gone now.

    Raises:
        FileExistsError: a folder of this name is there, which no conversion has made; or another process works in it.
        OSError: it can't be made.
    """

    def __init__(self, destination: str, plan: Plan, digest: str) -> None:
        self._destination = destination
        self._plan = plan
        self._digest = digest
        self.folder = destination + PART_SUFFIX
        self._result = os.path.join(self.folder, "result")
        self._lock = _locked_folder(self.folder)
        self._journal: int | None = None
        self.known: dict[int, str] = {}
        self.was_stale = False
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        found = _read_digest(os.path.join(self.folder, _PLAN))
        if found == self._digest and os.path.isdir(self._result):
            self.known = _read_finished(os.path.join(self.folder, _FINISHED))
            self._remove_strays()
        else:
            self.was_stale = found is not None and os.path.isdir(self._result)
            _empty(self.folder)
            os.mkdir(self._result)
            if self._plan.is_single:
                self._make_room()
            _write_whole(os.path.join(self.folder, _PLAN), json.dumps({"digest": self._digest}).encode())
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._journal = os.open(os.path.join(self.folder, _FINISHED), flags, 0o666)
        # A torn last line must not swallow the next one.
        with naming(os.path.join(self.folder, _FINISHED)):
            os.write(self._journal, b"\n")

    def _make_room(self) -> None:
        with open(os.path.join(self._result, SINGLE_FILE), "xb") as file, naming(file.name):
            file.truncate(self._plan.header.file_bytes)

    def _remove_strays(self) -> None:
        # What a killed worker was writing.
        wanted = {part.file for part in self._plan.parts}
        for name in os.listdir(self._result):
            if name not in wanted:
                os.unlink(os.path.join(self._result, name))

    def jobs(self) -> list[Job]:
        """Return a job for each part of the plan."""
        return [Job(part, self._result, self.known.get(part.number, "")) for part in self._plan.parts]

    def record(self, written: Written) -> None:
        """Note that a part is done; it outlives this process at once."""
        if self._journal is None:
            raise ValueError("this conversion is over")
        line = json.dumps({"part": written.number, "checksum": written.checksum})
        with naming(os.path.join(self.folder, _FINISHED)):
            os.write(self._journal, line.encode() + b"\n")

    def publish(self, written: Iterable[Written]) -> None:
        """Put the result, whose parts are all `written`, in its place, and remove the folder.

        Raises:
            OSError: it can't be put there; the folder stays, and the next run tries again.
        """
        if self._plan.is_single:
            self._publish_file()
        else:
            self._publish_shards({part.number: part.checksum for part in written})
        sync_folder(os.path.dirname(self._destination))
        self.close()
        shutil.rmtree(self.folder)

    def _publish_file(self) -> None:
        path = os.path.join(self._result, SINGLE_FILE)
        with naming(path), open(path, "r+b", buffering=0) as file:
            # First the rows, then the header that promises them, then the name.
            os.fsync(file.fileno())
            file.write(pack_header(self._plan.header))
            os.fsync(file.fileno())
        os.replace(path, self._destination)

    def _publish_shards(self, checksums: dict[int, str]) -> None:
        shards = tuple(
            Shard(part.file, part.stop - part.start, part.size_bytes, checksums[part.number])
            for part in self._plan.parts
        )
        write_index(self._result, ShardIndex(self._plan.header.d, self._plan.header.l, shards))
        sync_folder(self._result)
        if os.path.lexists(self._destination):
            # Two renames: after a crash between them, the same command puts the new folder in its place.
            os.rename(self._destination, os.path.join(self.folder, f"old-{secrets.token_hex(4)}"))
        os.rename(self._result, self._destination)

    def close(self) -> None:
        """Let others work here; what is in the folder stays."""
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked_folder(folder: str) -> int | None:
    """Make the folder, if it isn't there, and return the descriptor that holds its lock."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    if not os.path.isdir(folder):
        raise FileExistsError(
            f"{folder!r} is in the way: the result is made in a folder of this name; remove it"
        )
    theirs = set(os.listdir(folder)) - {"lock"}
    if theirs and _PLAN not in theirs and "result" not in theirs:
        raise FileExistsError(
            f"{folder!r} is in the way: the result is made in a folder of this name, and no conversion has made this "
            f"one; remove it"
        )
    if fcntl is None:
        return None
    fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            # This file system has no locks.
            return None
        raise FileExistsError(
            f"another process is converting to {folder.removesuffix(PART_SUFFIX)!r} at this moment"
        ) from None
    return fd


def _empty(folder: str) -> None:
    # The plan goes first: without it, nothing of what is left would be taken for a part of it.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, _PLAN))
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != "lock":
            os.unlink(entry.path)


def _read_digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            given = json.loads(file.read())
    except FileNotFoundError:
        return None
    except ValueError:
        return ""
    return str(given.get("digest", "")) if isinstance(given, dict) else ""


def _read_finished(path: str) -> dict[int, str]:
    known: dict[int, str] = {}
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return known
    for line in lines:
        try:
            given: Any = json.loads(line)
            known[given["part"]] = given["checksum"]
        except (ValueError, TypeError, KeyError):
            # Torn by a crash: that part is simply made again.
            continue
    return known


def _write_whole(path: str, data: bytes) -> None:
    temporary = f"{path}.tmp"
    with naming(temporary), open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
