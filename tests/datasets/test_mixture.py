"""Weighted mixtures: shares, lengths, and positions that are computed."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.datasets.interleave import MAX_POSITIONS, Interleave
from feedline.datasets.mixture import MixtureDataset
from feedline.errors import OptionError


class Endless:
    """Very many items; item `i` is (name, i)."""

    def __init__(self, name: str, length: int = 10**12) -> None:
        self.name, self.length = name, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.name, index


weights_of = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=8)


@given(weights_of)
def test_every_part_has_its_share_of_every_beginning(weights):
    n, k = 600, len(weights)
    parts, items = Interleave(weights).locate_many(np.arange(n))
    counts = np.cumsum(parts[:, None] == np.arange(k), axis=0)
    due = np.arange(1, n + 1)[:, None] * (np.array(weights) / math.fsum(weights))
    bound = 0.5 if k == 2 else 1 if k == 3 else 2
    assert np.abs(counts - due).max() <= bound + 1e-6
    for part in range(k):
        assert items[parts == part].tolist() == list(range(counts[-1, part]))


@given(weights_of, st.lists(st.integers(0, MAX_POSITIONS - 1), max_size=20))
def test_one_position_and_many_agree_anywhere(weights, positions):
    interleave = Interleave(weights)
    many = interleave.locate_many(np.array(positions, np.int64))
    assert list(zip(*(part.tolist() for part in many))) == [
        interleave.locate(position) for position in positions
    ]


@given(weights_of, st.integers(0, MAX_POSITIONS - 1))
def test_counts_tell_what_lies_before_a_position(weights, position):
    interleave = Interleave(weights)
    counts = interleave.counts(position)
    part, item = interleave.locate(position)
    assert sum(counts) == position
    assert counts[part] == item


def test_far_positions_have_their_exact_share_in_no_memory():
    mixture = MixtureDataset(
        {"a": Endless("a"), "b": Endless("b"), "c": Endless("c")}, [0.7, 0.2, 0.1], length=10**10
    )
    tracemalloc.start()
    try:
        name, index = mixture[10**10 - 1]
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    share = {"a": 0.7, "b": 0.2, "c": 0.1}[name]
    assert abs(index - share * 10**10) < 2
    assert mixture[-1] == (name, index)


def test_the_order_is_pinned():
    mixture = MixtureDataset({"a": Endless("a"), "b": Endless("b"), "c": Endless("c")}, [5, 3, 2])
    assert "".join(mixture[place][0] for place in range(20)) == PINNED


PINNED = "abacabacab" * 2


def test_equal_weights_take_turns():
    mixture = MixtureDataset({name: Endless(name) for name in "abcd"}, [1, 1, 1, 1])
    for start in range(0, 40, 4):
        assert {mixture[start + place][0] for place in range(4)} == set("abcd")


def test_weights_come_by_name_or_in_order_and_only_their_ratios_matter():
    parts = {"a": Endless("a"), "b": Endless("b")}
    one = MixtureDataset(parts, {"b": 1, "a": 3})
    two = MixtureDataset(parts, np.array([0.75, 0.25]))
    assert one.weights == two.weights == (0.75, 0.25)
    assert [one[place] for place in range(30)] == [two[place] for place in range(30)]


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 30)), min_size=1, max_size=5))
def test_it_is_as_long_as_until_the_first_part_runs_out(parts):
    mixture = MixtureDataset(
        {str(number): Endless(str(number), length) for number, (_, length) in enumerate(parts)},
        [weight for weight, _ in parts],
    )
    items = list(mixture)
    assert len(set(items)) == len(items) == len(mixture)
    counts = mixture._interleave.counts(len(mixture) + 1)
    assert any(count > length for count, (_, length) in zip(counts, parts))


def test_with_a_length_parts_start_anew():
    mixture = MixtureDataset({"a": Endless("a", 2), "b": Endless("b", 3)}, [1, 1], length=10)
    assert [item for item in mixture if item[0] == "a"] == [("a", place % 2) for place in range(5)]
    assert [item for item in mixture if item[0] == "b"] == [("b", place % 3) for place in range(5)]
    assert len(MixtureDataset({"a": Endless("a", 2)}, [1], length=0)) == 0


PARTS = {"a": [1], "b": [2]}


@pytest.mark.parametrize(
    ("parts", "weights", "options", "error", "match"),
    [
        ({}, [], {}, OptionError, "at least one"),
        ([[1]], [1], {}, TypeError, "dict of datasets"),
        (PARTS, [1], {}, OptionError, "2 parts need as many weights, not 1"),
        (PARTS, {"a": 1}, {}, OptionError, r"\['b'\] missing"),
        (PARTS, {"a": 1, "b": 1, "c": 1}, {}, OptionError, r"\['c'\] unknown"),
        (PARTS, [1, 0], {}, OptionError, "weight of 'b' must be positive"),
        (PARTS, [1, -1], {}, OptionError, "positive"),
        (PARTS, [1, math.nan], {}, OptionError, "finite"),
        (PARTS, [1, math.inf], {}, OptionError, "finite"),
        (PARTS, [1, "1"], {}, TypeError, "number"),
        (PARTS, [1, True], {}, TypeError, "number"),
        (PARTS, "ab", {}, TypeError, "numbers"),
        (PARTS, None, {}, TypeError, "numbers"),
        ({"a": [1], "b": []}, [1, 1], {}, OptionError, "part 'b' is empty"),
        (PARTS, [1, 1], {"length": -1}, OptionError, "length"),
        (PARTS, [1, 1], {"length": 2**36}, OptionError, "2\\*\\*36"),
        (PARTS, [1, 1], {"length": 2.0}, TypeError, "length"),
        (PARTS, [1, 1], {"length": True}, TypeError, "length"),
    ],
)
def test_mistakes_are_refused_when_it_is_built(parts, weights, options, error, match):
    with pytest.raises(error, match=match):
        MixtureDataset(parts, weights, **options)


def test_it_tells_which_part_an_item_comes_from():
    mixture = MixtureDataset({"a": Endless("a"), "b": Endless("b")}, [1, 1])
    assert mixture.locate(3) == (1, 1)
    assert mixture.part_names == ("a", "b")
