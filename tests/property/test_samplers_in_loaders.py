"""Whatever deals an epoch out to ranks, a job of another size goes on where all ranks stood."""

from __future__ import annotations

import json

import numpy as np
import pytest

from feedline.loader.dataloader import DataLoader
from feedline.samplers.batch import BatchSampler
from feedline.samplers.bucket import LengthBucketSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.distributed_batch import DistributedBatchSampler
from feedline.samplers.random import RandomSampler

ITEMS = np.arange(101)


def by_items(rank, world_size):
    sampler = DistributedSampler(RandomSampler(1), rank, world_size, "exact")
    return DataLoader(ITEMS, batch_size=5, sampler=sampler)


def by_chunks(rank, world_size):
    sampler = DistributedSampler(RandomSampler(1, memory="constant"), rank, world_size, "exact")
    return DataLoader(ITEMS, batch_sampler=BatchSampler(sampler, 5))


def by_buckets(rank, world_size):
    inner = LengthBucketSampler(ITEMS % 17 + 1, max_tokens=60, seed=1)
    return DataLoader(ITEMS, batch_sampler=DistributedBatchSampler(inner, rank, world_size, "exact"))


@pytest.mark.parametrize("make", [by_items, by_chunks, by_buckets])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (4, 2), (2, 5)])
def test_a_job_of_another_size_delivers_what_is_left_exactly_once(make, before, after):
    for steps in range(5):
        seen, state = [], None
        for rank in range(before):
            iterator = iter(make(rank, before))
            for _ in range(steps):
                seen += next(iterator).tolist()
            state = json.loads(json.dumps(iterator.state_dict()))
        for rank in range(after):
            loader = make(rank, after)
            loader.load_state_dict(state)
            for batch in loader:
                seen += batch.tolist()
        assert sorted(seen) == ITEMS.tolist()
