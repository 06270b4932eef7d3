"""`LabeledDataset`: labels beside a dataset that has none."""

from __future__ import annotations

import asyncio
import pickle

import numpy as np
import pytest

from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.combine import Subset
from feedline.datasets.kind import dataset_kind
from feedline.datasets.labeled import LabeledDataset
from feedline.datasets.protocol import AsyncDataset
from feedline.errors import OptionError


class Files(AsyncDataset):
    def __init__(self):
        self.closed = 0

    def __len__(self):
        return 3

    async def __getitem__(self, index):
        return b"file %d" % index

    async def aclose(self):
        self.closed += 1


class Batched(list):
    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def prefetch(self, indices):
        self.hint = list(indices)


@pytest.mark.parametrize("labels", [[5, 6, 7], (5, 6, 7), np.array([5, 6, 7]), range(5, 8)])
def test_an_item_is_a_pair_with_a_plain_label(labels):
    dataset = LabeledDataset([b"a", b"b", b"c"], labels)
    assert list(dataset) == [(b"a", 5), (b"b", 6), (b"c", 7)]
    assert dataset[-1] == (b"c", 7)
    assert type(dataset[np.int64(1)][1]) is int
    assert len(dataset) == 3
    assert dataset.label(1) == 6


def test_a_label_may_be_a_row_or_anything():
    rows = LabeledDataset([b"a", b"b"], np.arange(4.0).reshape(2, 2))
    np.testing.assert_array_equal(rows[1][1], [2.0, 3.0])
    assert LabeledDataset(["x"], [{"box": (1, 2)}])[0] == ("x", {"box": (1, 2)})


def test_optional_methods_are_those_of_the_dataset():
    inner = Batched([b"a", b"b", b"c"])
    dataset = LabeledDataset(inner, [0, 1, 2])
    assert dataset.__getitems__([2, -3]) == [(b"c", 2), (b"a", 0)]
    dataset.prefetch([1])
    assert inner.hint == [1]
    plain = LabeledDataset([b"a"], [0])
    assert plain.__getitems__ is None
    assert plain.prefetch is None
    assert LabeledDataset(ArrayDataset(np.zeros((2, 2))), [0, 1]).take is None


def test_labels_beside_an_async_dataset_are_awaited():
    files = Files()
    dataset = LabeledDataset(files, ["x", "y", "z"])
    assert isinstance(dataset, AsyncDataset)
    assert isinstance(dataset, LabeledDataset)

    async def fetch():
        items = [await dataset[index] for index in (0, -1)]
        await dataset.aclose()
        return items

    assert asyncio.run(fetch()) == [(b"file 0", "x"), (b"file 2", "z")]
    assert files.closed == 1


def test_async_batches_are_awaited_whole():
    class Many(Files):
        async def __getitems__(self, indices):
            return [b"file %d" % index for index in indices]

    dataset = LabeledDataset(Many(), [1, 2, 3])
    assert asyncio.run(dataset.__getitems__([2, 0])) == [(b"file 2", 3), (b"file 0", 1)]


def test_it_combines_with_others():
    dataset = Subset(LabeledDataset([b"a", b"b", b"c"], [0, 1, 2]), [2, 0])
    assert list(dataset) == [(b"c", 2), (b"a", 0)]


def test_kind_and_text_name_the_dataset():
    assert dataset_kind(LabeledDataset([1], [2])) == "feedline.LabeledDataset(builtins.list)"
    assert dataset_kind(LabeledDataset(Files(), [1, 2, 3])).startswith("feedline.LabeledDataset(")
    assert repr(LabeledDataset([1, 2], [2, 3])) == "LabeledDataset([1, 2], 2 labels)"


def test_wrong_labels_are_refused_when_built():
    with pytest.raises(OptionError, match="there are 2 labels and 3 items"):
        LabeledDataset([1, 2, 3], [0, 1])
    for labels in ("ab", {0: 1, 1: 2}, {1, 2}, iter([1, 2]), None):
        with pytest.raises(TypeError, match="labels must be a sequence"):
            LabeledDataset([1, 2], labels)
    with pytest.raises(TypeError, match="must be a dataset"):
        LabeledDataset("ab", [0, 1])


def test_out_of_range_is_an_index_error():
    dataset = LabeledDataset([1, 2], [0, 1])
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"index {index} is out of range"):
            dataset[index]


def test_it_pickles():
    again = pickle.loads(pickle.dumps(LabeledDataset(Files(), [1, 2, 3])))
    assert isinstance(again, AsyncDataset)
    assert again.labels == [1, 2, 3]
