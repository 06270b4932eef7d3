"""Every sampler keeps to the published contract."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.samplers.batch import BatchSampler
from feedline.samplers.bucket import LengthBucketSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.distributed_batch import DistributedBatchSampler
from feedline.samplers.protocol import BatchSamplerProtocol, Sampler
from feedline.samplers.random import RandomSampler
from feedline.samplers.sequential import SequentialSampler
from feedline.samplers.shard import ShardSampler
from feedline.samplers.weighted import WeightedSampler
from feedline.testing.sampler_contract import BatchSamplerContract, SamplerContract


def weighted(length: int, seed: int = 3) -> WeightedSampler:
    weights = np.arange(length) % 7 + 0.5
    return WeightedSampler(weights, num_samples=2 * length, seed=seed)


class TestSequential(SamplerContract):
    def make_sampler(self, length):
        return SequentialSampler()

    def test_it_is_a_sampler_by_the_protocol(self):
        assert isinstance(self.make_sampler(1), Sampler)


class TestRandom(SamplerContract):
    def make_sampler(self, length):
        return RandomSampler(3)


class TestRandomUnseeded(SamplerContract):
    # One sampler with entropy of its own: equal each time only as long as it is the same one.
    sampler = RandomSampler(None)

    def make_sampler(self, length):
        return self.sampler


class TestRandomConstant(SamplerContract):
    lengths = (0, 1, 2, 10, 4096, 4097, 5000)

    def make_sampler(self, length):
        return RandomSampler(3, memory="constant")


class TestRandomReplacement(SamplerContract):
    def make_sampler(self, length):
        return RandomSampler(3, replacement=True)


class TestRandomSeveralShuffles(SamplerContract):
    def make_sampler(self, length):
        return RandomSampler(3, num_samples=2 * length + 5)


class TestRandomSeveralConstantShuffles(SamplerContract):
    lengths = (0, 1, 10, 4100)

    def make_sampler(self, length):
        return RandomSampler(3, num_samples=2 * length + 5, memory="constant")


class TestWeighted(SamplerContract):
    def make_sampler(self, length):
        return weighted(length)


class TestShard(SamplerContract):
    def make_sampler(self, length):
        return ShardSampler(RandomSampler(3), 1, 3)


class TestDistributed(SamplerContract):
    tails = ("pad", "drop", "exact", "mask")

    @pytest.fixture(autouse=True, params=tails)
    def tail(self, request):
        self.chosen = request.param

    def make_sampler(self, length):
        return DistributedSampler(RandomSampler(3), rank=2, world_size=4, tail=self.chosen)


class TestDistributedConstant(SamplerContract):
    lengths = (0, 1, 3, 5000)

    def make_sampler(self, length):
        return DistributedSampler(RandomSampler(3, memory="constant"), rank=1, world_size=3)


class TestDistributedWeighted(SamplerContract):
    def make_sampler(self, length):
        return DistributedSampler(weighted(length), rank=1, world_size=3, tail="mask")


class TestDistributedShard(SamplerContract):
    def make_sampler(self, length):
        return DistributedSampler(ShardSampler(RandomSampler(3), 0, 2), rank=1, world_size=3)


class TestShardDistributed(SamplerContract):
    def make_sampler(self, length):
        return ShardSampler(DistributedSampler(RandomSampler(3), rank=1, world_size=3), 1, 2)


class TestBatch(BatchSamplerContract):
    def make_sampler(self, length):
        return BatchSampler(RandomSampler(3), batch_size=4, drop_last=False)

    def test_it_is_a_batch_sampler_by_the_protocol(self):
        assert isinstance(self.make_sampler(1), BatchSamplerProtocol)
        assert not isinstance(self.make_sampler(1), Sampler)


class TestBatchDropLast(BatchSamplerContract):
    def make_sampler(self, length):
        return BatchSampler(RandomSampler(3), batch_size=4, drop_last=True)


class TestBatchDistributed(BatchSamplerContract):
    def make_sampler(self, length):
        inner = DistributedSampler(RandomSampler(3), rank=1, world_size=3)
        return BatchSampler(inner, batch_size=4, drop_last=False)


class TestBucketByRows(BatchSamplerContract):
    def make_sampler(self, length):
        return LengthBucketSampler(np.arange(length) * 37 % 101, batch_size=4, seed=3, pool_size=32)


class TestBucketByTokens(BatchSamplerContract):
    def make_sampler(self, length):
        return LengthBucketSampler(np.arange(length) * 37 % 101, max_tokens=300, seed=3, pool_size=32)


class TestDistributedBatch(BatchSamplerContract):
    @pytest.fixture(autouse=True, params=("pad", "drop", "exact"))
    def tail(self, request):
        self.chosen = request.param

    def make_sampler(self, length):
        inner = LengthBucketSampler(np.arange(length) * 37 % 101, batch_size=4, seed=3)
        return DistributedBatchSampler(inner, rank=1, world_size=3, tail=self.chosen)
