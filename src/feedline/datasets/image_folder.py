"""A folder of images, one folder a class: `ImageFolderDataset`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.datasets.indexing import check_index
from feedline.datasets.kind import Named
from feedline.errors import FetchError, OptionError

__all__ = ["IMAGE_EXTENSIONS", "ImageFolderDataset"]

#: Endings of image files, those of torchvision's `ImageFolder`.
IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_MAX_BYTES = 64 * 2**20
_OPEN = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class ImageFolderDataset(Named):
    """The image files below `root/CLASS/`: an item is `(bytes, label)`, so that decoding stays in the transform.

    Classes are the folders directly in `root` (links to folders, too), in the order of their names; a class's label is
    its place among them. Its files are those at any depth below it, in the order of their folders' and their own
    names, as torchvision's `ImageFolder` has them. The folder is listed once, when the dataset is built.

    Args:
        root: a `str`, `bytes` or `PathLike`; names that are not valid text work.
        extensions: endings of files that count, upper or lower case; `None` for all files.
        allow_empty: let classes be without files.
        max_bytes: the largest file that is read.

    Attributes:
        root: as text.
        classes: names of the classes.
        class_to_idx: label of each class, by name.

    Raises:
        FileNotFoundError: there is no such folder, no class in it, or no file in a class.
        NotADirectoryError: `root` is no folder.
        OptionError, TypeError: a bad option.
        FetchError: from an item: its file is larger than `max_bytes` (`"too_large"`), is gone (`"not_found"`) or may
            not be read (`"denied"`). Other `OSError`s are passed on as they are.

    Concurrency: items may be fetched on any number of threads. Pickles small (names as one array), and nothing stays
    open.
    """

    def __init__(
        self,
        root: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        *,
        extensions: Iterable[str] | None = IMAGE_EXTENSIONS,
        allow_empty: bool = False,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self.root = os.fsdecode(root)
        self.extensions = _check_extensions(extensions)
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int):
            raise TypeError(f"max_bytes must be an int, not {max_bytes!r}")
        if max_bytes < 1:
            raise OptionError(f"max_bytes must be at least 1, not {max_bytes}")
        self.max_bytes = max_bytes
        self.classes = _classes(self.root)
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}
        names: list[bytes] = []
        counts = []
        for name in self.classes:
            found = [os.fsencode(path) for path in _files(self.root, name, self.extensions)]
            names += found
            counts.append(len(found))
        empty = [name for name, count in zip(self.classes, counts) if not count]
        if empty and not allow_empty:
            kinds = "files" if self.extensions is None else f"files that end in {', '.join(self.extensions)}"
            raise FileNotFoundError(
                f"{_told(empty)} in {self.root!r} {'have' if len(empty) > 1 else 'has'} no {kinds}: give "
                "extensions=, or allow_empty=True"
            )
        # Names as one array and not as a list of str: a million of them pickle at once, and are shared with worker
        # processes instead of being copied into each.
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._targets = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        self._targets.flags.writeable = False

    @property
    def targets(self) -> npt.NDArray[np.int64]:
        """The labels of all items, shape `(n,)`, read-only."""
        return self._targets

    def __len__(self) -> int:
        return len(self._ends)

    def path(self, index: int) -> str:
        """Return the path of item `index`; nothing is read."""
        place = check_index(index, len(self), "ImageFolderDataset")
        start = int(self._ends[place - 1]) if place else 0
        return os.path.join(self.root, os.fsdecode(self._names[start : self._ends[place]].tobytes()))

    def location(self, index: int) -> str:
        """Return the same, for the record of a failure."""
        return self.path(index)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        """Return (bytes of the file, label); negative indices count from the end."""
        place = check_index(index, len(self), "ImageFolderDataset")
        path = self.path(place)
        try:
            return self._read(path, place), int(self._targets[place])
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FetchError(
                f"item {place}: {path!r} is gone since the folder was listed",
                kind="not_found",
                index=place,
                location=path,
                attempts=1,
            ) from error
        except PermissionError as error:
            raise FetchError(
                f"item {place}: {path!r} may not be read: {error.strerror}",
                kind="denied",
                index=place,
                location=path,
                attempts=1,
            ) from error

    def _read(self, path: str, index: int) -> bytes:
        file = os.open(path, _OPEN)
        try:
            # Asked for exactly, a file arrives in one call and without a larger buffer that is cut afterwards.
            status = os.fstat(file)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            size = status.st_size
            parts: list[bytes] = []
            got = 0
            while got <= self.max_bytes and size <= self.max_bytes:
                part = os.read(file, max(size - got, 1))
                if not part:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
                parts.append(part)
                got += len(part)
        finally:
            os.close(file)
        raise FetchError(
            f"item {index}: {path!r} has {max(size, got)} bytes or more; max_bytes is {self.max_bytes}",
            kind="too_large",
            index=index,
            location=path,
            attempts=1,
        )

    def __repr__(self) -> str:
        return f"ImageFolderDataset({self.root!r}, {len(self)} files in {len(self.classes)} classes)"


def _check_extensions(extensions: Any) -> tuple[str, ...] | None:
    if extensions is None:
        return None
    if isinstance(extensions, (str, bytes)) or not isinstance(extensions, Iterable):
        raise TypeError(f"extensions must be a list like ('.jpg', '.png'), not {extensions!r}")
    given = tuple(extensions)
    for extension in given:
        if not isinstance(extension, str):
            raise TypeError(f"an extension must be a str, not {extension!r}")
        if not extension.startswith("."):
            raise OptionError(f"an extension begins with a dot, unlike {extension!r}")
    if not given:
        raise OptionError("extensions may not be empty; None stands for all files")
    return tuple(extension.lower() for extension in given)


def _classes(root: str) -> list[str]:
    try:
        with os.scandir(root) as entries:
            classes = sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no folder {root!r}") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"{root!r} is a file; a folder of class folders is needed") from None
    if not classes:
        raise FileNotFoundError(
            f"{root!r} has no folders in it: images are looked for in one folder for each class, {root}/CLASS/..."
        )
    return classes


def _files(root: str, name: str, extensions: tuple[str, ...] | None) -> Iterator[str]:
    """Yield the files of class `name`, relative to `root`, sorted by folder and then by name."""
    folders: list[tuple[str, list[str]]] = []
    _walk(root, name, frozenset(), folders)
    for folder, files in sorted(folders):
        for file in files:
            if extensions is None or file.lower().endswith(extensions):
                yield os.path.join(folder, file)


def _walk(
    root: str, folder: str, above: frozenset[tuple[int, int]], found: list[tuple[str, list[str]]]
) -> None:
    path = os.path.join(root, folder)
    status = os.stat(path)
    here = (status.st_dev, status.st_ino)
    if here in above:
        # A link to a folder that it lies in: what is there has been seen already.
        return
    files = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                _walk(root, os.path.join(folder, entry.name), above | {here}, found)
            elif entry.is_file():
                files.append(entry.name)
    found.append((folder, sorted(files)))


def _told(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{'classes' if len(names) > 1 else 'class'} {shown}{more}"
