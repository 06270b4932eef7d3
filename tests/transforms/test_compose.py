"""Chains: order, flattening, places for randomness, and what steps may carry out together."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from feedline import Compose, DataLoader, Identity, ItemContext, OptionError, Transform
from feedline.keys import item_generator


def add_one(item):
    return item + 1


def tenfold(item):
    return item * 10


def draw(item, context):
    return [*item, int(context.rng.integers(1 << 40))]


class Shout(Transform):
    """A step with `then`."""

    def __call__(self, item, context=None):
        return f"{item}!"


class Pair(Transform):
    """Carries the step behind it out as well, if that is a pair, too."""

    def __init__(self, name) -> None:
        self.name = name

    def __call__(self, item):
        return [*item, self.name]

    def plan(self, steps, place):
        following = steps[place + 1 : place + 2]
        if not following or not isinstance(following[0], Pair):
            return None
        return (lambda item, context: [*item, f"{self.name}+{following[0].name}"]), 2


class Typed(Transform):
    """Tells what it makes of what it gets, and refuses what it can't take."""

    def __init__(self, takes, makes) -> None:
        self.takes, self.makes = takes, makes

    def __call__(self, item):
        return self.makes

    def follow(self, state):
        if state is not None and state != self.takes:
            raise OptionError(f"Typed takes {self.takes}, the step before it makes {state}")
        return self.makes


def test_steps_run_one_after_the_other() -> None:
    assert Compose([add_one, tenfold])(2) == 30
    assert Compose([tenfold, add_one])(2) == 21
    assert Compose([])(2) == 2
    assert Compose(iter([add_one]))(2) == 3
    assert Compose([add_one, Compose([tenfold, Compose([add_one])])]).steps == (add_one, tenfold, add_one)


def test_then_makes_chains() -> None:
    chain = Shout().then(Shout()).then(len)
    assert chain("a") == 3
    assert len(chain.steps) == 3
    assert Identity().then(add_one)(1) == 2


def test_places_for_randomness_count_steps_as_written_nested_ones_flattened() -> None:
    def run(chain):
        return chain([], ItemContext(5, 2, 7))

    flat, nested = Compose([draw, draw, list, draw]), Compose([draw, Compose([draw, list]), draw])
    expected = [int(item_generator(7, 2, 5, place).integers(1 << 40)) for place in (0, 1, 3)]
    assert run(flat) == run(nested) == expected
    assert len(set(expected)) == 3


def test_one_generator_goes_on_within_a_step() -> None:
    def twice(item, context):
        return context.rng.random() != context.rng.random() and context.rng is context.rng

    assert Compose([twice])(0, ItemContext(0, 0, 0)) is True


def test_by_hand_steps_get_the_context_of_the_first_item() -> None:
    assert Compose([draw])([]) == Compose([draw])([], ItemContext(0, 0, 0))


def test_steps_that_belong_together_are_carried_out_as_one() -> None:
    steps = [Pair("a"), Pair("b"), list, Pair("c")]
    assert Compose(steps)([]) == ["a+b", "c"]
    assert Compose(steps, plan=False)([]) == ["a", "b", "c"]
    assert Compose(steps).explain().splitlines()[0].startswith("0: ")
    assert len(Compose(steps).explain().splitlines()) == 3
    assert len(Compose(steps, plan=False).explain().splitlines()) == 4
    # Places stay those of the steps as written.
    after = Compose([Pair("a"), Pair("b"), draw])([], ItemContext(1, 0, 0))[-1]
    assert after == int(item_generator(0, 0, 1, 2).integers(1 << 40))


def test_a_wrong_order_is_an_error_when_the_chain_is_built() -> None:
    Compose([Typed("bytes", "image"), Typed("image", "array")])
    assert Compose([Typed("bytes", "image")]).result == "image"
    with pytest.raises(OptionError, match="Typed takes image, the step before it makes array"):
        Compose([Typed("image", "array"), Typed("image", "array")])
    # Behind a step that says nothing, nothing is known.
    Compose([Typed("image", "array"), add_one, Typed("image", "array")])


def test_a_step_may_be_bound_to_what_it_gets() -> None:
    class Bound(Transform):
        def __init__(self, known=None) -> None:
            self.known = known

        def __call__(self, item):
            return self.known

        def bind(self, state):
            return Bound(state)

    assert Compose([Typed("x", "a layout"), Bound()])(0) == "a layout"
    assert Compose([add_one, Bound()])(0) is None


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("abc", "Compose takes a list of steps, not 'abc'"),
        (3, "Compose takes a list of steps, not 3"),
        (add_one, "Compose takes a list of steps"),
        ([3], "a transform must be callable, not int 3"),
        ([None], "a transform must be callable, not NoneType None"),
        ([Shout], r"Shout is a class; a step is an instance: Shout\(\.\.\.\)"),
        ([lambda a, b, c: a], r"one required positional argument \(item\) or two"),
    ],
)
def test_what_is_no_step_is_refused(steps, message) -> None:
    with pytest.raises(TypeError, match=message):
        Compose(steps)


def test_chains_pickle_and_plan_anew() -> None:
    chain = Compose([Pair("a"), Pair("b"), Compose([list])])
    again = pickle.loads(pickle.dumps(chain))
    assert again([]) == chain([]) == ["a+b"]
    assert pickle.loads(pickle.dumps(Compose([add_one], plan=False))).plan is False
    assert pickle.loads(pickle.dumps(Identity())) == Identity()


def test_chains_show_their_steps() -> None:
    assert repr(Compose([Identity(), Compose([Identity()])])) == "Compose([Identity(), Identity()])"
    assert repr(Compose([Identity()], plan=False)) == "Compose([Identity()], plan=False)"


def test_identity_gives_the_item_itself_and_costs_a_loader_nothing() -> None:
    item = object()
    assert Identity()(item) is item
    assert Identity() == Identity()
    assert len({Identity(), Identity()}) == 1
    loader = DataLoader([1, 2], transform=Identity())
    assert loader._batches.items.transform is None


def test_an_exception_leaves_the_place_of_its_step_in_the_context() -> None:
    def fails(item):
        raise ValueError

    context = ItemContext(0, 0, 0)
    with pytest.raises(ValueError):
        Compose([add_one, Compose([add_one, fails])])(1, context)
    assert context.place == 2


def test_results_of_a_chain_may_lie_in_the_batch() -> None:
    def fill(item, context):
        row = context.allocate((3,), np.int64)
        row[:] = item
        return row

    for workers in (0, 2):
        with DataLoader(range(7), 3, transform=Compose([add_one, fill]), num_workers=workers) as loader:
            assert [batch[:, 2].tolist() for batch in loader] == [[1, 2, 3], [4, 5, 6], [7]]
