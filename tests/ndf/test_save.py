"""Arrays and datasets of many forms to files."""

from __future__ import annotations

import os

import numpy as np
import pytest

from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.combine import MapDataset, Subset
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.protocol import AsyncDataset
from feedline.errors import OptionError
from feedline.ndf.save import save_ndf

X = np.arange(12.0).reshape(4, 3)
Y = np.array([3, 1, 2, 0])


def saved(path, *arguments):
    save_ndf(path, *arguments)
    dataset = NdfDataset(path)
    x, y = dataset.take(np.arange(len(dataset)), np.empty)
    return x.tolist(), y.tolist()


@pytest.mark.parametrize(
    "source",
    [
        (X, Y),
        (X, Y[:, np.newaxis]),
        (X.astype(np.float32), Y.astype(bool) * 0 + Y),
        (np.asfortranarray(X), Y),
        (X.tolist(), Y.tolist()),
        (ArrayDataset(X, Y),),
        (Subset(ArrayDataset(X, Y), range(4)),),
        (MapDataset(ArrayDataset(X, Y), lambda item: item),),
        ([(row, label) for row, label in zip(X, Y)],),
        ([(row.tolist(), [int(label)]) for row, label in zip(X, Y)],),
        (((row, label) for row, label in zip(X, Y)),),
    ],
    ids=str,
)
def test_rows_and_labels_from_anything_that_has_them(source, tmp_path):
    assert saved(tmp_path / "a.ndf", *source) == (X.tolist(), [[3], [1], [2], [0]])


@pytest.mark.parametrize(
    "source",
    [X, X.tolist(), ArrayDataset(X), [(row,) for row in X], list(X), iter(X)],
    ids=["array", "lists", "dataset", "tuples of one", "rows", "iterator"],
)
def test_rows_alone_have_no_labels(source, tmp_path):
    assert saved(tmp_path / "a.ndf", source) == (X.tolist(), [[]] * 4)


def test_a_column_is_rows_of_one_value(tmp_path):
    assert saved(tmp_path / "a.ndf", Y) == ([[3], [1], [2], [0]], [[]] * 4)
    assert saved(tmp_path / "b.ndf", [3, 1.5]) == ([[3], [1.5]], [[], []])
    assert saved(tmp_path / "c.ndf", [(3, 1), (1.5, 2)]) == ([[3], [1.5]], [[1], [2]])


def test_a_dataset_may_be_saved_over_its_own_file(tmp_path):
    save_ndf(tmp_path / "a.ndf", X, Y)
    save_ndf(tmp_path / "a.ndf", Subset(NdfDataset(tmp_path / "a.ndf"), [3, 1]))
    assert NdfDataset(tmp_path / "a.ndf")[0][0].tolist() == X[3].tolist()


def test_no_rows_keep_their_widths(tmp_path):
    save_ndf(tmp_path / "a.ndf", np.empty((0, 3)), np.empty((0, 2)))
    assert repr(NdfDataset(tmp_path / "a.ndf")._header) == "NdfHeader(n=0, d=3, l=2)"
    save_ndf(tmp_path / "b.ndf", NdfDataset(tmp_path / "a.ndf"))
    assert (tmp_path / "b.ndf").read_bytes() == (tmp_path / "a.ndf").read_bytes()


def test_many_rows_are_streamed_in_blocks(tmp_path):
    rows = np.random.default_rng(0).random((10_000, 2))
    asked = []

    class Recording(ArrayDataset):
        @property
        def take(self):
            def take(indices, allocate):
                asked.append(len(indices))
                return self._take(indices, allocate)

            return take

    save_ndf(tmp_path / "a.ndf", Recording(rows))
    save_ndf(tmp_path / "b.ndf", (row for row in rows))
    assert sum(asked) == 10_000
    assert max(asked) < 5_000
    assert (tmp_path / "a.ndf").read_bytes() == (tmp_path / "b.ndf").read_bytes()


class Waiting(AsyncDataset):
    async def __getitem__(self, index):
        return X[index]

    def __len__(self):
        return 4


class Broken:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 2:
            raise IndexError("a fault of the dataset's own")
        return X[index]


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        ((X, Y[:3]), OptionError, "x has 4 rows and y has 3"),
        ((np.zeros((2, 2, 2)),), OptionError, "flatten"),
        ((np.array(1.0),), OptionError, "shape"),
        (([],), OptionError, "not a single row"),
        (([[1, 2], [1]],), OptionError, "item 1 has 1 values, item 0 has 2"),
        (([([1], [1]), [1]],), OptionError, "item 1 has 0 labels, item 0 has 1"),
        (([(1, 2, 3)],), TypeError, "not a tuple of 3"),
        (([{"x": 1}],), TypeError, "not dict"),
        ((["text"],), TypeError, "not str"),
        (([1, None],), TypeError, "item 1: an item must be a row"),
        (([1j],), TypeError, "complex"),
        (([np.zeros((2, 2))],), OptionError, "flatten"),
        (([2**53 + 1],), OptionError, "exactly"),
        ((ArrayDataset({"a": X}),), TypeError, "not dict"),
        ((Waiting(),), TypeError, "must be awaited"),
        ((ArrayDataset(X), Y), TypeError, "y goes with an array"),
        (("a.npy",), TypeError, "not from str"),
        ((5,), TypeError, "not from int"),
        ((Broken(),), IndexError, "a fault of the dataset's own"),
        ((np.array(["a"]),), TypeError, "<U1"),
    ],
)
def test_mistakes_are_refused_and_leave_the_old_file(source, error, match, tmp_path):
    (tmp_path / "a.ndf").write_bytes(b"old")
    with pytest.raises(error, match=match):
        save_ndf(tmp_path / "a.ndf", *source)
    assert (tmp_path / "a.ndf").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_an_int_is_judged_by_itself_in_a_row_of_unequal_types(tmp_path):
    assert saved(tmp_path / "a.ndf", [np.int64(-1), np.uint64(2**63)]) == ([[-1], [2.0**63]], [[], []])
