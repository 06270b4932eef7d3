"""What holds of samplers for any length, world size, split and change of world size in mid-epoch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.samplers.batch import BatchSampler
from feedline.samplers.bucket import LengthBucketSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.random import RandomSampler
from feedline.samplers.sequential import SequentialSampler
from feedline.samplers.shard import ShardSampler
from feedline.samplers.weighted import WeightedSampler

TAILS = st.sampled_from(["pad", "drop", "exact", "mask"])
lengths = st.integers(0, 200)
worlds = st.integers(1, 24)
seeds = st.integers(0, 2**64 - 1)


@st.composite
def inner_samplers(draw):
    """Return (sampler, length) with samplers of all kinds that give single indices."""
    length, seed = draw(lengths), draw(seeds)
    kind = draw(
        st.sampled_from(["sequential", "shuffle", "constant", "draws", "samples", "weighted", "shard"])
    )
    if kind == "sequential":
        return SequentialSampler(), length
    if kind == "shuffle":
        return RandomSampler(seed), length
    if kind == "constant":
        return RandomSampler(seed, memory="constant"), draw(st.integers(4097, 4200))
    if kind == "draws":
        return RandomSampler(seed, replacement=True, num_samples=draw(lengths)), length
    if kind == "samples":
        return RandomSampler(seed, num_samples=draw(lengths)), length
    if kind == "weighted":
        return WeightedSampler(np.arange(1, length + 1), draw(lengths) if length else 0, seed), length
    count = draw(st.integers(1, 5))
    return ShardSampler(RandomSampler(seed), draw(st.integers(0, count - 1)), count), length


@given(inner_samplers(), st.integers(-250, 250), st.integers(-250, 250))
@settings(max_examples=60)
def test_any_slice_is_that_of_the_whole_list(sampler_and_length, first, last):
    sampler, length = sampler_and_length
    whole = sampler.order(length, 3)[:].tolist()
    order = sampler.order(length, 3)
    assert order[first:last].tolist() == whole[first:last]


@given(st.integers(2, 2**63 - 1), seeds, st.integers(0, 2**63 - 1), st.integers(0, 300))
@settings(max_examples=60)
def test_constant_memory_gives_different_items_in_range_at_any_length_and_place(length, seed, start, count):
    start %= length
    part = RandomSampler(seed, memory="constant").order(length, 0)[start : start + count]
    assert len(part) == min(count, length - start)
    assert len(np.unique(part)) == len(part)
    assert ((part >= 0) & (part < length)).all()


@given(
    inner_samplers(), TAILS, st.lists(st.tuples(worlds, st.integers(0, 60)), min_size=1, max_size=4), worlds
)
@settings(max_examples=150)
def test_changes_of_world_size_lose_and_repeat_nothing(sampler_and_length, tail, legs, last_world):
    """A job runs some steps, stops, goes on with another number of ranks, and so on to the end of the epoch."""
    sampler, length = sampler_and_length
    whole = sampler.order(length, 1)[:].tolist()
    position, delivered, padding = 0, [], 0
    for world_size, steps in [*legs, (last_world, 10**6)]:
        orders = [
            DistributedSampler(sampler, rank, world_size, tail).order_from(length, 1, position)
            for rank in range(world_size)
        ]
        counts = [len(order) for order in orders]
        assert max(counts) == DistributedSampler(sampler, 0, world_size, tail).longest(length, position)
        if tail != "exact":
            assert len(set(counts)) == 1
        # Ranks step together; one that has nothing left (exact) sits out.
        steps = min(steps, max(counts))
        rows = [order[:steps].tolist() for order in orders]
        reals = [getattr(order, "num_real", len(order)) for order in orders]
        for step in range(steps):
            for row, real in zip(rows, reals):
                if step < len(row):
                    if step < real:
                        delivered.append(row[step])
                    else:
                        padding += 1
        position += steps * world_size
    if tail in ("exact", "mask"):
        assert delivered == whole
        assert padding < max(world for world, _ in [*legs, (last_world, 0)])
    elif tail == "pad":
        assert delivered[: len(whole)] == whole
        assert delivered == [whole[p % len(whole)] for p in range(len(delivered))]
    else:
        assert delivered == whole[: len(delivered)]
        assert len(whole) - len(delivered) < last_world


@given(inner_samplers(), TAILS, worlds, st.data())
@settings(max_examples=80)
def test_the_rest_of_an_order_is_what_the_order_goes_on_with(sampler_and_length, tail, world_size, data):
    sampler, length = sampler_and_length
    rank = data.draw(st.integers(0, world_size - 1))
    dealt = DistributedSampler(sampler, rank, world_size, tail)
    whole = dealt.order(length, 0)
    done = data.draw(st.integers(0, len(whole)))
    rest = dealt.order_from(length, 0, done * world_size)
    assert rest[:].tolist() == whole[done:].tolist()
    if tail == "mask":
        assert rest.num_real == max(0, whole.num_real - done)


@given(lengths, st.integers(1, 30), st.booleans(), worlds, TAILS, st.data())
@settings(max_examples=80)
def test_batches_of_a_rank_are_the_chunks_of_its_order(length, size, drop_last, world_size, tail, data):
    inner = DistributedSampler(RandomSampler(2), data.draw(st.integers(0, world_size - 1)), world_size, tail)
    sampler = BatchSampler(inner, size, drop_last)
    batches = sampler.batches(length, 0)
    order = inner.order(length, 0)[:].tolist()
    chunks = [order[i : i + size] for i in range(0, len(order), size)]
    if drop_last and chunks and len(chunks[-1]) < size:
        chunks.pop()
    assert [batches[k].tolist() for k in range(len(batches))] == chunks
    done = data.draw(st.integers(0, len(chunks)))
    rest = sampler.batches_from(length, 0, done * world_size)
    assert [rest[k].tolist() for k in range(len(rest))] == chunks[done:]
    assert sampler.longest(length, done * world_size) >= len(rest)


@given(lengths, st.integers(1, 12), seeds, st.integers(0, 5))
@settings(max_examples=60)
def test_shards_part_the_items(length, count, seed, epoch):
    parts = [
        ShardSampler(RandomSampler(seed), shard, count).order(length, epoch)[:] for shard in range(count)
    ]
    assert np.sort(np.concatenate(parts)).tolist() == list(range(length))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(
    st.lists(st.integers(0, 300), max_size=200),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(300, 3000)),
    st.one_of(st.none(), st.integers(1, 250)),
    seeds,
)
@settings(max_examples=100)
def test_buckets_have_every_item_once_within_their_limits(sizes, batch_size, max_tokens, pool_size, seed):
    if batch_size is None and max_tokens is None:
        batch_size = 8
    sampler = LengthBucketSampler(sizes, batch_size, max_tokens, seed, pool_size=pool_size)
    made = sampler.batches(len(sizes), 0)
    batches = [made[k].tolist() for k in range(len(made))]
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    for batch in batches:
        assert 0 < len(batch) <= (batch_size or len(sizes))
        assert max_tokens is None or len(batch) * max(sizes[i] for i in batch) <= max_tokens


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=60).filter(any), seeds, st.integers(0, 10**15))
@settings(max_examples=60)
def test_weighted_draws_are_in_range_and_never_of_weight_zero(weights, seed, start):
    order = WeightedSampler(weights, 2 * 10**15, seed).order(len(weights), 0)
    draws = order[start : start + 100]
    assert len(draws) == 100
    assert all(weights[index] > 0 for index in draws.tolist())
    assert order[start + 17 : start + 60].tolist() == draws[17:60].tolist()
