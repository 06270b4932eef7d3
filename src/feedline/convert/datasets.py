"""Datasets as sources of rows: `.ndf` files, folders of shards, and `module:dataset`."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from feedline.convert.protocol import BLOCK_BYTES, Array, Block, stamp_of
from feedline.convert.streams import StreamSource
from feedline.datasets.kind import dataset_kind
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.ndf_shards import NdfShards
from feedline.datasets.protocol import AsyncDataset, is_stream
from feedline.errors import OptionError
from feedline.ndf.save import stack_items
from feedline.ndf.shards import INDEX_NAME

__all__ = ["NamedSource", "RowsSource", "open_named"]

_MAX_ITEMS = 4096


class RowsSource:
    """The rows of an `.ndf` file or of a folder of shards. See `feedline.convert.protocol.Source`."""

    def __init__(self, path: str) -> None:
        self._is_folder = os.path.isdir(path)
        self._dataset = NdfShards(path) if self._is_folder else NdfDataset(path)
        self._path = path
        self.n, self.d, self.l = self._dataset.n, self._dataset.d, self._dataset.l

    def identity(self) -> dict[str, Any]:
        """Return the stamp of the file, or of the index, in which the shards' checksums are."""
        file = os.path.join(self._path, INDEX_NAME) if self._is_folder else self._path
        return {"kind": "ndf", "file": stamp_of(file)}

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`; raises the `NdfError`s of the datasets."""
        rows = max(1, min(BLOCK_BYTES // (8 * (self.d + self.l)), stop - start))
        x, y = np.empty((rows, self.d)), np.empty((rows, self.l))
        for first in range(start, stop, rows):
            places = np.arange(first, min(first + rows, stop))
            outs = x[: len(places)], y[: len(places)]
            self._dataset.take_into(places, outs)
            yield [("features", outs[0]), ("labels", outs[1])] if self.l else [("features", outs[0])]


class NamedSource:
    """The items of a dataset that is named as `module:dataset`. See `feedline.convert.protocol.Source`.

    Args:
        name: the text; what it names is a dataset with random access, or a function without arguments that makes one.
            The present folder is looked into, too.
        dataset: what it names, if that is known already.

    Items are rows, or tuples `(row, labels)`, of numbers. The dataset is made once in each process that reads it: it
    need not pickle.

    Raises:
        OptionError: there is no such name, or what it names is no dataset with items and a length.
    """

    def __init__(self, name: str, dataset: Any = None) -> None:
        self.name = name
        self._folder = os.getcwd()
        self._dataset = dataset
        self.n = len(self._open())
        first = self._stack(0, min(1, self.n))
        self.d, self.l = first[0].shape[1], first[1].shape[1]

    def _open(self) -> Any:
        if self._dataset is None:
            self._dataset = _check_dataset(self.name, _import_name(self.name, self._folder))
        return self._dataset

    def identity(self) -> dict[str, Any]:
        """Return name, kind, length, and a checksum of a few items: all that a dataset tells of its content."""
        sample = hashlib.sha256()
        for place in sorted({0, self.n // 2, self.n - 1} - {-1}):
            for part in self._stack(place, min(place + 1, self.n)):
                sample.update(part.tobytes())
        return {
            "kind": dataset_kind(self._open()),
            "name": self.name,
            "length": len(self._open()),
            "sample": sample.hexdigest(),
        }

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the items from `start` to `stop`."""
        rows = max(1, min(BLOCK_BYTES // max(1, 8 * (self.d + self.l)), _MAX_ITEMS))
        for first in range(start, stop, rows):
            x, y = self._stack(first, min(first + rows, stop))
            if (x.shape[1], y.shape[1]) != (self.d, self.l):
                raise OptionError(
                    f"items of {self.name!r} from {first} on have {x.shape[1]} values and {y.shape[1]} labels, item 0 has "
                    f"{self.d} and {self.l}"
                )
            yield [("the row", x), ("the labels", y)]

    def _stack(self, start: int, stop: int) -> tuple[Array, Array]:
        dataset = self._open()
        places = range(start, stop)
        if not places:
            return np.empty((0, 0)), np.empty((0, 0))
        get_many = getattr(dataset, "__getitems__", None)
        try:
            items = (
                list(get_many(list(places))) if callable(get_many) else [dataset[place] for place in places]
            )
            return stack_items(items, start)
        except TypeError as error:
            raise OptionError(f"{self.name!r} can't be converted: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_dataset": None}


def open_named(name: str) -> NamedSource | StreamSource:
    """Return what `module:dataset` names as a source; raises as `NamedSource` does."""
    found = _import_name(name, os.getcwd())
    return StreamSource(name, found) if is_stream(found) else NamedSource(name, _check_dataset(name, found))


def _import_name(name: str, folder: str) -> Any:
    module, _, attribute = name.partition(":")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] == error.name.split(".")[0]:
            raise OptionError(f"there is no module {module!r} (in {name!r})") from None
        raise
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{module!r} has no {attribute!r}")
        found = getattr(found, part)
    is_maker = callable(found) and not (hasattr(found, "__getitem__") or hasattr(found, "__iter__"))
    return found() if is_maker or isinstance(found, type) else found


def _check_dataset(name: str, dataset: Any) -> Any:
    if isinstance(dataset, AsyncDataset):
        raise OptionError(f"the items of {name!r} must be awaited: convert takes synchronous datasets")
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise OptionError(
            f"{name!r} is no dataset with items and a length, but of type {type(dataset).__name__}"
        )
    return dataset
