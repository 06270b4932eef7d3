from __future__ import annotations

import pickle

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.weighted import WeightedSampler


def test_items_come_in_proportion_to_their_weights():
    weights = np.array([1.0, 0.0, 2.0, 5.0, 2.0])
    draws = WeightedSampler(weights, 100_000, seed=1).order(5, 0)[:]
    counts = np.bincount(draws, minlength=5)
    assert counts[1] == 0
    expected = weights / weights.sum() * 100_000
    seen = weights > 0
    assert ((counts - expected)[seen] ** 2 / expected[seen]).sum() < 16.3  # 99.9 %, 3 degrees of freedom


def test_the_only_weight_is_always_drawn():
    assert set(WeightedSampler([0, 0, 3], 50).order(3, 0)[:].tolist()) == {2}


def test_seeds_and_epochs_give_other_draws():
    orders = [
        tuple(WeightedSampler([1, 2, 3], 60, seed).order(3, epoch)[:].tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4


def test_draws_do_not_depend_on_the_draws_before_them():
    order = WeightedSampler(np.arange(1, 100), 10**12, seed=3).order(99, 0)
    part = order[10**11 : 10**11 + 50].tolist()
    assert order[10**11 + 20 : 10**11 + 30].tolist() == part[20:30]


def test_another_number_of_weights_than_items_is_refused_at_the_start_of_an_epoch():
    sampler = WeightedSampler([1, 2, 3], 5)
    with pytest.raises(OptionError, match="3 weights and the dataset 4 items"):
        sampler.order(4, 0)


def test_the_weights_are_copied():
    weights = np.ones(4)
    sampler = WeightedSampler(weights, 20)
    weights[:] = [0, 0, 0, 1]
    assert len(set(sampler.order(4, 0)[:].tolist())) > 1


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1, -2], OptionError, r"weights\[1\] is -2.0"),
        ([1, float("nan")], OptionError, r"weights\[1\] is nan"),
        ([float("inf"), 1], OptionError, r"weights\[0\] is inf"),
        ([0, 0.0], OptionError, "must not all be zero"),
        ([], OptionError, "without weights"),
        ("12", TypeError, "sequence of numbers"),
        (["1", "2"], TypeError, "sequence of numbers"),
        ([True, False], TypeError, "sequence of numbers"),
        ([[1, 2], [3, 4]], TypeError, "1-d"),
        ([[1, 2], [3]], TypeError, "1-d"),
        (3.0, TypeError, "1-d"),
        ([1j], TypeError, "1-d"),
        ([None], TypeError, "1-d"),
    ],
)
def test_bad_weights_are_refused_when_built(weights, error, message):
    with pytest.raises(error, match=message):
        WeightedSampler(weights, 3)


@pytest.mark.parametrize("num_samples", [-1, 2.0, "3", True, None])
def test_the_number_of_samples_is_an_int(num_samples):
    with pytest.raises((OptionError, TypeError), match="num_samples must be"):
        WeightedSampler([1], num_samples)


def test_an_empty_dataset_has_an_empty_order():
    order = WeightedSampler([], 0).order(0, 0)
    assert len(order) == 0
    assert order[:].tolist() == []


def test_options_tell_weights_apart_by_a_digest():
    one, other = WeightedSampler([1, 2], 3), WeightedSampler([1, 3], 3)
    assert one.options() != other.options()
    assert one.options() == WeightedSampler(np.array([1.0, 2.0], np.float32), 3).options()
    assert len(WeightedSampler(np.ones(10**5), 3).options()["weights"]) == 32


def test_the_table_does_not_travel():
    sampler = WeightedSampler(np.ones(10_000), 5)
    expected = sampler.order(10_000, 0)[:].tolist()
    data = pickle.dumps(sampler)
    assert len(data) < 81_000
    assert pickle.loads(data).order(10_000, 0)[:].tolist() == expected
