"""A job of another size goes on where all ranks stood: every item once, whatever the sizes and the tail."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline import (
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    LengthBucketSampler,
    RandomSampler,
)
from feedline.errors import StateError
from loading import CountingStream, SeekableStream, Squares


def job(length, world_size, batch_size=2, tail="exact", state=None, **options):
    """The loaders of all ranks."""
    loaders = [
        DataLoader(
            Squares(length),
            batch_size,
            sampler=DistributedSampler(RandomSampler(3), rank, world_size, tail=tail),
            **options,
        )
        for rank in range(world_size)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
    return loaders


def run_steps(loaders, steps):
    """Lock step: every rank takes a batch, those at their end none. Return the indices, and the iterators."""
    iterators = [loader.iter_with_indices() for loader in loaders]
    taken = []
    for _ in range(steps):
        for iterator in iterators:
            batch = next(iterator, None)
            if batch is not None:
                taken.extend(batch[0])
    return taken


@settings(max_examples=60)
@given(
    length=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    batch_size=st.integers(1, 5),
    steps=st.integers(1, 3),
    saving=st.integers(0, 5),
)
def test_every_item_comes_once_however_often_the_world_changes(
    length, sizes, batch_size, steps, saving
) -> None:
    state, taken = None, []
    for world_size in sizes:
        loaders = job(length, world_size, batch_size, state=state)
        if state is not None and state["epoch"] == 1:
            break
        taken += run_steps(loaders, steps)
        # Any rank may have saved it.
        state = loaders[saving % world_size].state_dict()
    if state["epoch"] == 0:
        last = job(length, 2, batch_size, state=state)
        taken += chain.from_iterable(i for loader in last for i, _ in loader.iter_with_indices())
    assert Counter(taken) == Counter(range(length))


@pytest.mark.parametrize("tail", ["pad", "drop", "exact", "mask"])
@pytest.mark.parametrize("length", [7, 8, 9, 20])
def test_all_ranks_say_the_same_in_lock_step(tail, length) -> None:
    loaders = job(length, 3, tail=tail)
    iterators = [iter(loader) for loader in loaders]
    longest = max(map(len, loaders))
    for _ in range(longest):
        states = []
        for loader, iterator in zip(loaders, iterators):
            next(iterator, None)
            states.append((loader.state_dict()["epoch"], loader.state_dict()["position"]))
        assert len(set(states)) == 1, states
    assert states[0] == (1, 0)


@pytest.mark.parametrize("tail", ["pad", "drop", "mask"])
def test_steps_stay_equal_after_the_world_has_changed(tail) -> None:
    loaders = job(23, 4, tail=tail)
    taken = run_steps(loaders, 1)
    resumed = job(23, 3, tail=tail, state=loaders[2].state_dict())
    runs = [list(loader.iter_with_indices()) for loader in resumed]
    assert len({len(run) for run in runs}) == 1
    rest = [index for run in runs for indices, _ in run for index in indices]
    if tail == "drop":
        assert len(rest) == 15
        assert not set(rest) & set(taken)
    else:
        assert set(rest) == set(range(23)) - set(taken) or len(rest) == 15


def test_masks_tell_the_padding_of_what_is_left() -> None:
    loaders = job(23, 4, tail="mask")
    taken = run_steps(loaders, 2)
    real = []
    for loader in job(23, 3, tail="mask", state=loaders[0].state_dict()):
        for indices, batch in loader.iter_with_indices():
            real += [index for index, is_real in zip(indices, batch.mask) if is_real]
    assert sorted(taken + real) == list(range(23))


def test_drop_last_drops_what_is_left_of_the_rest() -> None:
    loaders = job(23, 2, batch_size=3, drop_last=True)
    taken = run_steps(loaders, 2)
    assert len(taken) == 12
    (resumed,) = job(23, 1, batch_size=3, drop_last=True, state=loaders[0].state_dict())
    rest = [index for indices, _ in resumed.iter_with_indices() for index in indices]
    assert len(rest) == 9
    assert not set(rest) & set(taken)


def test_whole_batches_are_dealt_out_anew() -> None:
    inner = LengthBucketSampler(list(range(1, 31)), batch_size=3, seed=2)

    def ranks(world_size, state=None):
        loaders = [
            DataLoader(
                Squares(30), batch_sampler=DistributedBatchSampler(inner, rank, world_size, tail="exact")
            )
            for rank in range(world_size)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        return loaders

    loaders = ranks(4)
    taken = run_steps(loaders, 2)
    last = ranks(3, loaders[1].state_dict())
    taken += [index for loader in last for indices, _ in loader.iter_with_indices() for index in indices]
    assert sorted(taken) == list(range(30))


@pytest.mark.parametrize("stream", [CountingStream, SeekableStream])
@pytest.mark.parametrize("length", [22, 23, 24, 25])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_streams_are_dealt_out_anew(stream, length, steps) -> None:
    def ranks(world_size, state=None):
        loaders = [
            DataLoader(stream(length), 2, rank=rank, world_size=world_size) for rank in range(world_size)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        return loaders

    first = ranks(3)
    taken = run_steps(first, steps)
    for saved in range(3):
        state = first[saved].state_dict()
        rest = []
        if state["epoch"] == 0:
            for loader in ranks(2, state):
                part = list(loader.iter_with_indices())
                if loader.epoch == 1:  # else its epoch was over, and the next one came
                    rest += [index for indices, _ in part for index in indices]
        assert sorted(taken + rest) == list(range(length)), (saved, state)


def test_batches_ahead_of_order_are_not_dealt_out_anew() -> None:
    state = {**job(20, 2)[0].state_dict(), "position": 4, "batch": 1, "ahead": [2]}
    with pytest.raises(StateError, match="world_size: the state has 2, the loader has 3"):
        job(20, 3, state=state)
    job(20, 2, state=state)
