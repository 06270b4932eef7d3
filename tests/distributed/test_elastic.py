"""A job stops in mid-epoch and goes on with another number of ranks: no item is lost, none comes twice."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

import feedline

SAVED_AT = 4


def loader(n: int, rank: int, world_size: int, tail: str, **options) -> feedline.DataLoader:
    sampler = feedline.DistributedSampler(rank=rank, world_size=world_size, tail=tail)
    return feedline.DataLoader(feedline.ArrayDataset(np.arange(n)), 3, sampler=sampler, **options)


def rows_of(batch) -> list[int]:
    if isinstance(batch, feedline.MaskedBatch):
        return batch.data[0][batch.mask].tolist()
    return batch[0].tolist()


def stopped_after(n: int, steps: int, tail: str, on_rank: int) -> tuple[list[int], dict]:
    """Return what all ranks have seen after so many steps of the second epoch, and the state of one of them."""
    seen: list[int] = []
    state: dict = {}
    for rank in range(SAVED_AT):
        one = loader(n, rank, SAVED_AT, tail)
        one.set_epoch(1)
        iterator = iter(one)
        for _ in range(steps):
            seen += rows_of(next(iterator))
        if rank == on_rank:
            state = json.loads(json.dumps(one.state_dict()))
    return seen, state


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("tail", ["exact", "mask"])
@pytest.mark.parametrize("n", [24, 41])
def test_a_state_goes_on_with_any_number_of_ranks_from_every_step(n: int, tail: str, world_size: int) -> None:
    for steps in range(n // (3 * SAVED_AT) + 1):
        seen, state = stopped_after(n, steps, tail, on_rank=steps % SAVED_AT)
        lengths, following = [], []
        for rank in range(world_size):
            one = loader(n, rank, world_size, tail)
            one.load_state_dict(state)
            batches = list(one)
            lengths.append(len(batches))
            seen += [row for batch in batches for row in rows_of(batch)]
            following.append([row for batch in one for row in rows_of(batch)])
        finished_before = steps == n // (3 * SAVED_AT) and n % (3 * SAVED_AT) == 0
        assert Counter(seen) == Counter(list(range(n)) * (2 if finished_before else 1))
        assert sorted(sum(following, [])) == list(range(n)), "the next epoch is whole"  # noqa: RUF017
        assert tail == "exact" or len(set(lengths)) == 1, "ranks have as many steps"
        assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("tail", ["pad", "drop"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_with_padding_or_dropping_steps_stay_equal_and_nothing_comes_twice_before_the_end(
    tail: str, world_size: int
) -> None:
    n = 41
    seen, state = stopped_after(n, 2, tail, on_rank=0)
    rest, lengths = [], []
    for rank in range(world_size):
        one = loader(n, rank, world_size, tail)
        one.load_state_dict(state)
        batches = list(one)
        lengths.append(len(batches))
        rest += [row for batch in batches for row in rows_of(batch)]
    assert len(set(lengths)) == 1
    if tail == "drop":
        assert len(seen + rest) == len(set(seen + rest)) >= n - world_size + 1
    else:
        assert set(seen + rest) == set(range(n))
        assert len(seen + rest) < n + world_size


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_do_not_matter_to_a_change_of_ranks(workers: int) -> None:
    seen, state = stopped_after(41, 2, "exact", on_rank=3)
    for rank in range(3):
        with loader(41, rank, 3, "exact", num_workers=workers) as one:
            one.load_state_dict(state)
            seen += [row for batch in one for row in rows_of(batch)]
    assert sorted(seen) == list(range(41))


def test_whole_batches_are_dealt_out_anew_as_well() -> None:
    lengths = np.random.RandomState(0).randint(1, 50, 60)

    def one(rank: int, world_size: int) -> feedline.DataLoader:
        inner = feedline.LengthBucketSampler(lengths, batch_size=4)
        sampler = feedline.DistributedBatchSampler(inner, rank, world_size, tail="exact")
        return feedline.DataLoader(np.arange(60), batch_sampler=sampler)

    seen: list[int] = []
    for rank in range(4):
        iterator = iter(one(rank, 4))
        seen += next(iterator).tolist() + next(iterator).tolist()
        state = iterator.state_dict()
    for rank in range(3):
        resumed = one(rank, 3)
        resumed.load_state_dict(state)
        for batch in resumed:
            seen += batch.tolist()
    assert sorted(seen) == list(range(60))


def test_failures_of_one_process_alone_are_its_own() -> None:
    one = feedline.DataLoader([1, 0, 2], on_error="skip", transform=lambda item: 1 / item)
    list(one)
    assert feedline.gather_failures(one) == one.failures
    assert [failure.index for failure in one.failures] == [1]
