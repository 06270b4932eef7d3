from __future__ import annotations

import pickle

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.bucket import LengthBucketSampler

LENGTHS = np.arange(1000) * 7919 % 509


def every(batches):
    return [batches[k].tolist() for k in range(len(batches))]


@pytest.mark.parametrize(
    "limits",
    [
        {"batch_size": 7},
        {"batch_size": 1},
        {"batch_size": 2000},
        {"max_tokens": 509},
        {"max_tokens": 4000},
        {"max_tokens": 10**9},
        {"batch_size": 16, "max_tokens": 4000},
        {"batch_size": 16, "pool_size": 20},
        {"max_tokens": 4000, "pool_size": 1000},
    ],
)
def test_every_item_comes_once_and_no_batch_is_over_its_limits(limits):
    for length in (0, 1, 2, 99, 1000):
        made = LengthBucketSampler(LENGTHS[:length], seed=3, **limits).batches(length, 1)
        batches = every(made)
        assert sorted(i for batch in batches for i in batch) == list(range(length))
        for batch in batches:
            assert 0 < len(batch) <= limits.get("batch_size", length)
            assert len(batch) * max(LENGTHS[batch]) <= limits.get("max_tokens", 2**62)


def test_only_one_batch_is_smaller_and_it_can_be_dropped():
    sizes = [len(b) for b in every(LengthBucketSampler(LENGTHS, 7, pool_size=50).batches(1000, 0))]
    assert sorted(sizes) == [6] + [7] * 142
    for length in (0, 3, 7, 1000):
        sampler = LengthBucketSampler(LENGTHS[:length], 7, drop_last=True)
        batches = sampler.batches(length, 0)
        assert len(batches) == length // 7
        assert {len(b) for b in every(batches)} <= {7}
        assert len({i for b in every(batches) for i in b}) == length // 7 * 7


def test_little_is_padded():
    def padded(batches):
        return sum(len(b) * max(LENGTHS[b]) for b in every(batches)) / LENGTHS.sum()

    assert padded(LengthBucketSampler(LENGTHS, 10).batches(1000, 0)) < 1.02
    assert padded(LengthBucketSampler(LENGTHS, max_tokens=4000).batches(1000, 0)) < 1.05
    # A pool of one batch is no bucketing at all: the measure does measure.
    assert padded(LengthBucketSampler(LENGTHS, 10, pool_size=10).batches(1000, 0)) > 1.5


def test_batches_come_in_shuffled_order_and_are_mixed_anew_each_epoch():
    sampler = LengthBucketSampler(LENGTHS, 10, seed=1, pool_size=300)
    epochs = [every(sampler.batches(1000, epoch)) for epoch in range(2)]
    longest = [int(max(LENGTHS[batch])) for batch in epochs[0]]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)
    neighbours = [{tuple(sorted(batch)) for batch in batches} for batches in epochs]
    assert len(neighbours[0] & neighbours[1]) < 5


def test_seeds_differ_and_a_copy_takes_another():
    one, other = LengthBucketSampler(LENGTHS, 10, seed=1), LengthBucketSampler(LENGTHS, 10, seed=2)
    assert every(one.batches(1000, 0)) != every(other.batches(1000, 0))
    assert every(one.with_seed(2).batches(1000, 0)) == every(other.batches(1000, 0))
    assert LengthBucketSampler(LENGTHS, 10, seed=None).seed is None


def test_an_item_over_the_budget_is_refused_when_built():
    with pytest.raises(
        OptionError, match=r"lengths\[2\] is 101, which no batch can hold: the limit is max_tokens=100"
    ):
        LengthBucketSampler([5, 100, 101], max_tokens=100)


def test_items_without_length_count_one_token():
    batches = every(LengthBucketSampler([0] * 10, max_tokens=4).batches(10, 0))
    assert sorted(len(batch) for batch in batches) == [2, 4, 4]


def test_another_number_of_lengths_than_items_is_refused_at_the_start_of_an_epoch():
    with pytest.raises(OptionError, match="3 lengths and the dataset 4 items"):
        LengthBucketSampler([1, 2, 3], 2).batches(4, 0)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"lengths": [1, 2]}, OptionError, "needs batch_size or max_tokens"),
        ({"lengths": [1, -2], "batch_size": 2}, OptionError, r"lengths\[1\] is -2"),
        ({"lengths": [1.5], "batch_size": 2}, TypeError, "1-d sequence of ints, not float64"),
        ({"lengths": [True], "batch_size": 2}, TypeError, "1-d sequence of ints, not bool"),
        ({"lengths": "12", "batch_size": 2}, TypeError, "sequence of ints"),
        ({"lengths": [[1], [2]], "batch_size": 2}, TypeError, "1-d"),
        ({"lengths": [[1], [2, 3]], "batch_size": 2}, TypeError, "1-d"),
        ({"lengths": np.array([2**63], np.uint64), "batch_size": 2}, OptionError, "the limit is 2"),
        ({"lengths": [1], "batch_size": 0}, OptionError, "batch_size must be at least 1"),
        ({"lengths": [1], "batch_size": 2.0}, TypeError, "batch_size must be an int"),
        ({"lengths": [1], "max_tokens": 0}, OptionError, "max_tokens must be at least 1"),
        ({"lengths": [1], "max_tokens": True}, TypeError, "max_tokens must be an int"),
        (
            {"lengths": [1], "max_tokens": 5, "drop_last": True},
            OptionError,
            "drop_last is for batches of one size",
        ),
        ({"lengths": [1], "batch_size": 5, "drop_last": 1}, TypeError, "drop_last must be True or False"),
        ({"lengths": [1], "batch_size": 5, "pool_size": 0}, OptionError, "pool_size must be at least 1"),
        ({"lengths": [1], "batch_size": 5, "seed": -1}, OptionError, "seed must be"),
    ],
)
def test_bad_arguments_are_refused_by_name_when_built(given, error, message):
    with pytest.raises(error, match=message):
        LengthBucketSampler(**given)


def test_options_have_a_digest_of_the_lengths():
    one = LengthBucketSampler([1, 2, 3], 2).options()
    assert one == LengthBucketSampler(np.array([1, 2, 3], np.uint8), 2).options()
    assert one != LengthBucketSampler([1, 2, 4], 2).options()
    assert len(one["lengths"]) == 32


def test_a_pickled_epoch_leaves_its_layout_behind():
    batches = LengthBucketSampler(LENGTHS, 10).batches(1000, 0)
    expected = every(batches)
    assert len(pickle.dumps(batches)) < 9000
    assert every(pickle.loads(pickle.dumps(batches))) == expected


def test_the_repr_tells_the_limits():
    sampler = LengthBucketSampler([1, 2], 4, seed=3, drop_last=True)
    assert repr(sampler) == "LengthBucketSampler(<2 lengths>, batch_size=4, seed=3, drop_last=True)"


def test_an_epoch_stays_itself_while_others_are_read():
    sampler = LengthBucketSampler(LENGTHS, max_tokens=4000, seed=1)
    first = sampler.batches(1000, 0)
    expected = every(LengthBucketSampler(LENGTHS, max_tokens=4000, seed=1).batches(1000, 0))
    assert every(first)[:5] == expected[:5]
    assert every(sampler.batches(1000, 1)) != expected
    assert every(first) == expected
    assert every(sampler.batches(1000, 0)) == expected
