"""The orders are frozen: what a seed gave once, it gives for ever, on every platform and with every NumPy.

`orders.json` was written by the release that introduced these orders. A test that fails here means that users' runs
can't be repeated or resumed: mend the code, not the file. New cases go into a file of their own (`python test_orders.py
orders_2.json`, which never overwrites).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from feedline.samplers.batch import BatchSampler
from feedline.samplers.bucket import LengthBucketSampler
from feedline.samplers.distributed import DistributedSampler
from feedline.samplers.random import RandomSampler
from feedline.samplers.shard import ShardSampler
from feedline.samplers.weighted import WeightedSampler

HERE = Path(__file__).parent
SEEDS = (0, 1, 42, 2**64 - 1)
EPOCHS = (0, 1, 7)
LENGTHS = (0, 1, 2, 10, 1000, 100_003)
HUGE = 10**10
STARTS = (0, 123, 5_000_000_000, HUGE - 5)


def weights(length):
    return (np.arange(length) * 7919 % 1009).astype(np.float64) + (length == 1)


def item_lengths(length):
    return np.arange(length) * 7919 % 509


def kinds(seed, length):
    """Every kind of order, by its name in the file."""
    constant = RandomSampler(seed, memory="constant")
    yield "shuffle", RandomSampler(seed)
    yield "constant", constant
    yield "replacement", RandomSampler(seed, replacement=True)
    yield "samples", RandomSampler(seed, num_samples=2 * length + 1)
    if length != 2 and length != 0:
        yield "weighted", WeightedSampler(weights(length), length, seed)
    yield "shard", ShardSampler(RandomSampler(seed), 1, 3)
    yield "distributed", DistributedSampler(constant, rank=1, world_size=3)


def written(indices):
    """Return the indices themselves if they are few, else how they begin and a digest of all."""
    values = [int(index) for index in indices]
    if len(values) <= 10:
        return values
    digest = hashlib.sha256(np.asarray(values, "<i8").tobytes()).hexdigest()
    return {"count": len(values), "first": values[:8], "sha256": digest}


def orders():
    for seed in SEEDS:
        for length in LENGTHS:
            for kind, sampler in kinds(seed, length):
                for epoch in EPOCHS if length <= 1000 else EPOCHS[:1]:
                    yield f"{kind} seed={seed} epoch={epoch} n={length}", sampler.order(length, epoch)[:]


def huge_orders():
    for seed in SEEDS:
        for epoch in EPOCHS:
            for length in (HUGE, 2**40 + 1, 2**63 - 1):
                order = RandomSampler(seed, memory="constant").order(length, epoch)
                for start in STARTS:
                    yield (
                        f"constant seed={seed} epoch={epoch} n={length} from={start}",
                        order[start : start + 5],
                    )
            draws = RandomSampler(seed, replacement=True).order(HUGE, epoch)
            yield f"replacement seed={seed} epoch={epoch} n={HUGE}", draws[HUGE - 5 :]
            # A third of all words is drawn again: those above twice this length.
            third = 2**64 // 3 + 1
            draws = RandomSampler(seed, replacement=True, num_samples=50).order(third, epoch)
            yield f"replacement seed={seed} epoch={epoch} n={third}", draws[:]


def batches():
    for seed in SEEDS:
        for length in LENGTHS[:-1]:
            for name, options in (
                ("rows", {"batch_size": 7}),
                ("tokens", {"max_tokens": 2048}),
                ("both", {"batch_size": 8, "max_tokens": 2048, "pool_size": 100}),
            ):
                made = LengthBucketSampler(item_lengths(length), seed=seed, **options).batches(length, 3)
                flat = [index for k in range(len(made)) for index in [-1, *made[k].tolist()]]
                yield f"bucket by {name} seed={seed} epoch=3 n={length}", flat
            chunks = BatchSampler(RandomSampler(seed), 7, drop_last=True).batches(length, 3)
            flat = [index for k in range(len(chunks)) for index in [-1, *chunks[k].tolist()]]
            yield f"batches seed={seed} epoch=3 n={length}", flat


def render():
    return {name: written(indices) for part in (orders, huge_orders, batches) for name, indices in part()}


@pytest.fixture(scope="module")
def golden():
    return json.loads((HERE / "orders.json").read_text())


@pytest.fixture(scope="module")
def present():
    return render()


def test_the_file_and_the_cases_are_the_same_set(golden, present):
    assert set(golden) == set(present)
    assert len(golden) > 500


@pytest.mark.parametrize(
    "kind",
    [
        "shuffle",
        "constant",
        "replacement",
        "samples",
        "weighted",
        "shard",
        "distributed",
        "bucket",
        "batches",
    ],
)
def test_orders_are_what_they_always_were(kind, golden, present):
    names = [name for name in golden if name.startswith(kind + " ")]
    assert names
    assert {name: present[name] for name in names} == {name: golden[name] for name in names}


def test_what_is_frozen_are_real_shuffles(golden):
    assert sorted(golden["shuffle seed=0 epoch=0 n=10"]) == list(range(10))
    assert golden["shuffle seed=0 epoch=0 n=10"] != golden["shuffle seed=0 epoch=1 n=10"]
    assert golden["shuffle seed=42 epoch=1 n=1000"] != golden["shuffle seed=1 epoch=0 n=1000"]


if __name__ == "__main__":
    with (HERE / sys.argv[1]).open("x") as file:
        json.dump(render(), file, indent=0, sort_keys=True)
        file.write("\n")
