"""Keys are frozen: what they are today they are in every version, on every platform."""

from __future__ import annotations

import enum
import random
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import OptionError
from feedline.keys import (
    MAX_SEED,
    UNIFORMS,
    BatchUniforms,
    check_epoch,
    check_seed,
    derive_key,
    encode_index,
    fresh_seed,
    item_generator,
    item_uniforms,
    shuffle_state,
)

GOLDEN_KEYS = {
    ("shuffle", 0, 0): "9938c91b7430eaab30d0e24d9b0b18d6",
    ("shuffle", 42, 1): "b73d33bf33d28725236ad419bbd3b4ec",
    ("shuffle", 43, 0): "1d0f41635634642c0773547e0a2719b6",
    ("feedline item", MAX_SEED, MAX_SEED): "a338e5d2a36e4a0cc722b7f18498d281",
}


@pytest.mark.parametrize("arguments", GOLDEN_KEYS)
def test_keys_are_frozen(arguments) -> None:
    assert derive_key(*arguments).hex() == GOLDEN_KEYS[arguments]


def test_raw_bits_of_an_item_are_frozen() -> None:
    words = item_generator(7, 3, "image.jpg", 2).bit_generator.random_raw(3).tolist()
    assert words == [1232978687949352142, 5267031833773281494, 6123696594492391641]
    assert shuffle_state("shuffle", 7, 3).randint(0, 2**31, 4).tolist() == [
        1150714020,
        2100906761,
        960494295,
        933857831,
    ]


@pytest.mark.parametrize("index", [0, 77, -1, 2**80, True, np.int64(5), "x", b"x", 0.5, None, (1, "a")])
def test_numbers_without_a_generator_are_those_of_the_generator(index) -> None:
    for seed, epoch, place in ((0, 0, 0), (7, 3, 2), (MAX_SEED, MAX_SEED, MAX_SEED)):
        numbers = item_uniforms(seed, epoch, index, place)
        assert numbers == item_generator(seed, epoch, index, place).random(UNIFORMS).tolist()


def test_numbers_of_a_batch_are_those_of_its_items() -> None:
    indices = [3, 1, "x", 3, np.int64(2)]
    batch = BatchUniforms(5, 6, indices)
    for place in (2, 0):
        for position, index in reversed(list(enumerate(indices))):
            expected = item_uniforms(5, 6, index, place)
            first = batch.take(place, position, index)
            assert first == expected
            first.clear()  # whoever has them may change them
            assert batch.take(place, position, index) == expected


def test_a_key_that_is_refused_is_its_own_items_error() -> None:
    class Nameless:
        pass

    batch = BatchUniforms(0, 0, [1, Nameless()])
    assert batch.take(0, 0, 1) == item_uniforms(0, 0, 1, 0)
    with pytest.raises(TypeError, match="its repr is only its address"):
        batch.take(0, 1, Nameless())


def test_threads_draw_numbers_at_the_same_time() -> None:
    expected = {index: item_uniforms(1, 2, index, 3) for index in range(50)}
    wrong = []

    def draw() -> None:
        for _ in range(20):
            wrong.extend(index for index in expected if item_uniforms(1, 2, index, 3) != expected[index])

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_no_two_kinds_of_arguments_share_a_key() -> None:
    keys = {
        derive_key(purpose, seed, epoch, *rest)
        for purpose in ("a", "b")
        for seed in (0, 1, 42, 43)
        for epoch in (0, 1, 2)
        for rest in ((), (b"",), (b"", b""), (b"ab", b"c"), (b"a", b"bc"), (b"abc",))
    }
    assert len(keys) == 2 * 4 * 3 * 6


class Color(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Place:
    row: int


class Nameless:
    pass


INDICES = [
    0,
    1,
    -1,
    10**30,
    "",
    "0",
    "a",
    b"a",
    "é",
    "\ud800",
    None,
    True,
    False,
    0.0,
    -0.0,
    1.5,
    float("inf"),
    (),
    (0,),
    (0, 1),
    ((0,), 1),
    (0, (1,)),
    ("a", "b"),
    ("ab",),
    ("a", b"b"),
    frozenset({1}),
    Color.RED,
    Place(1),
    Place(2),
    np.datetime64("2024-01-01"),
]


def test_different_indices_have_different_encodings() -> None:
    encodings = [encode_index(index) for index in INDICES]
    assert len(set(encodings)) == len(INDICES)


def test_equal_integers_have_one_encoding_whatever_their_type() -> None:
    kinds = (int, np.int8, np.uint64, np.int64)
    assert {encode_index(kind(5)) for kind in kinds} == {encode_index(5)}
    assert encode_index(np.str_("a")) == encode_index("a")
    assert encode_index(np.float64(1.5)) == encode_index(1.5)
    assert encode_index(np.True_) == encode_index(True)


@given(st.recursive(st.one_of(st.integers(), st.text(), st.binary()), lambda inner: st.tuples(inner, inner)))
def test_encodings_of_nested_keys_tell_them_apart(index) -> None:
    assert encode_index(index) == encode_index(index)
    assert encode_index((index,)) != encode_index(index)
    assert encode_index((index, 0)) != encode_index((index, 1))


def test_a_key_that_shows_only_its_address_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"can't seed a generator: its repr is only its address; give Nameless a __repr__"
    ):
        encode_index(Nameless())


@pytest.mark.parametrize("check", [check_seed, check_epoch])
def test_seeds_and_epochs_are_64_bits(check) -> None:
    for value in (0, MAX_SEED, np.uint64(MAX_SEED), np.int8(3)):
        assert check(value) == int(value)
        assert type(check(value)) is int
    for value in (-1, MAX_SEED + 1, 10**30):
        with pytest.raises(OptionError, match=f"must be between 0 and .*not {value}"):
            check(value)
    for value in (True, np.False_, 1.0, "1", None):
        with pytest.raises(TypeError, match="must be an int"):
            check(value)


def test_fresh_seeds_differ_and_fit() -> None:
    seeds = {fresh_seed() for _ in range(20)}
    assert len(seeds) == 20
    assert all(check_seed(seed) == seed for seed in seeds)


def test_generators_of_places_epochs_seeds_and_indices_are_unlike() -> None:
    draws = {
        item_generator(seed, epoch, index, place).integers(1 << 62)
        for seed in (0, 1)
        for epoch in (0, 1)
        for index in (0, 1, "0")
        for place in (0, 1)
    }
    assert len(draws) == 24


def test_no_global_state_is_touched() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()
    item_generator(0, 0, 0, 0).random()
    shuffle_state("shuffle", 0, 0).random()
    fresh_seed()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
