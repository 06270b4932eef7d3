"""Which source a name means: by what lies there, and by its ending."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from feedline.convert.arrays import open_npy, open_npz
from feedline.convert.csv_file import CsvSource
from feedline.convert.datasets import RowsSource, open_named
from feedline.convert.images import ImageSource
from feedline.convert.protocol import Source
from feedline.convert.streams import StreamSource
from feedline.convert.tables import TableSource
from feedline.datasets.table_files import TABLE_EXTENSIONS
from feedline.errors import OptionError
from feedline.ndf.positional import absolute_path
from feedline.ndf.shards import holds_index

__all__ = ["EXTENSIONS", "SourceOptions", "UnknownExtensionError", "open_source"]


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read; what a kind of source doesn't take, it refuses.

    Attributes:
        labels: names of columns that are labels; `None` for the kind's default.
        columns: names of columns that are features; `None` for all others.
        size: height and width of images.
        mode: of images.
    """

    labels: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    size: tuple[int, int] | None = None
    mode: str = "RGB"


class UnknownExtensionError(OptionError):
    """A file has an ending that says nothing about what is in it."""


def _table(path: str, options: SourceOptions) -> Source:
    return TableSource(path, options.labels, options.columns)


def _rows(path: str, options: SourceOptions) -> Source:
    _refuse_columns(path, options, "its features and labels are told apart in it")
    return RowsSource(path)


#: What opens a file, by its ending.
_OPENERS: dict[str, Callable[[str, SourceOptions], Source]] = {
    ".npy": lambda path, options: open_npy(path, options.labels, options.columns),
    ".npz": lambda path, options: open_npz(path, options.labels, options.columns),
    ".csv": lambda path, options: CsvSource(path, options.labels, options.columns),
    ".ndf": _rows,
    **dict.fromkeys(TABLE_EXTENSIONS, _table),
}
EXTENSIONS = tuple(_OPENERS)
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def open_source(given: Any, options: SourceOptions) -> Source | StreamSource:
    """Open what `given` names.

    Args:
        given: a path, or the text `module:dataset`.
        options: how it is to be read.

    Raises:
        FileNotFoundError: there is no such file.
        UnknownExtensionError: its ending is not known.
        OptionError: an option that this kind of source does not take; and what the sources raise.
        TypeError: it is no path.
    """
    path = absolute_path(given)
    if os.path.isdir(path):
        if holds_index(path):
            _refuse_size(given, options)
            return _rows(path, options)
        _refuse_columns(path, options, "the label of an image is its class")
        return ImageSource(path, options.size, options.mode)
    _refuse_size(given, options)
    if not os.path.exists(path):
        if isinstance(given, str) and _NAME.fullmatch(given):
            _refuse_columns(given, options, "the items of a dataset tell their labels, as (row, labels)")
            return open_named(given)
        raise FileNotFoundError(
            errno.ENOENT, "no such file or folder (nor MODULE:DATASET)", os.fsdecode(given)
        )
    ending = os.path.splitext(path)[1].lower()
    opener = _OPENERS.get(ending)
    if opener is None:
        raise UnknownExtensionError(
            f"{os.fsdecode(given)!r} ends with {ending!r}, which is not known: it may be {', '.join(EXTENSIONS)}, a folder "
            f"of images or of shards, or MODULE:DATASET"
        )
    return opener(path, options)


def _refuse_columns(given: str, options: SourceOptions, why: str) -> None:
    for name, value in (("labels", options.labels), ("columns", options.columns)):
        if value is not None:
            raise OptionError(f"{name} can't be chosen for {given!r}: {why}")


def _refuse_size(given: Any, options: SourceOptions) -> None:
    if options.size is not None:
        raise OptionError(f"size is for a folder of images, which {os.fsdecode(given)!r} is not")
