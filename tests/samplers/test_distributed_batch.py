from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.batch import BatchSampler
from feedline.samplers.bucket import LengthBucketSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.distributed_batch import DistributedBatchSampler
from feedline.samplers.random import RandomSampler

LENGTHS = np.arange(200) * 7919 % 97


def every(batches):
    return [batches[k].tolist() for k in range(len(batches))]


@pytest.mark.parametrize("tail", ["pad", "drop", "exact"])
@pytest.mark.parametrize("limits", [{"batch_size": 6}, {"max_tokens": 300}, {"batch_size": 100}])
def test_whole_batches_are_dealt_out(tail, limits):
    inner = LengthBucketSampler(LENGTHS, seed=1, **limits)
    whole = every(inner.batches(200, 3))
    for world_size in (1, 2, 3, 7, 50):
        parts = [
            every(DistributedBatchSampler(inner, r, world_size, tail).batches(200, 3))
            for r in range(world_size)
        ]
        sizes = [len(part) for part in parts]
        assert DistributedBatchSampler(inner, 0, world_size, tail).longest(200, epoch=3) == max(sizes)
        dealt = [parts[k % world_size][k // world_size] for k in range(sum(sizes))]
        if tail == "exact":
            assert dealt == whole
            assert max(sizes) - min(sizes) <= 1
        else:
            rounds = len(whole) // world_size if tail == "drop" else -(-len(whole) // world_size)
            assert sizes == [rounds] * world_size
            assert dealt == [whole[k % len(whole)] for k in range(rounds * world_size)]


def test_a_job_of_another_size_goes_on_with_the_batches_that_are_left():
    inner = LengthBucketSampler(LENGTHS, max_tokens=300, seed=1)
    whole = every(inner.batches(200, 0))
    rest = [
        every(DistributedBatchSampler(inner, r, 3, "exact").batches_from(200, 0, 2 * 4)) for r in range(3)
    ]
    dealt = [rest[k % 3][k // 3] for k in range(sum(map(len, rest)))]
    assert dealt == whole[8:]
    beyond = DistributedBatchSampler(inner, 0, 3).batches_from(200, 0, 2**70)
    assert every(beyond) == []


def test_an_empty_dataset_has_no_batches():
    for tail in ("pad", "drop", "exact"):
        assert every(DistributedBatchSampler(LengthBucketSampler([], 4), 1, 3, tail).batches(0, 0)) == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"inner": RandomSampler()}, TypeError, "takes a sampler with batches"),
        ({"inner": LengthBucketSampler}, TypeError, r"write LengthBucketSampler\(\.\.\.\)"),
        ({"inner": LengthBucketSampler([1], 2, seed=None)}, OptionError, "same seed"),
        (
            {"inner": BatchSampler(DistributedSampler(RandomSampler(), 0, 2), 3)},
            OptionError,
            "deals them out",
        ),
        ({"rank": 2, "world_size": 2}, OptionError, "rank must be below world_size"),
        ({"tail": "mask"}, OptionError, "tail must be one of 'pad', 'drop', 'exact', not 'mask'"),
    ],
)
def test_bad_arguments_are_refused_by_name_when_built(given, error, message):
    with pytest.raises(error, match=message):
        DistributedBatchSampler(**{"inner": LengthBucketSampler([1], 2), "rank": 0, "world_size": 2, **given})


def test_a_seed_reaches_the_inner_sampler_and_options_leave_the_ranks_out():
    sampler = DistributedBatchSampler(LengthBucketSampler(LENGTHS, 6, seed=1), 1, 2)
    other = sampler.with_seed(2)
    expected = DistributedBatchSampler(LengthBucketSampler(LENGTHS, 6, seed=2), 1, 2)
    assert every(other.batches(200, 0)) == every(expected.batches(200, 0))
    assert sampler.options() == DistributedBatchSampler(sampler.inner, 3, 9).options()
    assert sampler.stride == 2
