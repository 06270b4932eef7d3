from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.random import RandomSampler
from feedline.samplers.sequential import SequentialSampler
from feedline.samplers.shard import ShardSampler


def test_shards_are_contiguous_and_have_every_item_once():
    for length in (*range(20), 100):
        for count in range(1, 12):
            parts = [
                ShardSampler(RandomSampler(2), s, count).order(length, 1)[:].tolist() for s in range(count)
            ]
            for shard, part in enumerate(parts):
                first, last = shard * length // count, (shard + 1) * length // count
                assert sorted(part) == list(range(first, last))
            longest = max(len(part) for part in parts)
            assert ShardSampler(RandomSampler(2), 0, count).longest(length) == longest


def test_an_inner_order_without_a_seed_is_kept():
    assert ShardSampler(SequentialSampler(), 1, 3).order(9, 0)[:].tolist() == [3, 4, 5]


@pytest.mark.parametrize("memory", ["full", "constant"])
def test_shards_of_equal_length_are_not_shuffled_alike(memory):
    orders = {
        tuple((ShardSampler(RandomSampler(2, memory=memory), s, 8).order(800, 0)[:] - 100 * s).tolist())
        for s in range(8)
    }
    assert len(orders) == 8


def test_epochs_and_seeds_change_the_order_of_a_shard():
    orders = {
        tuple(ShardSampler(RandomSampler(seed), 1, 2).order(100, epoch)[:].tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


def test_a_single_shard_is_the_inner_order():
    assert (
        ShardSampler(RandomSampler(5), 0, 1).order(50, 2)[:].tolist()
        == RandomSampler(5).order(50, 2)[:].tolist()
    )


def test_parts_of_a_huge_dataset_cost_nothing():
    order = ShardSampler(RandomSampler(1, memory="constant"), 3, 7).order(10**10, 0)
    part = order[10**9 : 10**9 + 100]
    assert part.min() >= 3 * 10**10 // 7
    assert part.max() < 4 * 10**10 // 7
    assert order.at(np.array([5, 10**9])).tolist() == [int(order[5:6][0]), int(part[0])]


@pytest.mark.parametrize(
    ("shard", "count", "error", "message"),
    [
        (3, 3, OptionError, r"shard must be below num_shards \(3\), not 3"),
        (-1, 3, OptionError, "shard must be at least 0"),
        (0, 0, OptionError, "num_shards must be at least 1"),
        (0.0, 3, TypeError, "shard must be an int"),
        (0, "3", TypeError, "num_shards must be an int"),
        (True, 3, TypeError, "shard must be an int"),
    ],
)
def test_bad_arguments_are_refused_by_name_when_built(shard, count, error, message):
    with pytest.raises(error, match=message):
        ShardSampler(RandomSampler(), shard, count)


def test_an_unseeded_sampler_can_not_be_shared_by_shards():
    with pytest.raises(OptionError, match="give all the same seed"):
        ShardSampler(RandomSampler(None), 0, 2)
    assert ShardSampler(RandomSampler(None), 0, 1).seed is None


def test_options_name_the_count_and_not_the_shard():
    assert ShardSampler(RandomSampler(1), 0, 3).options() == ShardSampler(RandomSampler(1), 2, 3).options()
    assert ShardSampler(RandomSampler(1), 0, 3).options() != ShardSampler(RandomSampler(1), 0, 4).options()
    assert ShardSampler(RandomSampler(1), 0, 3).options()["num_shards"] == 3


def test_a_seed_reaches_the_inner_sampler():
    sampler = ShardSampler(RandomSampler(1), 1, 3)
    assert sampler.with_seed(9).seed == 9
    expected = ShardSampler(RandomSampler(9), 1, 3).order(30, 0)[:].tolist()
    assert sampler.with_seed(9).order(30, 0)[:].tolist() == expected
