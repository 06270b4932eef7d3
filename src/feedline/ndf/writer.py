"""Writing `.ndf` files: in blocks of any size, and whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import stat
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader, pack_header
from feedline.ndf.positional import absolute_path
from feedline.ndf.temporary import TemporaryFile
from feedline.ndf.values import Array, as_rows, copy_exactly

__all__ = ["NdfWriter", "sync_folder"]

_STAGE_BYTES = 1024 * 1024
_MAX_ROW_BYTES = 2**63 - 1
_Values: TypeAlias = npt.NDArray[np.float64]


class NdfWriter:
    """Writes an `.ndf` file of rows of `d` features and `l` labels, block by block.

    Args:
        path: the file to make or to replace; a link is followed.
        d: features in a row, 0 or more.
        l: labels in a row, 0 or more; `d + l` at least 1.

    The rows go to a temporary file in the same folder. `close()` writes their number into it, last, forces it to the
    disk, and renames it: a crash at any moment leaves the old file or the new one, never half of one. A new file gets
    ordinary permissions. Used in a `with` statement, it is closed on success, and on an error removed. A writer that
    is dropped without `close()` leaves nothing; what one leaves that is killed is removed by the next writer of the same path on
    the same host (not on Windows).

    Raises:
        OSError: the folder doesn't exist or can't be written to, or the path is a directory or a device.
        OptionError: `d`, `l` or their sum is out of range.
        TypeError: they are no ints.

    Concurrency: one thread at a time. Doesn't pickle. Nothing is held in memory but a block of about 1 MiB.

    >>> import numpy as np, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with NdfWriter(os.path.join(folder, "rows.ndf"), d=3, l=1) as writer:
    ...         for block in range(4):
    ...             writer.append(np.zeros((100, 3)), np.full(100, block))
    ...     os.path.getsize(os.path.join(folder, "rows.ndf"))
    12828
    """

    def __init__(self, path: Any, d: int, l: int = 0) -> None:  # noqa: E741 - the format's own name
        self.d = _check_width("d", d)
        self.l = _check_width("l", l)
        width = self.d + self.l
        if width == 0:
            raise OptionError("d + l must be at least 1: a row must hold something")
        if 8 * width > _MAX_ROW_BYTES - HEADER_BYTES:
            raise OptionError(f"rows of d={self.d} and l={self.l} values are larger than any file")
        self.path = absolute_path(path)
        self.n = 0
        # A link is written through: its target is replaced, and the temporary file lies beside that.
        self._target = os.path.realpath(self.path)
        _check_target(self._target, self.path)
        try:
            self._file = TemporaryFile(self._target)
        except OSError as error:
            raise _write_error(error, self.path) from error
        self._pid = os.getpid()
        # Also when the writer is dropped, or the interpreter ends.
        self._discard = weakref.finalize(self, _discard, self._file, self._pid)
        self._stage: _Values | None = None
        #: The error that broke it; from then on nothing of it is left, and nothing can be added.
        self._failure: OSError | ValueError | None = None
        self._staged = 0
        # The header's place; its bytes come last, so that what is there until then is no .ndf file.
        with self._or_nothing():
            self._write(memoryview(bytes(HEADER_BYTES)))

    def append(self, x: Any, y: Any = None) -> None:
        """Add rows.

        Args:
            x: features, an array of shape `(k, d)`, or `(k,)` where `d` is 1.
            y: labels, shape `(k, l)`, or `(k,)` where `l` is 1; to be left out where `l` is 0.

        Ints, bools and floats of up to 64 bits are converted exactly; an int that float64 can't hold is refused.

        Raises:
            TypeError: complex numbers, texts, objects and other types.
            OptionError: another width, or unequal numbers of rows; nothing of the block is written.
            OSError: the disk is full, or the like; the writer leaves nothing, and `close()` fails as well.
            ValueError: the writer is closed or broken, or was made before a fork.
        """
        self._check_open()
        features = as_rows("x", x, self.d)
        labels = np.empty((len(features), 0)) if y is None else as_rows("y", y, self.l)
        if y is None and self.l:
            raise OptionError(f"rows have l={self.l} labels: y is missing")
        if len(features) != len(labels):
            raise OptionError(f"x has {len(features)} rows and y has {len(labels)}")
        if self._stage is None:
            row_bytes = 8 * (self.d + self.l)
            self._stage = np.empty((max(1, _STAGE_BYTES // row_bytes), self.d + self.l), "<f8")
        with self._or_nothing():
            self._stage_rows(features, labels, self._stage)
        self.n += len(features)

    def close(self) -> None:
        """Finish the file, and put it in its place; does nothing the second time, or after `abort()`.

        Raises:
            OSError: the disk is full, or the like, or was when rows were appended, even if nobody took note of that
                error; the old file, if any, is left as it was.
        """
        if self._failure is not None:
            raise _again(self._failure)
        if not self._discard.alive:
            return
        self._check_open()
        with self._or_nothing():
            self._flush()
            # First the rows, then the header that promises them, then the name.
            os.fsync(self._descriptor)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._write(memoryview(pack_header(NdfHeader(self.n, self.d, self.l))))
            os.fsync(self._descriptor)
            self._file.keep()
        self._discard.detach()
        self._stage = None
        sync_folder(os.path.dirname(self._target))

    def abort(self) -> None:
        """Give up: remove what was written, and leave the old file, if any, as it was."""
        self._failure = None
        finalizer = self._discard.detach()
        self._stage = None
        if finalizer is not None:
            _discard(self._file, self._pid)

    def __enter__(self) -> NdfWriter:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __reduce__(self) -> Any:
        raise TypeError(
            "an NdfWriter can't be pickled: it owns an open file; make one where rows are written"
        )

    def __repr__(self) -> str:
        state = (
            "broken" if self._failure is not None else f"{self.n} rows" if self._discard.alive else "closed"
        )
        return f"NdfWriter({self.path!r}, d={self.d}, l={self.l}; {state})"

    def _check_open(self) -> None:
        if self._failure is not None:
            raise ValueError(f"this NdfWriter of {self.path!r} is broken: {self._failure}")
        if not self._discard.alive:
            raise ValueError(f"this NdfWriter of {self.path!r} is closed")
        if os.getpid() != self._pid:
            raise ValueError(
                f"this NdfWriter of {self.path!r} belongs to process {self._pid}, which forked this one"
            )

    def _stage_rows(self, x: Array, y: Array, stage: _Values) -> None:
        # Through the stage a block at a time, so that converting takes no more memory than that.
        done = 0
        while done < len(x):
            count = min(len(x) - done, len(stage) - self._staged)
            into = stage[self._staged : self._staged + count]
            copy_exactly(x[done : done + count], into[:, : self.d])
            copy_exactly(y[done : done + count], into[:, self.d :])
            self._staged += count
            done += count
            if self._staged == len(stage):
                self._flush()

    def _flush(self) -> None:
        if self._stage is not None and self._staged:
            self._write(self._stage[: self._staged].reshape(-1).view(np.uint8).data)
        self._staged = 0

    def _write(self, data: memoryview) -> None:
        # A full disk may take a part of what it is given before it refuses the rest.
        while data:
            data = data[os.write(self._descriptor, data) :]

    @property
    def _descriptor(self) -> int:
        assert self._file.descriptor is not None
        return self._file.descriptor

    @contextlib.contextmanager
    def _or_nothing(self) -> Iterator[None]:
        """Leave nothing behind if the system refuses."""
        try:
            yield
        except OSError as error:
            self.abort()
            self._failure = _write_error(error, self.path)
            raise _again(self._failure) from error
        except BaseException as error:
            # Ctrl-C, or no memory, between two writes: how many rows are in the file by now, nobody knows.
            self.abort()
            self._failure = ValueError(
                f"{type(error).__name__} while rows were written; nothing is left of them"
            )
            raise


def _check_width(name: str, width: Any) -> int:
    if isinstance(width, (bool, np.bool_)) or not hasattr(width, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(width).__name__} {width!r}")
    number = operator.index(width)
    if not 0 <= number < 2**60:
        raise OptionError(f"{name} must be between 0 and 2**60 - 1, not {number}")
    return number


def _check_target(target: str, path: str) -> None:
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(target)
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                errno.ENOENT, f"there is no folder {folder!r} to write it to", path
            ) from None
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory, so no file can be written there", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file, and would be replaced", path)


def _write_error(error: OSError, path: str) -> OSError:
    # OSError itself picks the subclass that fits the number (PermissionError, ...).
    reason = error.strerror or str(error)
    return OSError(error.errno, f"rows could not be written ({reason}); nothing is left of them", path)


def _again(error: OSError | ValueError) -> Exception:
    # A new object: one that is raised twice would gather tracebacks.
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename)
    return ValueError(*error.args)


def _discard(file: TemporaryFile, pid: int) -> None:
    """Close the temporary file and remove it, unless it is another process's."""
    # A child of a fork has the writer, too; the file is its parent's.
    if os.getpid() == pid:
        file.discard()
    else:
        file.close()


def sync_folder(folder: str) -> None:
    """Force the new name to the disk, where folders can be opened for that."""
    try:
        fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        # Windows opens no folders, and some network file systems sync none: the file itself is safe already, what a
        # power cut could undo is only the renaming.
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)
