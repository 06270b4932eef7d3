"""`.npy` and `.npz` files: every type and order that float64 can hold, read in blocks, and told what is wrong."""

from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest

import feedline.convert.arrays as arrays
from feedline.convert.conversion import convert
from feedline.convert.sources import SourceOptions, open_source
from feedline.datasets.ndf import NdfDataset
from feedline.errors import OptionError

X = np.random.default_rng(0).normal(size=(200, 6))


def rows_of(source, folder, **options):
    """Convert, and return features and labels."""
    convert(source, folder / "out.ndf", overwrite=True, **options)
    return NdfDataset(folder / "out.ndf").take(np.arange(NdfDataset(folder / "out.ndf").n), np.empty)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(arrays, "BLOCK_BYTES", 1000)


@pytest.mark.parametrize("dtype", ["f8", ">f8", "f4", "f2", "i8", "<u2", ">i4", "?", "u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_of_every_type_and_order_arrive_exactly(tmp_path, dtype, order):
    x = np.asarray(X * 10, dtype if dtype != "u8" else "i8", order=order)
    x = np.abs(x).astype("u8") if dtype == "u8" else x
    np.save(tmp_path / "a.npy", x)
    found, labels = rows_of(tmp_path / "a.npy", tmp_path)
    assert np.array_equal(found, x.astype(float))
    assert labels.shape == (200, 0)


def test_not_a_number_and_infinities_pass_bit_for_bit(tmp_path):
    x = np.array([[np.nan, np.inf], [-np.inf, -0.0]])
    x.view("u8")[0, 0] = 0x7FF8_0000_0000_1234
    np.save(tmp_path / "a.npy", x)
    assert rows_of(tmp_path / "a.npy", tmp_path, labels=["0"])[1].tobytes() == x[:, 0].tobytes()


@pytest.mark.parametrize("shape", [(200,), (200, 1), (200, 2, 3), (200, 6, 1, 1)])
def test_what_is_in_a_row_is_flattened(tmp_path, shape):
    x = X.reshape(-1)[: np.prod(shape)].reshape(shape)
    np.save(tmp_path / "a.npy", x)
    assert np.array_equal(rows_of(tmp_path / "a.npy", tmp_path)[0], x.reshape(200, -1))


def test_columns_of_an_array_go_by_their_numbers(tmp_path):
    np.save(tmp_path / "a.npy", X)
    x, y = rows_of(tmp_path / "a.npy", tmp_path, labels=["5", "0"], columns=["2", "1"])
    assert np.array_equal(x, X[:, [2, 1]])
    assert np.array_equal(y, X[:, [5, 0]])


def test_fields_of_a_structured_array_go_by_their_names_and_texts_may_be_left_out(tmp_path):
    a = np.zeros(50, [("name", "U5"), ("age", "i4"), ("at", "f4", (2,)), ("y", "u1")])
    a["age"], a["at"], a["y"] = np.arange(50), np.arange(100).reshape(50, 2), 7
    np.save(tmp_path / "a.npy", a)
    x, y = rows_of(tmp_path / "a.npy", tmp_path, labels=["y"], columns=["at", "age"])
    assert np.array_equal(x, np.column_stack([a["at"], a["age"]]))
    assert np.array_equal(y, a["y"][:, None])
    with pytest.raises(OptionError, match=r"the field 'name' of .* holds texts"):
        convert(tmp_path / "a.npy", tmp_path / "b.ndf")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_y_of_an_archive_is_its_label_and_all_else_are_features(tmp_path, save):
    save(tmp_path / "a.npz", b=X[:, :2].astype("f4"), y=np.arange(200), a=X.reshape(200, 3, 2))
    x, y = rows_of(tmp_path / "a.npz", tmp_path)
    assert np.array_equal(x, np.hstack([X[:, :2].astype("f4"), X]))
    assert np.array_equal(y, np.arange(200.0)[:, None])
    x, y = rows_of(tmp_path / "a.npz", tmp_path, labels=["a"], columns=["y"])
    assert np.array_equal(x, np.arange(200.0)[:, None])
    assert np.array_equal(y, X)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_part_of_an_archive_can_be_read_alone_and_again(tmp_path, save):
    save(tmp_path / "a.npz", x=X, y=np.arange(200))
    source = open_source(tmp_path / "a.npz", SourceOptions())
    for start, stop in [(150, 200), (3, 90), (90, 170), (0, 1), (199, 200)]:
        blocks = [np.hstack([piece for _, piece in block]) for block in source.blocks(start, stop)]
        assert np.array_equal(np.vstack(blocks), np.column_stack([X, np.arange(200)])[start:stop])


def test_a_compressed_array_is_decompressed_once_when_its_parts_are_read_in_order(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=X)
    source = open_source(tmp_path / "a.npz", SourceOptions())
    opened = []
    plain = arrays.PackedReader
    monkeypatch.setattr(arrays, "PackedReader", type("Counted", (plain,), {
        "__init__": lambda self, array: (opened.append(1), plain.__init__(self, array))[1]
    }))  # fmt: skip
    for start in range(0, 200, 50):
        list(source.blocks(start, start + 50))
    assert len(opened) == 1


def npy(array, **header):
    data = io.BytesIO()
    np.save(data, array, **header)
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "holds no array that NumPy can read"),
        (b"PK\x03\x04", "holds no array that NumPy can read"),
        (npy(X)[:50], "holds no array that NumPy can read"),
        (npy(X)[:-8], r"ends within the array 'x' of shape \(200, 6\): it was cut"),
        (npy(np.float64(3)), "is a single value, not an array with rows"),
        (npy(X.astype(complex)), r"holds complex numbers \(complex128\)"),
        (npy(np.array(["a", "b"])), "holds texts"),
        (npy(np.array([b"a"])), "holds bytes"),
        (npy(np.array(["2020-01-01"], "M8[D]")), "holds dates"),
        (npy(np.array([{}], object), allow_pickle=True), "holds objects"),
        (npy(np.zeros((0, 4))), "has no rows"),
        (npy(np.zeros((4, 0))), "has 4 rows of no values at all"),
        (
            npy(np.array([[1], [2**53 + 1]])),
            r"x\[1, 0\] is 9007199254740993, which float64 can't hold exactly",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_array_of_rows_is_told(tmp_path, data, said):
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(OptionError, match=said) as caught:
        convert(tmp_path / "a.npy", tmp_path / "out.ndf")
    assert "a.npy" in str(caught.value) or "row" in str(caught.value)
    assert not (tmp_path / "out.ndf").exists()


def test_arrays_of_unequal_lengths_are_told_with_their_lengths(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=np.arange(199))
    with pytest.raises(OptionError, match="unequal lengths: 'x' has 200, 'y' has 199"):
        convert(tmp_path / "a.npz", tmp_path / "out.ndf")


def test_archives_that_are_none_are_told(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"nonsense")
    with pytest.raises(OptionError, match=r"is no \.npz file"):
        convert(tmp_path / "a.npz", tmp_path / "out.ndf")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(OptionError, match="has no arrays in it"):
        convert(tmp_path / "a.npz", tmp_path / "out.ndf")
    np.savez_compressed(tmp_path / "a.npz", x=np.asfortranarray(X))
    with pytest.raises(OptionError, match=r"save it with np\.ascontiguousarray"):
        convert(tmp_path / "a.npz", tmp_path / "out.ndf")


def test_a_damaged_compressed_array_is_told(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=X)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(OptionError, match=r"'x' of .* is damaged"):
        convert(tmp_path / "a.npz", tmp_path / "out.ndf")


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path):
    np.save(tmp_path / "a.npy", X)
    source = open_source(tmp_path / "a.npy", SourceOptions())
    os.truncate(tmp_path / "a.npy", 3000)
    with pytest.raises(OptionError, match="it was cut"):
        list(source.blocks(0, 200))
