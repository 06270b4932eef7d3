"""What a transform is called with, and what it may know of its item."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from feedline import DataLoader, ItemContext, Transform
from feedline.keys import item_generator
from feedline.transforms.protocol import check_transform, wants_context


class Callable:
    def __call__(self, item):
        return item

    def method(self, item, context):
        return item


class TakesNoContext:
    takes_context = False

    def __call__(self, item, context):
        return item


class TakesContext:
    takes_context = True

    def __call__(self, item, context=None):
        return context.index


CALLABLES = [
    (lambda item: item, False),
    (lambda item, context: item, True),
    (lambda item, other=3: item, False),
    (lambda *items: items, False),
    (lambda item, *rest: item, False),
    (lambda item, context, *rest: item, True),
    (lambda item, *, flag=False: item, False),
    (lambda **rest: rest, None),
    (lambda a, b, c: a, None),
    (lambda item, *, flag: item, None),
    (lambda: 3, None),
    (Callable(), False),
    (Callable().method, True),
    (functools.partial(lambda item, scale: item, scale=2), False),
    (functools.partial(lambda scale, item, context: item, 2), True),
    (TakesContext(), True),
    (TakesNoContext(), False),
    (str, False),
    (int, False),
    (dict, False),
    (np.asarray, False),
    (np.sqrt, False),
    (len, False),
    (operator.itemgetter(0), False),
    (operator.neg, False),
]


@pytest.mark.parametrize(("transform", "expected"), CALLABLES, ids=lambda value: repr(value)[:40])
def test_the_signature_decides_how_it_is_called(transform, expected) -> None:
    if expected is None:
        with pytest.raises(
            TypeError, match=r"one required positional argument \(item\) or two \(item, context\)"
        ):
            wants_context(transform)
    else:
        assert wants_context(transform) is expected


def test_a_loader_calls_it_so() -> None:
    assert [batch.tolist() for batch in DataLoader([-1, -2], 2, transform=operator.neg)] == [[1, 2]]
    assert next(iter(DataLoader(["a", "b"], 2, sampler=[1, 0], transform=TakesContext()))).tolist() == [1, 0]
    assert next(iter(DataLoader([4.0, 9.0], 2, transform=np.sqrt))).tolist() == [2.0, 3.0]


def test_what_is_not_callable_is_refused() -> None:
    check_transform(len)
    for value, message in (
        (3, "a transform must be callable, not int 3"),
        (Transform, "Transform is a class"),
    ):
        with pytest.raises(TypeError, match=message):
            check_transform(value)
    # A class that is called like a function is one.
    check_transform(str)


def test_a_base_without_a_call_says_so() -> None:
    class Nothing(Transform):
        pass

    with pytest.raises(TypeError, match="Nothing defines no __call__"):
        Nothing()(1, ItemContext(0, 0, 0))


def test_a_context_tells_index_epoch_and_seed() -> None:
    seen = []

    def note(item, context):
        seen.append((context.index, context.epoch, context.seed, context.place))
        return item

    loader = DataLoader(list("ab"), 2, seed=9, transform=note, sampler=[1, 0])
    list(loader)
    list(loader)
    assert seen == [(1, 0, 9, 0), (0, 0, 9, 0), (1, 1, 9, 0), (0, 1, 9, 0)]
    assert repr(ItemContext("k", 1, 2)) == "ItemContext(index='k', epoch=1, seed=2, place=0)"


def test_the_generator_depends_on_seed_epoch_index_and_place() -> None:
    def first(*arguments, place=0):
        context = ItemContext(*arguments)
        context.place = place
        return context.rng.integers(1 << 60)

    draws = {
        first(index, epoch, seed, place=place)
        for index in (0, 1)
        for epoch in (0, 1)
        for seed in (0, 1)
        for place in (0, 1)
    }
    assert len(draws) == 16
    assert first("a", 1, 2) == item_generator(2, 1, "a", 0).integers(1 << 60)


def test_a_generator_of_a_step_is_made_once() -> None:
    context = ItemContext(0, 0, 0)
    one = context.rng
    assert context.rng is one
    context.place = 1
    other = context.rng
    assert other is not one
    context.place = 0
    assert context.rng is one


@pytest.mark.parametrize("drawn", [0, 1, 4, 7, 8, 9, 20])
def test_single_numbers_are_those_of_the_generator_also_by_turns(drawn) -> None:
    expected = ItemContext("x", 3, 7).rng.random(30).tolist()
    context = ItemContext("x", 3, 7)
    numbers = [context.uniform() for _ in range(drawn)]
    numbers.append(context.rng.random())
    numbers += [context.uniform(), *context.rng.random(3).tolist(), context.uniform()]
    assert numbers == expected[: drawn + 6]


def test_single_numbers_of_places_are_streams_of_their_own() -> None:
    context = ItemContext(5, 0, 0)
    drawn: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for place in (0, 1, 0, 2, 1, 0):
        context.place = place
        drawn[place].append(context.uniform())
    for place, numbers in drawn.items():
        assert numbers == item_generator(0, 0, 5, place).random(len(numbers)).tolist()


def test_a_context_with_a_generator_of_its_own_draws_from_that() -> None:
    class Own(ItemContext):
        @property
        def rng(self):
            return np.random.default_rng(1)

    assert Own(0, 0, 0).uniform() == np.random.default_rng(1).random()


class Rows:
    def row(self, position, shape, dtype):
        return position, shape, dtype


def test_memory_comes_from_the_batch_where_there_is_one() -> None:
    assert ItemContext(0, 0, 0, Rows(), 4).allocate((2, 3), "f4") == (4, (2, 3), np.dtype("float32"))
    alone = ItemContext(0, 0, 0).allocate((2, 3), np.uint8)
    assert (alone.shape, alone.dtype, alone.flags.c_contiguous, alone.flags.writeable) == (
        (2, 3),
        np.uint8,
        True,
        True,
    )
