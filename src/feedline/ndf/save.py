"""Arrays and datasets to an `.ndf` file, streamed: `save_ndf`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from feedline.errors import OptionError
from feedline.ndf.values import Array, as_numbers, as_rows
from feedline.ndf.writer import NdfWriter

__all__ = ["save_ndf", "stack_items"]

_Block: TypeAlias = tuple[Array, Array]
#: Rows that are asked of a dataset at a time.
_BLOCK_ROWS = 4096


def save_ndf(path: Any, dataset_or_x: Any, y: Any = None) -> None:
    """Write rows to an `.ndf` file, whole or not at all (see `NdfWriter`).

    Args:
        path: the file to make or to replace.
        dataset_or_x: an array of shape `(n, d)`, or `(n,)` for one column; or a dataset, or any iterable, of items
            that are rows, or tuples `(row, labels)` or `(row,)`, each part a number or a sequence of numbers. It is
            streamed: it may be larger than memory.
        y: labels, an array of shape `(n, l)` or `(n,)`; only beside an array.

    Raises:
        TypeError: complex numbers, texts, objects; items of another form; `y` beside a dataset.
        OptionError: unequal lengths, rows of unequal widths, no row at all in a dataset that can't tell its width,
            or an int that float64 can't hold exactly.
        OSError: the file can't be written.

    An error leaves the old file, if any, as it was.
    """
    if isinstance(dataset_or_x, np.ndarray) or hasattr(dataset_or_x, "__array__"):
        blocks: Iterator[_Block] = iter([_arrays(dataset_or_x, y)])
    elif y is not None:
        if not isinstance(dataset_or_x, (list, tuple)):
            raise TypeError(
                f"y goes with an array x, not with a dataset ({type(dataset_or_x).__name__}): let its items be "
                f"(row, labels)"
            )
        blocks = iter([_arrays(dataset_or_x, y)])
    else:
        blocks = _blocks_of(dataset_or_x)
    first = next(blocks, None)
    if first is None:
        raise OptionError(
            "there is not a single row, so the width of rows can't be told: use NdfWriter(path, d, l)"
        )
    with NdfWriter(path, first[0].shape[1], first[1].shape[1]) as writer:
        writer.append(*first)
        for block in blocks:
            writer.append(*block)


def _arrays(x: Any, y: Any) -> _Block:
    features = as_rows("x", x)
    labels = np.empty((len(features), 0)) if y is None else as_rows("y", y)
    if len(features) != len(labels):
        raise OptionError(f"x has {len(features)} rows and y has {len(labels)}")
    return features, labels


def _blocks_of(dataset: Any) -> Iterator[_Block]:
    if isinstance(dataset, (str, bytes, Mapping)) or not (
        isinstance(dataset, Iterable) or (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"))
    ):
        raise TypeError(f"rows come from an array or a dataset, not from {type(dataset).__name__}")
    take = getattr(dataset, "take", None)
    if callable(take) and hasattr(dataset, "__len__") and hasattr(dataset, "row_specs"):
        # At least one block, so that an empty dataset tells its widths.
        for start in range(0, max(1, len(dataset)), _BLOCK_ROWS):
            places = np.arange(start, min(start + _BLOCK_ROWS, len(dataset)), dtype=np.int64)
            yield _arrays(*_pair(take(places, np.empty), f"rows from {start} on"))
        return
    items = _items_of(dataset)
    position = 0
    while block := list(islice(items, _BLOCK_ROWS)):
        yield stack_items(block, position)
        position += len(block)


def _items_of(dataset: Any) -> Iterator[Any]:
    # `len` decides where a dataset ends: an IndexError out of an item is an error.
    by_index = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    for place, item in enumerate(map(dataset.__getitem__, range(len(dataset))) if by_index else dataset):
        if inspect.isawaitable(item):
            if inspect.iscoroutine(item):
                item.close()
            raise TypeError(f"item {place} must be awaited: save_ndf takes synchronous datasets")
        yield item


def _pair(item: Any, where: str) -> tuple[Any, Any]:
    if isinstance(item, tuple):
        if len(item) in (1, 2):
            return item[0], item[1] if len(item) == 2 else None
        raise TypeError(f"{where}: an item must be a row or (row, labels), not a tuple of {len(item)}")
    if isinstance(item, (Mapping, str, bytes)) or item is None:
        raise TypeError(f"{where}: an item must be a row or (row, labels), not {type(item).__name__}")
    return item, None


def stack_items(items: list[Any], position: int) -> _Block:
    """Return rows and labels of items, float64, shapes `(k, d)` and `(k, l)`; `position` is the first one's number.

    Raises:
        TypeError: an item is neither a row nor `(row, labels)`, or holds what is no number.
        OptionError: rows of unequal widths or of more axes than one, or an int that float64 can't hold exactly.
    """
    rows, labels = [], []
    for place, item in enumerate(items, position):
        row, label = _pair(item, f"item {place}")
        rows.append(_as_row(f"item {place}: the row", row))
        labels.append(_as_row(f"item {place}: the labels", [] if label is None else label))
        for what, parts in (("values", rows), ("labels", labels)):
            if len(parts[-1]) != len(parts[0]):
                raise OptionError(
                    f"item {place} has {len(parts[-1])} {what}, item {position} has {len(parts[0])}"
                )
    return np.stack(rows), np.stack(labels)


def _as_row(name: str, given: Any) -> Array:
    array = as_numbers(name, given)
    if array.ndim > 1:
        raise OptionError(
            f"{name} has the shape {array.shape}: it must be one number or one list of them; flatten it"
        )
    # Each to float64 by itself: stacking rows of unequal types could round (int64 with uint64).
    with np.errstate(invalid="ignore"):
        return array.reshape(-1).astype(np.float64)
