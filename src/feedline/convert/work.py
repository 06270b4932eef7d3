"""One job: read the rows of one part, write them, and tell their checksum. The one function that every worker runs.

Note [keeping the disk busy]
    What was written goes to the disk while more is written: a thread calls `fdatasync` again and again. So the disk does
    not wait until all is written, nor is there much left to wait for at the end. The checksum of a shard takes a second
    thread; it, the write and the sync run without the GIL.

Note [kept parts]
    A job that knows the checksum of its part from a run that was killed reads what is there first, and writes only if it
    is something else. A shard appears under its name when it is whole; a range is written straight into the file, of
    which nobody knows yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.convert.disk_errors import naming
from feedline.convert.plan import Part
from feedline.convert.protocol import BLOCK_BYTES, Array, Block, Source
from feedline.errors import OptionError
from feedline.ndf.layout import pack_header
from feedline.ndf.values import as_rows, copy_exactly

__all__ = ["TEMPORARY_SUFFIX", "Job", "Written", "write_job"]

TEMPORARY_SUFFIX = ".tmp"
#: A hash of so many bytes is worth another thread.
_THREAD_BYTES = 2**18
#: What is worth a call of its own.
_SYNC_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is to do.

    Attributes:
        part: which rows go where.
        folder: in which the part's file lies.
        known_checksum: of the part as it should be there already; empty if it is not known.
    """

    part: Part
    folder: str
    known_checksum: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What a job has done.

    Attributes:
        number: of the part.
        checksum: of its bytes: the SHA-256 of a shard, header included; of a range the CRC-32, which costs nothing.
        was_kept: whether it was there already.
    """

    number: int
    checksum: str
    was_kept: bool


def write_job(source: Source, job: Job, advance: Callable[[int], None] | None = None) -> Written:
    """Make one part from its source, and return its checksum; what is there and right is kept.

    Args:
        source: where the rows come from.
        job: which part.
        advance: called with the number of rows that are done, after each block.

    Raises:
        OSError: the source can't be read or the part can't be written; a disk that is full, for one.
        OptionError: the source holds what can't be a row.

    Determinism: the bytes depend on the source and the part alone. Concurrency: any number of jobs at the same time.
    """
    tell = advance or (lambda rows: None)
    part = job.part
    path = os.path.join(job.folder, part.file)
    if job.known_checksum and _checksum(path, part) == job.known_checksum:
        tell(part.stop - part.start)
        return Written(part.number, job.known_checksum, True)
    if part.header is None:
        with _open_for_writing(path, os.O_WRONLY) as fd:
            os.lseek(fd, part.offset, os.SEEK_SET)
            return Written(part.number, _write_rows(source, part, fd, path, tell), False)
    temporary = f"{path}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    try:
        with _open_for_writing(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            checksum = _write_rows(source, part, fd, temporary, tell)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return Written(part.number, checksum, False)


@contextlib.contextmanager
def _open_for_writing(path: str, flags: int) -> Iterator[int]:
    # The mode is what `open` gives, so the umask decides.
    fd = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


class _Crc32:
    """CRC-32 with the manner of hashlib's."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: Any) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _digest_of(part: Part) -> Any:
    return _Crc32() if part.header is None else hashlib.sha256()


def _checksum(path: str, part: Part) -> str:
    """Return the checksum of what is there of a part; empty if it has another size, or is not there."""
    digest = _digest_of(part)
    left = part.size_bytes
    try:
        with open(path, "rb", buffering=0) as file:
            if part.header is not None and os.fstat(file.fileno()).st_size != left:
                return ""
            file.seek(part.offset)
            while left and (data := file.read(min(left, BLOCK_BYTES))):
                digest.update(data)
                left -= len(data)
    except FileNotFoundError:
        return ""
    return "" if left else digest.hexdigest()


