"""`padded_collate`: what is padded, what is not, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.collate.padded import padded_collate
from feedline.errors import CollateError, OptionError


class Sentence(NamedTuple):
    tokens: Any
    label: Any


def assert_array(array: Any, dtype: Any, values: Any) -> None:
    assert type(array) is np.ndarray
    assert array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    np.testing.assert_array_equal(array, np.array(values, dtype))


@pytest.mark.parametrize(
    ("items", "dtype", "values", "lengths"),
    [
        ([[1, 2, 3], [4]], np.int64, [[1, 2, 3], [4, 0, 0]], [3, 1]),
        ([[1], []], np.int64, [[1], [0]], [1, 0]),
        ([[], []], np.int64, np.zeros((2, 0)), [0, 0]),
        ([[1.5], [2, 3]], np.float64, [[1.5, 0], [2, 3]], [1, 2]),
        ([[True], [False, True]], bool, [[True, False], [False, True]], [1, 2]),
        ([[2**63], [1, 2]], np.uint64, [[2**63, 0], [1, 2]], [1, 2]),
        ([[np.int8(1)], [2, 3]], np.int8, [[1, 0], [2, 3]], [1, 2]),
        ([np.ones(2, "f4"), np.ones(3, "f4")], "f4", [[1, 1, 0], [1, 1, 1]], [2, 3]),
        ([np.ones(2, "f4"), np.ones(1, "f8")], "f8", [[1, 1], [1, 0]], [2, 1]),
        ([np.ones(2, ">i2"), np.ones(1, ">i2")], "i2", [[1, 1], [1, 0]], [2, 1]),
        ([np.ones((1, 2)), np.ones((2, 2))], "f8", [[[1, 1], [0, 0]], [[1, 1], [1, 1]]], [1, 2]),
        ([np.ones((0, 2)), np.ones((0, 2))], "f8", np.zeros((2, 0, 2)), [0, 0]),
        ([np.ones((1, 0)), np.ones((3, 0))], "f8", np.zeros((2, 3, 0)), [1, 3]),
        ([np.arange(6)[::2], np.arange(6)[::-3]], "i8", [[0, 2, 4], [5, 2, 0]], [3, 2]),
    ],
)
def test_shorter_items_are_padded_at_their_end(items, dtype, values, lengths):
    got, got_lengths = padded_collate()(items)
    assert_array(got, dtype, values)
    assert_array(got_lengths, np.int64, lengths)


@pytest.mark.parametrize(("multiple_of", "expected"), [(1, 5), (4, 8), (5, 5), (np.int32(8), 8)])
def test_lengths_are_rounded_up(multiple_of, expected):
    values, lengths = padded_collate(multiple_of=multiple_of)([np.ones(5), np.ones(2)])
    assert values.shape == (2, expected)
    assert lengths.tolist() == [5, 2]
    assert values.sum() == 7


def test_without_lengths_the_values_come_alone():
    assert_array(padded_collate(pad_value=-1, with_lengths=False)([[1], [2, 3]]), np.int64, [[1, -1], [2, 3]])


def test_nested_items_keep_their_structure_in_values_and_in_lengths():
    items = [
        {"s": Sentence([1, 2], 7), "words": ["a", "b"], "id": "x", "box": np.ones((1, 4))},
        {"s": Sentence([3], 8), "words": ["c"], "id": "y", "box": np.ones((2, 4))},
    ]
    values, lengths = padded_collate()(items)
    assert type(values["s"]) is type(lengths["s"]) is Sentence
    assert_array(values["s"].tokens, np.int64, [[1, 2], [3, 0]])
    assert_array(values["s"].label, np.int64, [7, 8])
    assert values["words"] == [["a", "b"], ["c"]]
    assert values["id"] == ["x", "y"]
    assert values["box"].shape == (2, 2, 4)
    assert_array(lengths["s"].tokens, np.int64, [2, 1])
    assert_array(lengths["box"], np.int64, [1, 2])
    assert lengths["s"].label is lengths["words"] is lengths["id"] is None


def test_lists_of_other_things_are_joined_by_position():
    values, lengths = padded_collate()([[[1], np.ones(2)], [[2, 3], np.ones(1)]])
    assert_array(values[0], np.int64, [[1, 0], [2, 3]])
    assert_array(lengths[1], np.int64, [2, 1])


@pytest.mark.parametrize(
    ("pad_value", "items", "padding"),
    [
        (-1, [np.ones(1, "i1"), np.ones(2, "i1")], -1),
        (0.1, [np.ones(1, "f4"), np.ones(2, "f4")], np.float32(0.1)),
        (float("inf"), [np.ones(1, "f2"), np.ones(2, "f2")], np.inf),
        (2.0, [np.ones(1, "i4"), np.ones(2, "i4")], 2),
        (2**64 - 1, [np.ones(1, "u8"), np.ones(2, "u8")], 2**64 - 1),
        (True, [np.zeros(1, "?"), np.zeros(2, "?")], True),
        (1j, [np.ones(1, "c8"), np.ones(2, "c8")], 1j),
        (
            np.datetime64("2024-01-02"),
            [np.zeros(1, "M8[s]"), np.zeros(2, "M8[s]")],
            np.datetime64("2024-01-02", "s"),
        ),
        ("x", [np.array(["ab"]), np.array(["c", "d"])], "x"),
        (b"x", [np.array([b"ab"]), np.array([b"c", b"d"])], b"x"),
        (0, [np.ones(1, [("a", "i4")]), np.ones(2, [("a", "i4")])], np.zeros(1, [("a", "i4")])[0]),
    ],
)
def test_the_pad_value_fills_the_rest(pad_value, items, padding):
    values, _ = padded_collate(pad_value)(items)
    assert values.dtype == items[0].dtype
    assert values[0, 1] == padding
    assert values[0, 0] == items[0][0]


@pytest.mark.parametrize("pad_value", [float("nan"), np.float32("nan")])
def test_nan_pads_floats(pad_value):
    values, _ = padded_collate(pad_value)([np.ones(1), np.ones(2)])
    assert np.isnan(values[0, 1])


def test_not_a_time_pads_dates():
    values, _ = padded_collate(np.datetime64("NaT", "s"))([np.zeros(1, "M8[s]"), np.zeros(2, "M8[s]")])
    assert np.isnat(values[0, 1])


@pytest.mark.parametrize(
    ("pad_value", "items"),
    [
        (-1, [np.ones(1, "u1")]),
        (256, [np.ones(1, "u1")]),
        (0.5, [np.ones(1, "i8")]),
        (2**64, [np.ones(1, "u8")]),
        (float("nan"), [np.ones(1, "i8")]),
        (float("nan"), [[1, 2]]),
        (2, [np.ones(1, "?")]),
        (1e6, [np.ones(1, "f2")]),
        (10**400, [np.ones(1, "f8")]),
        (1j, [np.ones(1, "f8")]),
        (0, [np.zeros(1, "M8[s]")]),
        (np.datetime64("2024-01-01T00:00:01"), [np.zeros(1, "M8[D]")]),
        (np.timedelta64(1, "s"), [np.zeros(1, "M8[s]")]),
        (0, [np.array(["a"])]),
        ("abc", [np.array(["a"])]),
        (b"a", [np.array(["a"])]),
        ("a", [np.ones(1)]),
        (1, [np.ones(1, [("a", "i4")])]),
    ],
)
def test_a_pad_value_that_the_dtype_does_not_hold_is_refused_by_name(pad_value, items):
    with pytest.raises(CollateError, match=r"\['x'\]: pad_value .* is not representable in") as caught:
        padded_collate(pad_value)([{"x": item} for item in items])
    assert caught.value.path == "['x']"


@pytest.mark.parametrize(
    ("items", "path", "positions"),
    [
        ([np.ones((1, 2)), np.ones((1, 3))], "", (1,)),
        ([np.ones(2), np.ones((2, 1))], "", (1,)),
        ([np.ones(2), np.float64(1)], "", (1,)),
        ([np.ones(2, "i4"), np.ones(2, "f4")], "", (1,)),
        ([np.ones(2), [1.0]], "", (1,)),
        ([{"x": [1]}, {"x": None}], "['x']", (1,)),
        ([[1], [2, None]], "", (0, 1)),
        ([[1, 2], [True], [3]], "", (1,)),
        ([[0.5], [1], [2**53 + 1]], "", (2,)),
        ([(1, 2), (1,)], "", (1,)),
        ([np.array([None]), np.array([1])], "", (0,)),
        ([np.ma.masked_array([1, 2], [True, False])] * 2, "", (0, 1)),
    ],
)
def test_what_padding_does_not_mend_is_refused(items, path, positions):
    with pytest.raises(CollateError) as caught:
        padded_collate()(items)
    assert caught.value.path.startswith(path)
    if path or not isinstance(items[0], list) or None not in items[1]:
        assert caught.value.positions == positions


def test_an_int_that_fits_nowhere_names_its_item():
    with pytest.raises(OverflowError) as caught:
        padded_collate()([{"x": [1, 2]}, {"x": [3, 2**64]}])
    assert (caught.value.path, caught.value.positions) == ("['x']", (1,))


def test_a_batch_of_zero_items_is_an_error():
    with pytest.raises(CollateError, match="zero items"):
        padded_collate()([])


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"multiple_of": 0}, OptionError),
        ({"multiple_of": -4}, OptionError),
        ({"multiple_of": 2.0}, TypeError),
        ({"multiple_of": True}, TypeError),
        ({"multiple_of": None}, TypeError),
        ({"pad_value": None}, TypeError),
        ({"pad_value": [0]}, TypeError),
        ({"with_lengths": "yes"}, TypeError),
    ],
)
def test_bad_options_are_refused_by_name_when_built(options, kind):
    with pytest.raises(kind, match=next(iter(options))):
        padded_collate(**options)


def test_the_function_pickles_small_and_shows_its_options():
    collate = pickle.loads(pickle.dumps(padded_collate(-100, multiple_of=8, with_lengths=False)))
    assert repr(collate) == "padded_collate(pad_value=-100, multiple_of=8, with_lengths=False)"
    assert collate([[1]]).tolist() == [[1] + [-100] * 7]
    assert len(pickle.dumps(collate)) < 200


def test_large_batches_take_their_memory_from_the_pool():
    pool = BufferPool()
    batch = padded_collate()([np.ones(100_000, "f4"), np.ones(5, "f4")], BatchMemory(pool, 2))
    assert batch[0].sum() == 100_005
    del batch
    assert pool.idle_bytes > 0


def test_items_stay_as_they_are():
    items = [np.arange(3), np.arange(2)]
    for item in items:
        item.flags.writeable = False
    values, _ = padded_collate()(items)
    values[:] = 9
    assert [item.tolist() for item in items] == [[0, 1, 2], [0, 1]]
    one, _ = padded_collate()(items[:1])
    assert not np.shares_memory(one, items[0])


def test_tensors_are_padded_to_tensors():
    torch = pytest.importorskip("torch")
    values, lengths = padded_collate(pad_value=-1, multiple_of=4)([torch.ones(2, 3), torch.zeros(1, 3)])
    assert isinstance(values, torch.Tensor)
    assert values.shape == (2, 4, 3)
    assert values[1, 1:].eq(-1).all()
    assert lengths.tolist() == [2, 1]


def test_jax_arrays_are_padded_to_jax_arrays():
    jax = pytest.importorskip("jax")
    values, lengths = padded_collate(pad_value=-1)([jax.numpy.ones(2), jax.numpy.zeros(1)])
    assert isinstance(values, jax.Array)
    assert values.tolist() == [[1, 1], [0, -1]]
    assert lengths.tolist() == [2, 1]


@pytest.mark.parametrize("pad_value", [0.5, 300])
def test_a_pad_value_that_a_tensor_does_not_hold_is_refused(pad_value):
    torch = pytest.importorskip("torch")
    with pytest.raises(CollateError, match=r"pad_value .* is not representable in"):
        padded_collate(pad_value)([torch.ones(2, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8)])


def test_tensors_of_several_kinds_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(CollateError, match="dtypes differ"):
        padded_collate()([torch.ones(2), torch.ones(1, dtype=torch.int64)])
