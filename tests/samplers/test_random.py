from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.random import RandomSampler


def permutation(sampler, length=100, epoch=0):
    return sampler.order(length, epoch)[:].tolist()


@pytest.mark.parametrize("memory", ["full", "constant"])
@pytest.mark.parametrize("length", [0, 1, 2, 100, 4096, 4097, 10_000])
def test_every_item_comes_exactly_once(memory, length):
    assert sorted(permutation(RandomSampler(5, memory=memory), length)) == list(range(length))


@pytest.mark.parametrize("options", [{}, {"memory": "constant"}, {"replacement": True}])
def test_seed_and_epoch_are_hashed_and_not_added(options):
    orders = {
        (seed, epoch): tuple(permutation(RandomSampler(seed, **options), 100, epoch))
        for seed in (0, 1, 42, 43, 44, 2**32, 2**64 - 1)
        for epoch in (0, 1, 2, 2**32)
    }
    assert len(set(orders.values())) == len(orders)


def test_every_order_of_four_is_equally_likely():
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    rounds = 4800
    for seed in range(rounds):
        counts[tuple(permutation(RandomSampler(seed), 4))] += 1
    expected = rounds / 24
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    # 23 degrees of freedom; the seeds are fixed, so this is no matter of luck. 49.7 is the 99.9 % point.
    assert chi_square < 49.7


def test_the_default_seed_is_zero():
    assert permutation(RandomSampler()) == permutation(RandomSampler(0))
    assert RandomSampler().seed == 0


def test_unseeded_samplers_differ_and_each_stays_itself():
    one, other = RandomSampler(None), RandomSampler(None)
    assert one.seed is None
    assert one.entropy != other.entropy
    assert permutation(one) == permutation(one)
    assert permutation(one) != permutation(other)
    assert permutation(RandomSampler(None).with_seed(one.entropy)) == permutation(one)
    assert permutation(pickle.loads(pickle.dumps(one))) == permutation(one)


def test_len_makes_no_permutation():
    # It would be 8 EiB.
    assert len(RandomSampler(0).order(2**60, 0)) == 2**60


def test_ten_billion_items_in_constant_memory_from_any_place():
    length = 10**10
    order = RandomSampler(3, memory="constant").order(length, 2)
    places = np.array([0, 5, 4_999_999_999, length - 1])
    assert order.at(places).tolist() == [int(order[p : p + 1][0]) for p in places.tolist()]
    sample = order[5_000_000_000:5_000_050_000]
    assert len(np.unique(sample)) == 50_000
    assert sample.min() < length // 1000
    assert sample.max() > length - length // 1000
    assert order[length - 2 :].tolist() == order[-2:].tolist()


def test_without_replacement_more_samples_start_further_shuffles():
    order = RandomSampler(1, num_samples=25).order(10, 0)[:].tolist()
    assert sorted(order[:10]) == sorted(order[10:20]) == list(range(10))
    assert order[:10] != order[10:20]
    assert len(set(order[20:])) == 5
    assert order[:10] == permutation(RandomSampler(1), 10)


def test_fewer_samples_are_the_begin_of_the_shuffle():
    assert permutation(RandomSampler(1, num_samples=3), 10) == permutation(RandomSampler(1), 10)[:3]


@pytest.mark.parametrize("memory", ["full", "constant"])
def test_positions_of_several_shuffles_are_read_one_by_one(memory):
    order = RandomSampler(1, num_samples=15_000, memory=memory).order(5000, 0)
    places = np.array([0, 1, 4999, 5000, 9999, 10_000, 14_999])
    assert order.at(places).tolist() == order[:][places].tolist()
    assert order.at(places[:0]).tolist() == []


def test_draws_with_replacement_are_independent_and_even():
    draws = RandomSampler(9, replacement=True, num_samples=100_000).order(10, 0)[:]
    counts = np.bincount(draws, minlength=10)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 27.9  # the 99.9 % point with 9 degrees of freedom
    pairs = np.bincount(draws[:-1] * 10 + draws[1:], minlength=100)
    assert ((pairs - 1000) ** 2 / 1000).sum() < 149.0  # with 99


@pytest.mark.parametrize("options", [{}, {"memory": "constant"}, {"replacement": True}, {"num_samples": 7}])
def test_an_empty_dataset_has_an_empty_order(options):
    order = RandomSampler(1, **options).order(0, 0)
    assert len(order) == 0
    assert order[:].tolist() == []


def test_a_pickled_order_leaves_its_table_behind():
    order = RandomSampler(1).order(100_000, 0)
    expected = order[5:9].tolist()
    data = pickle.dumps(order)
    assert len(data) < 1000
    assert pickle.loads(data)[5:9].tolist() == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, OptionError, "seed must be between 0 and 2\\*\\*64 - 1, not -1"),
        ({"seed": 2**64}, OptionError, "seed must be"),
        ({"seed": 1.0}, TypeError, "seed must be an int, not float 1.0"),
        ({"seed": True}, TypeError, "seed must be an int, not True"),
        ({"seed": "7"}, TypeError, "seed must be an int, not str '7'"),
        ({"replacement": 1}, TypeError, "replacement must be True or False, not int 1"),
        ({"num_samples": -1}, OptionError, "num_samples must be at least 0, not -1"),
        ({"num_samples": 2.5}, TypeError, "num_samples must be an int"),
        ({"num_samples": True}, TypeError, "num_samples must be an int"),
        ({"memory": "some"}, OptionError, "memory must be one of 'full', 'constant', not 'some'"),
        ({"memory": None}, TypeError, "memory must be a str"),
        ({"memory": "constant", "replacement": True}, OptionError, "leave memory out"),
    ],
)
def test_bad_arguments_are_refused_by_name_when_built(options, error, message):
    with pytest.raises(error, match=message):
        RandomSampler(**options)


def test_numpy_ints_are_ints():
    sampler = RandomSampler(np.int64(4), num_samples=np.uint8(3))
    assert type(sampler.seed) is int
    assert sampler.options() == {"seed": 4, "replacement": False, "num_samples": 3, "memory": "full"}


def test_the_repr_is_how_it_is_built():
    assert repr(RandomSampler(3)) == "RandomSampler(seed=3)"
    for sampler in (
        RandomSampler(None, replacement=True, num_samples=4),
        RandomSampler(2**64 - 1, memory="constant"),
    ):
        assert repr(eval(repr(sampler))) == repr(sampler)
