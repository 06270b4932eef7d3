"""Which indices make which batch: plans are pure, and count what a state needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import BatchSampler, RandomSampler
from feedline.loader.plan import BatchOrderPlan, IterablePlan, OrderPlan
from feedline.loader.stream_plan import DeferredPlan
from feedline.loader.streams import StreamSource
from loading import CountingStream, SeekableStream

sizes = st.integers(1, 9)


def all_tasks(plan, first=0):
    tasks, number = [], first
    while (task := plan.task(number)) is not None:
        tasks.append(task)
        plan.forget(number)
        number += 1
    return tasks


def chunks(values, size, drop_last):
    cut = [values[start : start + size] for start in range(0, len(values), size)]
    return [chunk for chunk in cut if len(chunk) == size or not drop_last]


@given(st.integers(0, 40), sizes, st.booleans(), st.integers(0, 5))
def test_every_kind_of_plan_cuts_alike(length, size, drop_last, first) -> None:
    order = np.random.default_rng(length).permutation(length)
    expected = chunks(order.tolist(), size, drop_last)
    plans = [
        OrderPlan(order, 3, size, drop_last=drop_last, first=first, trusted=trusted)
        for trusted in (True, False)
    ]
    plans.append(IterablePlan(order, 3, size, drop_last=drop_last, first=first))
    for plan in plans:
        tasks = all_tasks(plan, first)
        assert [list(task.indices) for task in tasks] == expected
        assert [task.number for task in tasks] == list(range(first, first + len(expected)))
        assert all(task.epoch == 3 for task in tasks)
        assert plan.end() == first + len(expected)
        assert plan.items_before(first) == 0
        for number in range(1, len(expected)):
            assert plan.items_before(first + number) == number * size


@given(st.integers(0, 40), sizes, st.integers(1, 12))
def test_groups_are_the_same_batches(length, size, count) -> None:
    plan = OrderPlan(np.arange(length), 0, size, drop_last=False, trusted=True)
    assert plan.can_group
    found, number = [], 0
    while (task := plan.task(number, count)) is not None:
        assert 1 <= task.count <= count
        found += [task.single(offset).indices.tolist() for offset in range(task.count)]
        number += task.count
    assert found == chunks(list(range(length)), size, False)


@given(st.integers(0, 30), sizes, st.integers(0, 35))
def test_a_plan_of_an_iterable_goes_on_behind_what_was_received(length, size, skip) -> None:
    plan = IterablePlan(iter(range(length)), 0, size, skip=skip, first=7)
    left = list(range(length))[skip:]
    assert [list(task.indices) for task in all_tasks(plan, 7)] == chunks(left, size, False)
    assert plan.items_before(plan.end()) == len(left)


def test_an_iterable_is_walked_no_further_than_asked_for() -> None:
    taken = []

    def walk():
        for number in range(100):
            taken.append(number)
            yield number

    plan = IterablePlan(walk(), 0, 3)
    assert taken == []
    assert plan.end() is None
    plan.task(1)
    assert taken == [0, 1, 2, 3, 4, 5]
    assert plan.task(0).indices == [0, 1, 2]
    plan.forget(0)
    assert plan.task(0) is None


def test_positions_around_an_error_of_an_iterable_are_those_of_its_items() -> None:
    def walk():
        yield from range(5)
        raise OSError("no more")

    plan = IterablePlan(walk(), 0, 3, skip=1)
    tasks = all_tasks(plan)
    assert [(list(task.indices), type(task.error)) for task in tasks] == [
        ([1, 2, 3], type(None)),
        ([4], type(None)),
        ([], OSError),
    ]
    assert [plan.items_before(number) for number in range(4)] == [0, 3, 4, 4]
    assert "the sampler failed at position 5, epoch 0" in tasks[2].error.__notes__[0]


def test_batches_of_mine_count_as_batches() -> None:
    plan = IterablePlan([[1, 2], [3]], 0, None, skip=1)
    assert [task.indices for task in all_tasks(plan)] == [[3]]
    assert plan.items_before(1) == 1
    order = BatchOrderPlan(BatchSampler(RandomSampler(1), 4).batches(10, 0), 2, first=1, skip=1)
    assert [len(task.indices) for task in all_tasks(order, 1)] == [4, 2]
    assert (order.end(), order.items_before(3), order.can_group) == (3, 2, False)


@pytest.mark.parametrize("stream", [CountingStream, SeekableStream])
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (0, 3), (2, 3)])
def test_a_plan_of_a_stream_has_its_items_and_forgets_places_it_has_passed(stream, rank, world_size) -> None:
    source = StreamSource(stream(20), 3, False, rank, world_size)
    plan = source.plan(4, 0, 0)
    mine = list(range(rank, 20, world_size))
    number = 0
    while (task := plan.task(number)) is not None:
        assert task.indices == mine[3 * number : 3 * number + 3]
        assert [int(item[0]) for item in task.items] == task.indices
        assert plan.items_before(number) == 3 * number
        plan.forget(number)
        plan.forget(number)
        assert plan.items_before(number) == 3 * number  # it is the position until the consumer moves on
        number += 1
        assert plan.items_before(number) >= 3 * number - 2
    assert plan.end() == number
    with pytest.raises(LookupError):
        plan.items_before(0)
    assert DeferredPlan(plan).task(number) is None
    assert DeferredPlan(plan).items_before(number) == plan.items_before(number)


def test_what_the_consumer_sees_of_a_stream_is_numbers_alone() -> None:
    plan = StreamSource(CountingStream(5), 3, False, 0, 1).plan(0, 0, 0)
    view = DeferredPlan(plan)
    assert (view.task(7).number, view.task(7).items, view.end()) == (7, None, None)
    # What was received before this run, and not read again yet, counts as full.
    assert view.items_before(4) == 12
    assert view.stream_state(4) is None
