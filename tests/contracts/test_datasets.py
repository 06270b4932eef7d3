"""Every dataset of rows, and every combination, keeps to the published contract."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.combine import ConcatDataset, MapDataset, Subset
from feedline.datasets.mixture import MixtureDataset
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.protocol import AsyncDataset
from feedline.ndf.save import save_ndf
from feedline.testing.dataset_contract import AsyncDatasetContract, DatasetContract, same

X = np.arange(60.0).reshape(20, 3)
Y = np.arange(20)


def double(item):
    return tuple(2 * part for part in item)


class TestArrayDataset(DatasetContract):
    def make_dataset(self):
        return ArrayDataset(X, Y)


class TestArrayDatasetOfNames(DatasetContract):
    def make_dataset(self):
        return ArrayDataset({"row": X[::2], "when": Y[::2].astype(">M8[s]"), "flag": Y[::2] > 3})


class TestArrayDatasetOfTexts(DatasetContract):
    def make_dataset(self):
        return ArrayDataset(np.array(["a", "b", "c"]), np.arange(3))


@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"dtype": "float32"}], ids=str)
class TestNdfDataset(DatasetContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path, options):
        save_ndf(tmp_path / "rows.ndf", X, Y)
        self.make_dataset = lambda: NdfDataset(tmp_path / "rows.ndf", **options)


class TestSubset(DatasetContract):
    def make_dataset(self):
        return Subset(ArrayDataset(X, Y), [3, -1, 3, 0])


class TestConcatDataset(DatasetContract):
    def make_dataset(self):
        return ConcatDataset([ArrayDataset(X, Y), ArrayDataset(-X[:2], -Y[:2])])


class TestConcatDatasetOfUnlikeParts(DatasetContract):
    def make_dataset(self):
        return ConcatDataset([ArrayDataset(X, Y), list(zip(X, Y)), Subset(ArrayDataset(X), [0])])


class TestMapDataset(DatasetContract):
    def make_dataset(self):
        return MapDataset(ArrayDataset(X, Y), double)


class TestMixtureDataset(DatasetContract):
    def make_dataset(self):
        return MixtureDataset(
            {"a": ArrayDataset(X, Y), "b": ArrayDataset(-X, -Y)}, {"a": 0.7, "b": 0.3}, length=50
        )


class TestANestOfThem(DatasetContract):
    def make_dataset(self):
        mixture = MixtureDataset({"a": ArrayDataset(X), "b": ArrayDataset(-X)}, [2, 1])
        return Subset(ConcatDataset([mixture, ArrayDataset(X)]), range(1, 40, 2))


class Letters(AsyncDataset):
    def __init__(self, letter):
        self.letter = letter

    def __len__(self):
        return 7

    async def __getitem__(self, index):
        if not -7 <= index < 7:
            raise IndexError(index)
        return f"{self.letter}{index % 7}"

    async def __getitems__(self, indices):
        return [await self[index] for index in indices]

    def __repr__(self):
        return f"Letters({self.letter!r})"


class TestAsyncSubset(AsyncDatasetContract):
    def make_dataset(self):
        return Subset(Letters("a"), [3, 1, -1])


class TestAsyncConcatDataset(AsyncDatasetContract):
    def make_dataset(self):
        return ConcatDataset([Letters("a"), Letters("b")])


class TestAsyncMapDataset(AsyncDatasetContract):
    def make_dataset(self):
        return MapDataset(Letters("a"), str.upper)


class TestAsyncMixtureDataset(AsyncDatasetContract):
    def make_dataset(self):
        return MixtureDataset({"a": Letters("a"), "b": Letters("b")}, [2, 1])


class Wrapping(ArrayDataset):
    """Wrong in the way that unchecked arrays are."""

    def __getitem__(self, index):
        return tuple(array[index % len(array)] for array in self.arrays)


class Forgetful(ArrayDataset):
    """Its batch is not what its items say."""

    @property
    def take(self):
        return lambda places, allocate: self._take(places[::-1], allocate)


def test_the_contract_catches_a_dataset_that_wraps():
    contract = DatasetContract()
    contract.make_dataset = lambda: Wrapping(X)
    with pytest.raises(AssertionError):
        contract.test_an_index_out_of_range_is_an_index_error()


def test_the_contract_catches_a_batch_that_differs_from_its_items():
    contract = DatasetContract()
    contract.make_dataset = lambda: Forgetful(X)
    with pytest.raises(AssertionError):
        contract.test_a_batch_that_is_gathered_equals_the_collated_items()


def test_sameness_is_of_types_and_bits():
    assert same((np.array([np.nan]), {"a": [1, "b"]}), (np.array([np.nan]), {"a": [1, "b"]}))
    for other in (np.array([1.0]), np.array([1], np.int32), np.array([[1]]), [1], 1, np.int64(1)):
        assert not same(np.array([1]), other)
    assert not same(np.array([0.0]), np.array([-0.0]))
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not same((1,), (1, 2))
