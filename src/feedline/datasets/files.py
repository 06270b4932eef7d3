"""Bytes from files."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from feedline.datasets.fetching.attempts import Failure, Steps, Wait, adrive, drive
from feedline.datasets.fetching.event_loops import PerLoop
from feedline.datasets.fetching.file_reading import Read, file_fetch, read_file, timed_out
from feedline.datasets.fetching.limits import DEFAULT_MAX_BYTES, check_limit, check_positive, check_retry
from feedline.datasets.fetching.locations import Locations
from feedline.datasets.fetching.paths import FilePath, PathRules
from feedline.datasets.fetching.read_pool import ReadPool
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.kind import Named
from feedline.datasets.protocol import AsyncDataset

__all__ = ["FileDataset"]

_RULES = PathRules()
_NO_RETRY = Retry(max_retries=0)
# Local files are read at the speed of memory by two or three; a network file system wants more requests at once.
_THREADS = 32


class FileDataset(Named, AsyncDataset):
    """An item is the `bytes` of a file.

    Args:
        paths: a list of paths: `str`, `bytes` or `os.PathLike`, undecodable names too. They are not opened before
            their item is fetched; relative ones count from the working directory of then.
        max_bytes: the largest file; of a larger one nothing is read.
        retry: retried are time-outs and the errors `TimedOut`, `Interrupted` and `WouldBlock` of the system; by default
            nothing is.
        timeout: seconds per attempt; `None` for no limit. Set one for network file systems: a read that hangs can't be
            cancelled, its thread stays behind until the system answers.

    Raises:
        TypeError: a value of a wrong type; one bare path instead of a list.
        OptionError: a path that is empty or has a NUL; limits below their interval.

    Awaiting an item raises `IndexError` for an index out of range, and `FetchError` for all else: `"not_found"`,
    `"denied"`, `"too_large"`, `"timeout"`, `"truncated"` (the file was cut meanwhile), `"location"` (a directory, a
    FIFO or a device, which are never waited for, or what a function or template gave) or `"store"` (other errors).

    Concurrency: any number of items at once; threads that read belong to the event loop that awaits, and end with
    `aclose()` there, or after a second without work. `fetch(index)` reads in the calling thread, without a loop.
    Pickles as its locations and options.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "0.txt").write_bytes(b"hello")
        >>> dataset = FileDataset([folder / "0.txt"])
        >>> dataset.fetch(0)
        b'hello'
    """

    def __init__(
        self,
        paths: Any,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retry: Retry = _NO_RETRY,
        timeout: float | None = None,
    ) -> None:
        self._max_bytes = check_positive("max_bytes", max_bytes)
        self._retry = check_retry(retry)
        self._timeout = check_limit("timeout", timeout)
        self._open(Locations.listed(_RULES, paths, "paths"))

    @classmethod
    def from_function(
        cls, function: Callable[[int], str | bytes | os.PathLike[Any]], length: int, **options: Any
    ) -> FileDataset:
        """Make a dataset whose item `i` lies at `function(i)`, for `i` from 0 to `length - 1`.

        The function is called when an item is fetched, in any thread; what it raises is the error of that item, and a
        path that is none is a `FetchError` (`"location"`) of that item. `options` are those of the class.
        """
        return cls._made(Locations.from_function(_RULES, function, length), options)

    @classmethod
    def from_template(
        cls,
        template: str | os.PathLike[str],
        columns: Mapping[str, Any] | None = None,
        *,
        length: int | None = None,
        **options: Any,
    ) -> FileDataset:
        """Make a dataset whose paths are a template filled from columns, such as `"tiles/{split}/{index:06}.bin"`.

        Args:
            template: text with `{index}` and the names of columns in braces; `{{` and `}}` for braces.
            columns: a sequence of ints or strings (`Column`) for each name, all of one length; strings may have no
                `/`, no backslash and no NUL, and no component made of one may be empty, `.` or `..`.
            length: number of items, if only `{index}` is used.
            options: those of the class.

        Raises:
            TypeError, OptionError: as the class does, and for the template; with the byte offset or the column.
        """
        text = os.fspath(template) if isinstance(template, os.PathLike) else template
        return cls._made(Locations.from_template(_RULES, text, columns, length), options)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._locations)

    def location(self, index: Any) -> str:
        """Return the path of item `index` as text; nothing is read. Raises what `__getitem__` does for a bad one."""
        return self._locations.show(self._locations.locate(index)[1])

    async def __getitem__(self, index: Any) -> bytes:
        """Return the bytes of item `index`; negative indices count from the end.

        Raises:
            IndexError: there is no such item.
            FetchError: the file could not be read.
        """
        pool = self._pools.get()

        async def perform(step: Read | Wait) -> bytes | Failure | None:
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                return None
            try:
                return await pool.run(partial(read_file, step.path, self._max_bytes), self._timeout)
            except TimeoutError:
                return timed_out(self._timeout or 0.0)

        return await adrive(self._steps(index), perform)

    async def __getitems__(self, indices: Sequence[Any]) -> list[bytes]:
        """Return the bytes of several items, read one after another in one thread; raises as `__getitem__` does."""
        if self._timeout is not None:
            return [await self[index] for index in indices]
        return await self._pools.get().run(lambda: [self.fetch(index) for index in indices])

    def fetch(self, index: Any) -> bytes:
        """Return the bytes of item `index`, read in the calling thread; raises as `__getitem__` does.

        It is what a thread uses that has no event loop: no hand-over is made for it, except with a `timeout`.
        """
        return drive(self._steps(index), self._perform_here)

    async def aclose(self) -> None:
        """End the threads that belong to the running event loop; the dataset may be used again."""
        self._pools.close()

    @classmethod
    def _made(cls, locations: Locations[FilePath], options: dict[str, Any]) -> FileDataset:
        dataset = cls([], **options)
        dataset._open(locations)
        return dataset

    def _open(self, locations: Locations[FilePath]) -> None:
        self._locations = locations
        self._pools = PerLoop(_make_pool)

    def _steps(self, index: Any) -> Steps[bytes]:
        place, path = self._locations.locate(index)
        return file_fetch(path, place, self._retry, lambda: self._locations.show(path))

    def _perform_here(self, step: Read | Wait) -> bytes | Failure | None:
        if isinstance(step, Wait):
            time.sleep(step.seconds)
            return None
        if self._timeout is None:
            return read_file(step.path, self._max_bytes)
        return _read_in_thread(step.path, self._max_bytes, self._timeout)

    def __repr__(self) -> str:
        return f"FileDataset({len(self)} items)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pools"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pools = PerLoop(_make_pool)


def _make_pool() -> ReadPool:
    return ReadPool(_THREADS)


def _read_in_thread(path: FilePath, max_bytes: int, timeout: float) -> bytes | Failure:
    outcome: list[bytes | Failure] = []
    thread = threading.Thread(target=lambda: outcome.append(read_file(path, max_bytes)), daemon=True)
    thread.start()
    thread.join(timeout)
    return outcome[0] if outcome else timed_out(timeout)
