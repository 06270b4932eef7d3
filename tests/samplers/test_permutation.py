from __future__ import annotations

import numpy as np
import pytest

from feedline.keys import derive_key
from feedline.samplers.permutation import AliasTable, FeistelPermutation, bounded_draws, keyed_words


def feistel(length, seed=0):
    return FeistelPermutation(length, derive_key("test", seed, 0, size=48))


def excess(counts, expected):
    """Return chi-square in standard deviations above its mean."""
    degrees = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees)


@pytest.mark.parametrize("length", [*range(2, 70), 255, 256, 257, 4095, 4096, 4097, 65_537, 100_000])
def test_every_place_is_hit_once(length):
    values = feistel(length)(np.arange(length, dtype=np.uint64))
    assert values.dtype == np.int64
    assert np.array_equal(np.sort(values), np.arange(length))


@pytest.mark.parametrize("length", [2**31 - 1, 2**32, 2**32 + 1, 10**10, 2**62, 2**62 + 1, 2**63 - 1])
def test_large_domains_stay_in_range_and_do_not_collide(length):
    positions = np.concatenate([np.arange(20_000), length - 1 - np.arange(20_000)]).astype(np.uint64)
    values = feistel(length)(positions)
    assert len(np.unique(values)) == len(positions)
    assert values.min() >= 0
    assert values.max() < length
    # Halves of the positions are spread over the whole domain: mean within five standard errors.
    assert abs(values.astype(float).mean() / length - 0.5) < 5 * np.sqrt(1 / 12 / len(positions))


def test_blocks_do_not_show():
    permute = feistel(10**6)
    whole = permute(np.arange(50_000, dtype=np.uint64))
    assert np.array_equal(permute(np.arange(8190, 8195, dtype=np.uint64)), whole[8190:8195])
    assert permute(np.arange(0, dtype=np.uint64)).shape == (0,)


def test_places_values_and_neighbours_are_spread_evenly_over_keys():
    length, keys = 1000, 1000
    everywhere = np.arange(length, dtype=np.uint64)
    table = np.stack([feistel(length, seed)(everywhere) for seed in range(keys)])
    cells = np.zeros((20, 20))
    for place in range(length):
        cells[place // 50] += np.bincount(table[:, place] // 50, minlength=20)
    # Rows and columns of a permutation have fixed sums, so this is a little less than free counts would give.
    assert abs(excess(cells, cells.mean())) < 5
    steps = np.bincount((np.diff(table, axis=1) % length).ravel(), minlength=length)[1:]
    assert abs(excess(steps, steps.mean())) < 5
    fixed = (table == np.arange(length)).sum(axis=1)
    assert abs(fixed.mean() - 1) < 5 / np.sqrt(keys)
    assert 0.8 < fixed.var() < 1.2


def test_pairs_within_one_permutation_are_spread_evenly():
    length, cells = 500_000, 32
    values = feistel(length)(np.arange(length, dtype=np.uint64)) * cells // length
    for distance in (1, 2, 512, 1024):
        pairs = np.bincount(values[:-distance] * cells + values[distance:], minlength=cells**2)
        assert abs(excess(pairs, pairs.mean())) < 5


def test_neighbouring_keys_give_unrelated_permutations():
    length, cells = 200_000, 32
    everywhere = np.arange(length, dtype=np.uint64)
    one, other = (feistel(length, seed)(everywhere) * cells // length for seed in (0, 1))
    assert abs(excess(np.bincount(one * cells + other, minlength=cells**2), length / cells**2)) < 5


def test_words_depend_on_their_number_only():
    key = derive_key("test", 0, 0)
    whole = keyed_words(key, 0, 50)
    for first in range(20):
        assert np.array_equal(keyed_words(key, first, 7), whole[first : first + 7])
    assert not np.array_equal(keyed_words(key, 0, 50, stream=1), whole)
    assert len(keyed_words(key, 2**62, 3)) == 3


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 2**32, 2**63 - 1, 2**64 // 3 + 1])
def test_draws_are_in_range_and_reached_by_slices(bound):
    key = derive_key("test", 1, 0)
    whole = bounded_draws(key, 0, 200, bound)
    assert whole.min() >= 0
    assert whole.max() < bound
    for first in (0, 1, 3, 150):
        assert np.array_equal(bounded_draws(key, first, 40, bound), whole[first : first + 40])


def test_words_that_would_favour_small_draws_are_drawn_again():
    # Of this bound, 2 * bound fits into 2**64 and a third is left over: without the second draw, the lower
    # values would come three times where the upper come twice.
    bound = 2**64 // 3 + 1
    draws = bounded_draws(derive_key("test", 2, 0), 0, 20_000, bound).astype(float) / bound
    assert abs(draws.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 20_000)
    words = keyed_words(derive_key("test", 2, 0), 0, 20_000)
    assert 0.3 < (words >= np.uint64(2 * bound)).mean() < 0.37


@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        [1.0, 1.0, 1.0],
        [0.0, 2.0],
        [5.0, 0.0, 0.0, 0.0],
        [1, 2, 3, 4],
        [9, 0, 0, 1, 0, 3],
        [1e308, 1e308, 1.0],
        [5e-324, 5e-324],
        [1e-300, 1.0, 1e300],
        [0.1] * 10,
        list(range(1000)),
    ],
)
def test_an_alias_table_holds_the_exact_chances(weights):
    weights = np.array(weights, np.float64)
    table = AliasTable(weights)
    count = len(weights)
    chances = (table.keep + np.bincount(table.alias, weights=1 - table.keep, minlength=count)) / count
    shares = weights / weights.max()
    assert np.allclose(chances, shares / shares.sum(), rtol=1e-9, atol=1e-12)
    assert (chances[weights == 0] == 0).all()
    assert ((table.keep >= 0) & (table.keep <= 1)).all()


def test_a_large_alias_table_holds_the_chances_too():
    weights = np.random.default_rng(0).pareto(1.2, 200_000)
    weights[::7] = 0
    table = AliasTable(weights)
    chances = (table.keep + np.bincount(table.alias, weights=1 - table.keep, minlength=200_000)) / 200_000
    assert np.allclose(chances, weights / weights.sum(), rtol=1e-6, atol=1e-13)
    assert (chances[::7] == 0).all()
