"""Rows of arrays in memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from feedline.collate.default import default_collate
from feedline.datasets.arrays import ArrayDataset
from feedline.errors import CollateError, OptionError

PLACES = np.array([3, 0, -1, 3, 2], np.int64)


def unaligned(values: np.ndarray) -> np.ndarray:
    """A copy of `values` that begins at an odd address."""
    memory = np.empty(values.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(values.tobytes(), np.uint8)
    return memory[1:].view(values.dtype).reshape(values.shape)


def read_only(values: np.ndarray) -> np.ndarray:
    return np.frombuffer(values.tobytes(), values.dtype).reshape(values.shape)


RAW = np.random.default_rng(0).integers(0, 256, 4 * 6 * 16).astype(np.uint8).tobytes()
NUMBERS = np.frombuffer(RAW[:192], "<f8").reshape(4, 6)

ARRAYS = {
    "contiguous": np.arange(24.0).reshape(4, 6),
    "any bit pattern": NUMBERS,
    "float32": np.arange(24, dtype=np.float32).reshape(4, 2, 3),
    "float16": np.arange(8, dtype=np.float16).reshape(4, 2),
    "one column": np.arange(4),
    "bools": np.array([True, False, True, False]),
    "uint64": np.array([0, 2**64 - 1, 3, 4], np.uint64),
    "complex": np.arange(8).reshape(4, 2) * 1j,
    "every other row": np.arange(48.0).reshape(8, 6)[::2],
    "reversed": np.arange(24.0).reshape(4, 6)[::-1],
    "some columns": np.arange(48.0).reshape(4, 12)[:, 2:9:3],
    "Fortran order": np.asfortranarray(np.arange(24.0).reshape(4, 6)),
    "transposed": np.arange(24.0).reshape(6, 4).T,
    "broadcast": np.broadcast_to(np.arange(6.0), (4, 6)),
    "unaligned": unaligned(np.arange(24.0).reshape(4, 6)),
    "unaligned column": unaligned(np.arange(4, dtype=np.int64)),
    "unaligned and strided": unaligned(np.arange(48.0).reshape(8, 6))[::2],
    "read-only": read_only(np.arange(24.0).reshape(4, 6)),
    "big-endian float64": np.arange(24, dtype=">f8").reshape(4, 6),
    "big-endian int16": np.arange(4, dtype=">i2"),
    "big-endian complex": (np.arange(8).reshape(4, 2) * 1j).astype(">c8"),
    "dates": np.array(["2024-01-01", "2024-02-03", "NaT", "1969-12-31"], "M8[D]"),
    "durations": np.arange(8).reshape(4, 2).astype(">m8[ms]"),
    "structured": np.array(
        [(1, [1.5, 2]), (2, [3, 4]), (3, [5, 6]), (4, [7, 8])], [("a", "i4"), ("b", "f8", 2)]
    ),
    "structured, big-endian": np.array([(1, 2.5)] * 4, [("a", ">i4"), ("b", "<f8")]),
    "structured, padded": np.zeros((4, 2), np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "no columns": np.empty((4, 0)),
    "no columns, three axes": np.empty((4, 2, 0), np.int16),
    "unaligned, no columns": unaligned(np.arange(4.0).reshape(4, 1))[:, :0],
    "texts": np.array(["a", "bc", "", "d"]),
    "bytes": np.array([b"a", b"bc", b"", b"d"]),
}


def assert_same(one: object, other: object) -> None:
    """The same structure, types, dtypes, shapes and bits."""
    assert type(one) is type(other)
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other):
            assert_same(left, right)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
        assert one.flags.c_contiguous
        assert one.flags.writeable
    else:
        assert one == other


def batch_of(dataset: ArrayDataset, places: np.ndarray) -> object:
    """The batch as a loader makes it: by `take` where there is one."""
    if dataset.take is not None:
        return dataset.take(places, np.empty)
    return default_collate([dataset[int(place)] for place in places])


@pytest.mark.parametrize("name", ARRAYS)
def test_a_batch_equals_the_collated_items_bit_for_bit(name):
    array = ARRAYS[name]
    dataset = ArrayDataset(array, np.arange(4))
    before = array.tobytes()
    expected = default_collate([dataset[int(place)] for place in PLACES])
    assert_same(batch_of(dataset, PLACES), expected)
    assert_same(default_collate(dataset.__getitems__(PLACES)), expected)
    assert array.tobytes() == before


@pytest.mark.parametrize("name", [name for name in ARRAYS if name not in ("texts", "bytes")])
def test_everything_but_texts_is_gathered_at_once(name):
    assert ArrayDataset(ARRAYS[name]).take is not None
    assert ArrayDataset(ARRAYS[name]).take_into is not None


@pytest.mark.parametrize("name", [name for name in ARRAYS if name not in ("texts", "bytes")])
def test_a_batch_can_be_gathered_into_the_callers_arrays(name):
    dataset = ArrayDataset(ARRAYS[name], np.arange(4))
    outs = [np.empty((len(PLACES), *spec.shape), spec.dtype) for spec in dataset.row_specs]
    assert dataset.take_into(PLACES, outs) is None
    assert_same(tuple(outs), dataset.take(PLACES, np.empty))


def test_objects_are_refused_in_a_batch_as_the_collation_refuses_them():
    dataset = ArrayDataset(np.array([[{}, 1], [2, 3]], dtype=object))
    assert dataset.take is None
    assert dataset[1][0].tolist() == [2, 3]
    with pytest.raises(CollateError):
        default_collate([dataset[0], dataset[1]])


def test_arrays_are_held_by_reference_and_items_are_views():
    x = np.zeros((3, 2))
    dataset = ArrayDataset(x)
    assert np.shares_memory(dataset.arrays[0], x)
    x[1] = 7
    assert dataset[1][0].tolist() == [7, 7]
    assert np.shares_memory(dataset[1][0], x)


def test_an_item_of_one_array_is_a_tuple_of_one():
    item = ArrayDataset(np.arange(3))[2]
    assert item == (2,)
    assert isinstance(item[0], np.int64)


def test_named_arrays_give_dicts():
    dataset = ArrayDataset({"b": np.arange(4), "a": np.arange(8.0).reshape(4, 2)})
    assert list(dataset[1]) == ["b", "a"]
    batch = dataset.take(PLACES, np.empty)
    assert_same(batch, default_collate([dataset[int(place)] for place in PLACES]))


def test_negative_indices_count_from_the_end_and_nothing_wraps():
    dataset = ArrayDataset(np.arange(3))
    assert dataset[-3] == (0,)
    for index in (3, -4, 2**70):
        with pytest.raises(IndexError, match=f"index {index} is out of range for ArrayDataset of 3 items"):
            dataset[index]
    with pytest.raises(IndexError) as caught:
        dataset.take(np.array([0, -3, 3, -9]), np.empty)
    assert caught.value.position == 2
    with pytest.raises(IndexError) as caught:
        dataset.__getitems__([0, 2**70])
    assert caught.value.position == 1
    with pytest.raises(IndexError):
        dataset.take(np.array([2**64 - 1], np.uint64), np.empty)


def test_indices_given_are_never_modified():
    places = np.array([-1, 0])
    ArrayDataset(np.arange(3)).take(places, np.empty)
    assert places.tolist() == [-1, 0]


@pytest.mark.parametrize("index", [True, np.True_, 1.0, np.float64(1), "1", None, (0,), slice(0, 1), [0]])
def test_an_index_that_is_no_int_is_refused(index):
    with pytest.raises(TypeError, match="index of ArrayDataset must be an int"):
        ArrayDataset(np.arange(3))[index]


@pytest.mark.parametrize("indices", [[0.0], [True], np.array([[0]]), ["a"], [0, None], [0, 2**70, 1.5]])
def test_indices_that_are_no_ints_are_refused(indices):
    with pytest.raises((TypeError, IndexError)):
        ArrayDataset(np.arange(3)).__getitems__(indices)


@pytest.mark.parametrize("index", [np.int8(1), np.uint64(1), np.array(1)])
def test_any_kind_of_int_is_an_index(index):
    assert ArrayDataset(np.arange(3))[index] == (1,)


def test_no_rows_are_a_dataset_of_length_zero():
    dataset = ArrayDataset(np.empty((0, 3)), np.empty(0, np.int64))
    assert len(dataset) == 0
    x, y = dataset.take(np.empty(0, np.int64), np.empty)
    assert x.shape == (0, 3)
    assert y.shape == (0,)
    assert dataset.__getitems__([]) == []
    with pytest.raises(IndexError, match="it is empty"):
        dataset[0]
    with pytest.raises(IndexError):
        dataset.take(np.array([0]), np.empty)


def test_unequal_lengths_are_refused_with_their_numbers():
    with pytest.raises(OptionError, match="x has 3, y has 4"):
        ArrayDataset(np.zeros(3), np.zeros(4))
    with pytest.raises(OptionError, match=r"\['a'\] has 3, \['b'\] has 4"):
        ArrayDataset({"a": np.zeros(3), "b": np.zeros(4)})


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (([1, 2, 3],), TypeError, "np.asarray"),
        ((np.zeros(3), [1, 2, 3]), TypeError, "y must be an array, not list"),
        ((5,), TypeError, "not int"),
        ((np.array(5),), OptionError, "axis 0"),
        (({},), OptionError, "empty dict"),
        (({1: np.zeros(3)},), TypeError, "names of arrays must be str"),
        (({"a": np.zeros(3)}, np.zeros(3)), TypeError, "beside a dict"),
        ((np.ma.array([1, 2], mask=[0, 1]),), TypeError, "masked"),
    ],
)
def test_mistakes_are_refused_when_it_is_built(arguments, error, match):
    with pytest.raises(error, match=match):
        ArrayDataset(*arguments)


def test_it_pickles_and_gathers_as_before():
    dataset = ArrayDataset({"x": ARRAYS["unaligned"], "y": ARRAYS["big-endian int16"]})
    again = pickle.loads(pickle.dumps(dataset))
    assert_same(again.take(PLACES, np.empty), dataset.take(PLACES, np.empty))
    assert again.row_names == ("x", "y")


def test_iterating_ends_with_the_last_row():
    assert [int(value) for (value,) in ArrayDataset(np.arange(3))] == [0, 1, 2]


def test_its_repr_and_kind_tell_what_it_holds():
    dataset = ArrayDataset(np.zeros((3, 2)), np.zeros(3, np.int64))
    assert repr(dataset) == "ArrayDataset(x: float64 (3, 2), y: int64 (3,))"
    assert dataset.kind() == "feedline.ArrayDataset"


def test_a_memory_map_is_taken_as_it_is(tmp_path):
    np.arange(12.0).tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", np.float64, "r", shape=(4, 3))
    dataset = ArrayDataset(mapped)
    assert np.shares_memory(dataset.arrays[0], mapped)
    (x,) = dataset.take(PLACES, np.empty)
    assert x[:, 0].tolist() == [9, 0, 9, 9, 6]


def test_a_tensor_is_taken_without_a_copy():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(3, 2)
    dataset = ArrayDataset(tensor)
    tensor[1] = 9
    assert dataset[1][0].tolist() == [9, 9]
