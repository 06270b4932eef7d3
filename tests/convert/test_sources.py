"""Which source a name means: files by their endings, folders by what is in them, and datasets by module and name."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from feedline.convert.conversion import convert
from feedline.convert.sources import EXTENSIONS, UnknownExtensionError
from feedline.datasets.ndf import NdfDataset
from feedline.errors import NdfError, OptionError
from feedline.ndf.save import save_ndf

MODULE = """
import numpy as np
import feedline
from feedline import ArrayDataset

X = np.arange(60.0).reshape(20, 3)
arrays = ArrayDataset(X, np.arange(20))
rows = [list(map(int, row)) for row in X]
pairs = [(row, [k, -k]) for k, row in enumerate(X)]

class Inner:
    deep = arrays

def make():
    return arrays

class Made(list):
    def __init__(self):
        super().__init__(rows)

class Async(feedline.AsyncDataset):
    async def __getitem__(self, index):
        return 1.0
    def __len__(self):
        return 3

awaited = Async()

def stream():
    for k, row in enumerate(X):
        yield row, k

class Stream(feedline.IterableDataset):
    def __iter__(self):
        return stream()

def bad_stream():
    yield 1.0
    yield "a"

def no_stream():
    yield from ()

number = 3
texts = ["a", "b"]
ragged = [[1.0], [1.0, 2.0]]
late = [[1.0]] * 5000 + [[1.0, 2.0]]
images = [np.zeros((2, 2))]
dicts = [{"a": 1}]
empty = []
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_rows.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("my_rows", None)


def rows_of(path):
    dataset = NdfDataset(path)
    return dataset.take(np.arange(dataset.n), np.empty)


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("stream", 1),
        ("Stream", 2),
        ("arrays", 1),
        ("Inner.deep", 1),
        ("make", 1),
        ("make", 2),
        ("rows", 1),
        ("Made", 1),
        ("pairs", 1),
    ],
)
def test_a_dataset_is_converted_by_its_name(module, tmp_path, name, workers):
    made = convert(f"my_rows:{name}", tmp_path / "out", num_shards=2, workers=workers)
    convert(tmp_path / "out", tmp_path / "joined.ndf")
    convert(f"my_rows:{name}", tmp_path / "out.ndf")
    assert (tmp_path / "joined.ndf").read_bytes() == (tmp_path / "out.ndf").read_bytes()
    assert set(os.listdir(tmp_path)) - {"__pycache__"} == {"joined.ndf", "my_rows.py", "out", "out.ndf"}
    x, y = rows_of(tmp_path / "out.ndf")
    assert np.array_equal(x, np.arange(60.0).reshape(20, 3))
    expected = {
        "rows": np.empty((20, 0)),
        "Made": np.empty((20, 0)),
        "pairs": np.arange(20)[:, None] * [1, -1],
    }
    assert np.array_equal(y, expected.get(name, np.arange(20)[:, None]))
    assert made.n == 20


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:x", "there is no module 'no_such_module'"),
        ("my_rows:nothing", "'my_rows' has no 'nothing'"),
        ("my_rows:awaited", "must be awaited"),
        ("my_rows:bad_stream", "can't be converted: item 1"),
        ("my_rows:no_stream", "there is not a single row"),
        ("my_rows:number", "is no dataset with items and a length, but of type int"),
        ("my_rows:texts", "can't be converted: item 0"),
        ("my_rows:ragged", "item 1 has 2 values, item 0 has 1"),
        ("my_rows:late", "has 2 values"),
        ("my_rows:images", "flatten it"),
        ("my_rows:dicts", "an item must be a row or"),
        ("my_rows:empty", "has no rows"),
    ],
)
def test_what_is_no_dataset_of_rows_is_told(module, tmp_path, name, said):
    with pytest.raises(OptionError, match=said):
        convert(name, tmp_path / "out.ndf")
    assert not (tmp_path / "out.ndf").exists()


def test_an_unknown_ending_is_told_with_the_known_ones(tmp_path):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    with pytest.raises(
        UnknownExtensionError, match=r"rows\.xlsx' ends with '\.xlsx', which is not known"
    ) as caught:
        convert(tmp_path / "rows.xlsx", tmp_path / "out.ndf")
    assert all(extension in str(caught.value) for extension in EXTENSIONS)
    (tmp_path / "rows").write_bytes(b"")
    with pytest.raises(UnknownExtensionError, match="ends with ''"):
        convert(tmp_path / "rows", tmp_path / "out.ndf")


def test_endings_may_be_upper_case(tmp_path):
    (tmp_path / "ROWS.CSV").write_text("1,2\n")
    assert convert(tmp_path / "ROWS.CSV", tmp_path / "OUT.NDF").num_files == 1


def test_a_missing_file_is_no_wrong_ending(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        convert(tmp_path / "rows.xlsx", tmp_path / "out.ndf")
    assert caught.value.filename == str(tmp_path / "rows.xlsx")


def test_a_damaged_source_of_rows_is_told_by_its_kind(tmp_path):
    save_ndf(tmp_path / "a.ndf", np.ones((3, 2)))
    (tmp_path / "a.ndf").write_bytes((tmp_path / "a.ndf").read_bytes()[:-1])
    with pytest.raises(NdfError) as caught:
        convert(tmp_path / "a.ndf", tmp_path / "out.ndf")
    assert caught.value.kind == "truncated_rows"


@pytest.mark.parametrize("name", ["rows.ndf", "corpus"])
def test_rows_tell_their_labels_themselves(tmp_path, name):
    save_ndf(tmp_path / "rows.ndf", np.ones((3, 2)), np.arange(3))
    convert(tmp_path / "rows.ndf", tmp_path / "corpus")
    with pytest.raises(OptionError, match="labels can't be chosen for"):
        convert(tmp_path / name, tmp_path / "out.ndf", labels=["y"])
    with pytest.raises(OptionError, match="size is for a folder of images"):
        convert(tmp_path / name, tmp_path / "out.ndf", size=(2, 2))


def test_labels_may_be_not_a_number(tmp_path):
    (tmp_path / "a.csv").write_text("1,nan\n2,3\n")
    convert(tmp_path / "a.csv", tmp_path / "out.ndf", labels=["1"])
    assert np.array_equal(rows_of(tmp_path / "out.ndf")[1], [[np.nan], [3.0]], equal_nan=True)
