from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.batch import BatchSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.random import RandomSampler
from feedline.samplers.sequential import SequentialSampler


def every(batches):
    return [batches[k].tolist() for k in range(len(batches))]


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_the_chunks_of_the_order(drop_last):
    for length in (0, 1, 7, 8, 9, 100):
        order = RandomSampler(1).order(length, 2)[:].tolist()
        for size in (1, 4, 8, 101):
            chunks = [order[i : i + size] for i in range(0, length, size)]
            if drop_last:
                chunks = [chunk for chunk in chunks if len(chunk) == size]
            sampler = BatchSampler(RandomSampler(1), size, drop_last)
            assert every(sampler.batches(length, 2)) == chunks
            assert sampler.longest(length) == len(chunks)


def test_negative_numbers_count_from_the_end():
    assert BatchSampler(SequentialSampler(), 4).batches(10, 0)[-1].tolist() == [8, 9]
    assert BatchSampler(SequentialSampler(), 4).batches(10, 0)[np.int64(1)].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("number", [1.0, "1", None, True, slice(0, 1)])
def test_a_batch_number_is_an_int(number):
    with pytest.raises(TypeError, match="batch number must be an int"):
        BatchSampler(SequentialSampler(), 4).batches(10, 0)[number]


@pytest.mark.parametrize(
    ("size", "error"),
    [
        (0, OptionError),
        (-1, OptionError),
        (2.5, TypeError),
        ("4", TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_a_batch_size_that_is_no_positive_int_is_refused_when_built(size, error):
    with pytest.raises(error, match="batch_size must be"):
        BatchSampler(SequentialSampler(), size)


def test_drop_last_is_a_bool_and_the_sampler_a_sampler():
    with pytest.raises(TypeError, match="drop_last must be True or False"):
        BatchSampler(SequentialSampler(), 4, "no")
    with pytest.raises(TypeError, match="takes a sampler"):
        BatchSampler(range(10), 4)
    with pytest.raises(TypeError, match="write SequentialSampler"):
        BatchSampler(SequentialSampler, 4)


def test_numpy_ints_are_ints():
    assert type(BatchSampler(SequentialSampler(), np.int64(4)).batch_size) is int


def test_a_job_of_another_size_goes_on_where_the_batches_of_all_ranks_stood():
    def batches(rank, world_size, position):
        inner = DistributedSampler(RandomSampler(1), rank, world_size, "exact")
        return every(BatchSampler(inner, 5).batches_from(100, 0, position))

    seen = [i for r in range(4) for batch in batches(r, 4, 0)[:3] for i in batch]
    # Three batches on each of four ranks; then two ranks do the rest.
    rest = [i for r in range(2) for batch in batches(r, 2, 3 * 4) for i in batch]
    assert sorted(seen + rest) == list(range(100))


def test_masked_orders_tell_their_batches_where_padding_starts():
    inner = DistributedSampler(SequentialSampler(), 3, 4, "mask")
    assert BatchSampler(inner, 2).batches(10, 0).num_real == 2
    assert not hasattr(BatchSampler(SequentialSampler(), 2).batches(10, 0), "num_real")


def test_a_seed_reaches_the_sampler():
    sampler = BatchSampler(RandomSampler(1), 4)
    assert sampler.with_seed(2).seed == 2
    assert every(sampler.with_seed(2).batches(9, 0)) == every(BatchSampler(RandomSampler(2), 4).batches(9, 0))
    assert sampler.options() == {
        "batch_size": 4,
        "drop_last": False,
        "sampler": {"kind": "RandomSampler", **RandomSampler(1).options()},
    }
    assert sampler.sampler.seed == 1