def _write_rows(source: Source, part: Part, fd: int, path: str, advance: Callable[[int], None]) -> str:
    """Write all rows of a part at the place where `fd`, of `path`, stands, and to the disk; return their checksum."""
    digest = _digest_of(part)
    if part.header is not None:
        head = pack_header(part.header)
        digest.update(head)
        _write_all(fd, memoryview(head), path)
    rows = _Rows(source.d, source.l)
    done = part.start
    with ThreadPoolExecutor(1) as hasher, _Syncing(fd, path) as syncing:
        for block in source.blocks(part.start, part.stop):
            octets, count = rows.join(block, done)
            if part.header is None or len(octets) < _THREAD_BYTES:
                digest.update(octets)
                _write_all(fd, octets, path)
            else:
                # The block's memory is used again for the next one, so both are awaited.
                hashed = hasher.submit(digest.update, octets)
                try:
                    _write_all(fd, octets, path)
                finally:
                    hashed.result()
            syncing.add(len(octets))
            done += count
            advance(count)
    if done != part.stop:
        raise OptionError(
            f"the source gave {done - part.start} rows from row {part.start} on, not {part.stop - part.start}"
        )
    with naming(path):
        os.fsync(fd)
    return str(digest.hexdigest())


class _Syncing:
    """Sends to the disk what was written to a file, in a thread of its own, one call after the other."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None
        self._waiting = 0

    def add(self, size_bytes: int) -> None:
        """Tell that so many more bytes were written."""
        self._waiting += size_bytes
        if self._waiting >= _SYNC_BYTES and (self._running is None or self._running.done()):
            self._raise_error()
            self._waiting = 0
            self._running = self._thread.submit(getattr(os, "fdatasync", os.fsync), self._fd)

    def _raise_error(self) -> None:
        if self._running is not None:
            with naming(self._path):
                self._running.result()

    def __enter__(self) -> _Syncing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # The descriptor is closed after this, so the thread must be through.
        self._thread.shutdown()
        if kind is None:
            self._raise_error()


def _write_all(fd: int, data: memoryview, path: str) -> None:
    # A full disk may take a part of what it is given before it refuses the rest.
    with naming(path):
        while data:
            data = data[os.write(fd, data) :]


class _Rows:
    """Joins the pieces of a block to rows as they lie in a file, in the same memory again and again."""

    def __init__(self, d: int, labels: int) -> None:
        self._width = d + labels
        self._memory = np.empty((0, self._width), "<f8")

    def join(self, block: Block, first_row: int) -> tuple[memoryview, int]:
        """Return the bytes of the rows of `block`, and how many rows they are.

        Raises:
            OptionError: a value that float64 can't hold exactly, or other sizes than the source has promised.
        """
        rows = len(block[0][1])
        if len(block) == 1 and _is_as_on_disk(block[0][1]) and block[0][1].shape[1] == self._width:
            return block[0][1].reshape(-1).view(np.uint8).data, rows
        if len(self._memory) < rows:
            self._memory = np.empty((rows, self._width), "<f8")
        into = self._memory[:rows]
        at = 0
        for name, piece in block:
            width = piece.shape[1]
            self._copy(name, piece, into[:, at : at + width], first_row)
            at += width
        if at != self._width:
            raise OptionError(f"rows from {first_row} on have {at} values, where {self._width} are expected")
        return into.reshape(-1).view(np.uint8).data, rows

    def _copy(self, name: str, piece: Array, into: Array, first_row: int) -> None:
        try:
            copy_exactly(as_rows(name, piece, into.shape[1]), into)
        except (TypeError, OptionError) as error:
            raise OptionError(f"{error}, in the rows from {first_row} on") from None
        except ValueError:
            raise OptionError(
                f"{name} has {len(piece)} rows where {len(into)} are expected, from row {first_row} on"
            ) from None


def _is_as_on_disk(piece: Any) -> bool:
    return bool(piece.dtype == np.dtype("<f8") and piece.flags.c_contiguous and piece.size)
