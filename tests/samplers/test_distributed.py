from __future__ import annotations

import functools
import os

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.batch import BatchSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.random import RandomSampler
from feedline.samplers.sequential import SequentialSampler
from feedline.samplers.weighted import WeightedSampler


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    for name in list(os.environ):
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)


def ranks(inner, world_size, tail, length, epoch=0):
    """Return the orders of all ranks."""
    return [
        DistributedSampler(inner, rank, world_size, tail).order(length, epoch) for rank in range(world_size)
    ]


class Kept:
    """A shuffle whose orders are made once: the grid below asks for the same ones thousands of times."""

    @functools.cache
    def order(self, length, epoch):
        return RandomSampler(3).order(length, epoch)[:]


KEPT = Kept()
GRID = [(length, world_size) for length in range(41) for world_size in range(1, 21)]


def test_padded_ranks_are_equally_long_and_wrap_around_as_often_as_needed():
    for length, world_size in GRID:
        orders = ranks(KEPT, world_size, "pad", length)
        share = -(-length // world_size)
        assert [len(order) for order in orders] == [share] * world_size
        dealt = np.stack([order[:] for order in orders], axis=1).ravel().tolist()
        whole = KEPT.order(length, 0).tolist()
        assert dealt == [whole[p % length] for p in range(share * world_size)]


def test_dropping_ranks_are_equally_long_and_disjoint():
    for length, world_size in GRID:
        orders = ranks(KEPT, world_size, "drop", length)
        assert {len(order) for order in orders} == {length // world_size}
        dealt = np.stack([order[:] for order in orders], axis=1).ravel().tolist()
        assert dealt == KEPT.order(length, 0)[: len(dealt)].tolist()


def test_exact_ranks_have_every_item_once_and_differ_by_one_at_most():
    for length, world_size in GRID:
        orders = ranks(KEPT, world_size, "exact", length)
        sizes = [len(order) for order in orders]
        assert max(sizes) - min(sizes) <= 1
        assert sorted(i for order in orders for i in order[:].tolist()) == list(range(length))


def test_masked_ranks_are_equally_long_and_have_every_item_once_before_their_padding():
    for length, world_size in GRID:
        orders = ranks(KEPT, world_size, "mask", length)
        assert len({len(order) for order in orders}) == 1
        real = [i for order in orders for i in order[: order.num_real].tolist()]
        assert sorted(real) == list(range(length))
        assert all(len(order) - order.num_real <= 1 for order in orders)
        padded = ranks(KEPT, world_size, "pad", length)
        assert [o[:].tolist() for o in orders] == [o[:].tolist() for o in padded]


def test_only_masked_orders_speak_of_padding():
    for tail in ("pad", "drop", "exact"):
        assert not hasattr(DistributedSampler(SequentialSampler(), 0, 2, tail).order(3, 0), "num_real")


def test_longest_is_what_the_rank_with_the_most_has():
    for tail in ("pad", "drop", "exact", "mask"):
        for length, world_size in GRID[::7]:
            for position in (0, 1, length // 2, length, length + 3):
                most = max(
                    len(
                        DistributedSampler(SequentialSampler(), r, world_size, tail).order_from(
                            length, 0, position
                        )
                    )
                    for r in range(world_size)
                )
                sampler = DistributedSampler(SequentialSampler(), 0, world_size, tail)
                assert sampler.longest(length, position) == most


@pytest.mark.parametrize("tail", ["pad", "mask"])
def test_the_rest_of_an_epoch_is_padded_from_the_begin_of_the_global_order(tail):
    # Positions 7, 8, 9 are left of ten; four ranks get 7, 8, 9 and 10 % 10.
    parts = [
        DistributedSampler(SequentialSampler(), r, 4, tail).order_from(10, 0, 7)[:].tolist() for r in range(4)
    ]
    assert parts == [[7], [8], [9], [0]]


def test_a_position_beyond_the_end_leaves_nothing():
    for tail in ("pad", "drop", "exact", "mask"):
        rest = DistributedSampler(SequentialSampler(), 1, 4, tail).order_from(10, 0, 2**70)
        assert len(rest) == 0
        assert rest[:].tolist() == []


@pytest.mark.parametrize(
    "inner",
    [
        SequentialSampler(),
        RandomSampler(1),
        RandomSampler(1, memory="constant"),
        RandomSampler(1, replacement=True),
        RandomSampler(1, num_samples=12_345),
        WeightedSampler(np.arange(5000), 7000, seed=1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("world_size", [1, 3, 7, 5000, 8000])
def test_any_inner_sampler_is_dealt_out_alike(inner, world_size):
    whole = inner.order(5000, 2)[:]
    for rank in {0, 1, world_size // 2, world_size - 1} & set(range(world_size)):
        order = DistributedSampler(inner, rank, world_size, "exact").order(5000, 2)
        assert order[:].tolist() == whole[rank::world_size].tolist()
        assert order[3:9].tolist() == whole[rank::world_size][3:9].tolist()


class Listed:
    """A sampler of a user: its order knows slices only, and gives lists."""

    def order(self, length, epoch):
        return [length - 1 - i for i in range(length)]


def test_a_sampler_of_a_user_is_dealt_out_too():
    order = DistributedSampler(Listed(), 1, 3).order(200_000, 0)
    assert order[:].tolist() == [199_999 - p % 200_000 for p in range(1, 200_001, 3)]
    assert DistributedSampler(Listed(), 0, 1).order(4, 0)[:].tolist() == [3, 2, 1, 0]
    assert not hasattr(DistributedSampler(Listed(), 0, 1), "seed")
    assert DistributedSampler(Listed(), 0, 1).with_seed(4).order(2, 0)[:].tolist() == [1, 0]


def test_an_order_that_gives_no_integers_is_refused():
    class Floats:
        def order(self, length, epoch):
            return np.linspace(0, 1, length)

    with pytest.raises(TypeError, match="1-d array of integers, not float64"):
        DistributedSampler(Floats(), 0, 2).order(4, 0)[:]


def test_without_an_inner_sampler_all_ranks_share_the_default_shuffle():
    parts = [DistributedSampler(rank=r, world_size=2).order(10, 4)[:].tolist() for r in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(10))
    assert parts[0] == RandomSampler(0).order(10, 4)[:][::2].tolist()


def test_without_a_job_there_is_one_rank():
    sampler = DistributedSampler(SequentialSampler())
    assert (sampler.rank, sampler.world_size) == (0, 1)


def test_rank_and_world_size_come_from_the_job(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    sampler = DistributedSampler(SequentialSampler())
    assert (sampler.rank, sampler.world_size) == (2, 4)
    assert DistributedSampler(SequentialSampler(), rank=1).rank == 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"rank": 2, "world_size": 2}, OptionError, r"rank must be below world_size \(2\), not 2"),
        ({"rank": -1, "world_size": 2}, OptionError, "rank must be at least 0, not -1"),
        ({"rank": 0, "world_size": 0}, OptionError, "world_size must be at least 1, not 0"),
        ({"rank": 0, "world_size": -3}, OptionError, "world_size must be at least 1"),
        ({"rank": True, "world_size": 2}, TypeError, "rank must be an int, not True"),
        ({"rank": 0.0, "world_size": 2}, TypeError, "rank must be an int"),
        ({"rank": "0", "world_size": 2}, TypeError, "rank must be an int"),
        ({"rank": 0, "world_size": 2.0}, TypeError, "world_size must be an int"),
        ({"rank": 1}, OptionError, "world_size is missing"),
        ({"world_size": 4}, OptionError, "rank is missing"),
        ({"tail": "wrap"}, OptionError, "tail must be one of 'pad', 'drop', 'exact', 'mask', not 'wrap'"),
        ({"tail": None}, TypeError, "tail must be a str"),
        ({"inner": [1, 2, 3]}, TypeError, "the dataset is given to the loader"),
        ({"inner": RandomSampler}, TypeError, r"write RandomSampler\(\.\.\.\)"),
        ({"inner": RandomSampler(None)}, OptionError, "give all ranks the same seed"),
        ({"inner": BatchSampler(RandomSampler(), 2)}, TypeError, "single indices"),
        ({"inner": DistributedSampler(RandomSampler(), 0, 2)}, OptionError, "deals it out already"),
    ],
)
def test_bad_arguments_are_refused_by_name_when_built(given, error, message):
    with pytest.raises(error, match=message):
        DistributedSampler(**given)


def test_numpy_ints_are_ints():
    sampler = DistributedSampler(SequentialSampler(), np.int64(1), np.int32(3))
    assert type(sampler.rank) is int
    assert type(sampler.world_size) is int


@pytest.mark.parametrize("position", [-1, 1.0, True, "1"])
def test_a_position_is_an_int_from_zero_on(position):
    with pytest.raises((OptionError, TypeError), match="position must be"):
        DistributedSampler(SequentialSampler(), 0, 2).order_from(10, 0, position)


def test_a_seed_reaches_the_inner_sampler():
    sampler = DistributedSampler(RandomSampler(1), 1, 2)
    assert sampler.seed == 1
    other = sampler.with_seed(2)
    assert other.seed == 2
    assert other.inner.seed == 2
    assert (other.rank, other.world_size) == (1, 2)
    with pytest.raises(OptionError, match="same seed"):
        sampler.with_seed(None)


def test_options_do_not_depend_on_rank_and_world_size():
    one = DistributedSampler(RandomSampler(1), 0, 2)
    assert one.options() == DistributedSampler(RandomSampler(1), 3, 5).options()
    assert one.options() != DistributedSampler(RandomSampler(1), 0, 2, tail="drop").options()
    assert one.options() != DistributedSampler(RandomSampler(2), 0, 2).options()
    assert one.options()["inner"]["kind"] == "RandomSampler"
    assert one.stride == 2
