"""Labels beside a dataset that has none: `LabeledDataset`."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from feedline.datasets.combination import AsyncCombination, Combination, check_part
from feedline.datasets.kind import class_name, dataset_kind
from feedline.datasets.protocol import AsyncDataset, Int64Array
from feedline.errors import OptionError

__all__ = ["LabeledDataset"]


class LabeledDataset(Combination):
    """A dataset with a label beside each item: item `i` is `(dataset[i], labels[i])`.

    So files, URLs and objects, whose items are only bytes, go through a chain that decodes them, label in tow.

    Args:
        dataset: any dataset with random access; of an `AsyncDataset`, the result is one, too.
        labels: a sequence or an array, one entry (row) for each item, in the same order; held by reference. Entries of
            a one-dimensional array become plain Python values.

    Raises:
        TypeError: the dataset is none, or the labels are not a sequence.
        OptionError: there are more or fewer labels than items.

    >>> LabeledDataset([b"cat bytes", b"dog bytes"], [0, 1])[1]
    (b'dog bytes', 1)
    """

    def __new__(cls, dataset: Any = None, labels: Any = None) -> LabeledDataset:
        """Make the asynchronous form of asynchronous datasets; see the note in `feedline.datasets.combination`."""
        waits = cls is LabeledDataset and isinstance(dataset, AsyncDataset)
        return object.__new__(_AsyncLabeledDataset if waits else cls)

    def __init__(self, dataset: Any, labels: Sequence[Any] | np.ndarray[Any, Any]) -> None:
        self.parts = (check_part("the dataset", dataset),)
        unordered = isinstance(labels, (str, bytes, Mapping, AbstractSet))
        if unordered or not (hasattr(labels, "__getitem__") and hasattr(labels, "__len__")):
            raise TypeError(
                f"labels must be a sequence with one label for each item, not {type(labels).__name__}"
            )
        if len(labels) != len(dataset):
            raise OptionError(
                f"there must be one label for each item, but there are {len(labels)} labels and {len(dataset)} items"
            )
        self.labels = labels

    @property
    def dataset(self) -> Any:
        """The dataset without labels."""
        return self.parts[0]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return (item, label) of `index`; negative indices count from the end."""
        return super().__getitem__(index), self.label(index)

    def label(self, index: int) -> Any:
        """Return the label of item `index`; nothing is fetched for it."""
        label = self.labels[operator.index(index)]
        return label.item() if isinstance(label, np.generic) else label

    def _locate(self, position: int) -> tuple[int, int]:
        return 0, position

    def _locate_many(self, positions: Int64Array) -> tuple[None, Int64Array]:
        return None, positions

    def _getitems(self, indices: Any) -> Any:
        items = super()._getitems(indices)
        return [(item, self.label(index)) for item, index in zip(items, indices)]

    def _can(self, method: str) -> bool:
        # What the part gathers has no labels in it.
        return False

    def kind(self) -> str:
        """Return the qualified class name, with the dataset's in parentheses."""
        cls = LabeledDataset if type(self) is _AsyncLabeledDataset else type(self)
        return f"{class_name(cls)}({dataset_kind(self.dataset)})"

    def __repr__(self) -> str:
        return f"LabeledDataset({self.dataset!r}, {len(self)} labels)"


class _AsyncLabeledDataset(LabeledDataset, AsyncCombination):
    """Labels beside an `AsyncDataset`."""

    async def __getitem__(self, index: int) -> tuple[Any, Any]:  # type: ignore[override]
        """Return (item, label) of `index`; negative indices count from the end."""
        return await AsyncCombination.__getitem__(self, index), self.label(index)

    async def _getitems(self, indices: Any) -> list[Any]:  # type: ignore[override]
        items = await AsyncCombination._getitems(self, indices)
        return [(item, self.label(index)) for item, index in zip(items, indices)]
