"""One process of a JAX job; run by a test, as `jax_rank.py RANK WORLD_SIZE PORT`."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import feedline
from feedline.jax import shard

rank, world_size, port = map(int, sys.argv[1:4])
jax.distributed.initialize(f"127.0.0.1:{port}", world_size, rank, initialization_timeout=60)

assert feedline.running_job() == (rank, world_size)
assert len(jax.devices()) == 2 * world_size
mesh = Mesh(np.array(jax.devices()), ("data",))
by_rows = NamedSharding(mesh, PartitionSpec("data"))


def loader(n: int, tail: str) -> feedline.DataLoader:
    x = np.arange(n * 2, dtype=np.float32).reshape(n, 2)
    # Neither rank nor world size is told: they are those of the job.
    sampler = feedline.DistributedSampler(tail=tail)
    return feedline.DataLoader(feedline.ArrayDataset(x, np.arange(n, dtype=np.int32)), 4, sampler=sampler)


@jax.jit
def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    return (values * mask).sum()


def gathered(value: jax.Array) -> np.ndarray:
    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


for n in (1, 10, 16, 21):
    one = loader(n, "mask")
    for _epoch in range(2):
        rows: list[int] = []
        for batch in shard(one, by_rows):
            assert batch.data[0].shape == (4 * world_size, 2)
            assert batch.data[0].sharding == by_rows
            mask, index = gathered(batch.mask), gathered(batch.data[1])
            assert float(masked_sum(batch.data[1], batch.mask)) == index[mask].sum()
            rows += index[mask].tolist()
        assert sorted(rows) == list(range(n)), (n, rows)

for n in (9, 22):
    for tail in ("pad", "drop"):
        steps = multihost_utils.process_allgather(np.array([sum(1 for _ in shard(loader(n, tail), by_rows))]))
        assert len(set(steps.reshape(-1).tolist())) == 1, (n, tail, steps)

# The state is the consumer's, and the same on all ranks.
wrapped = shard(loader(40, "mask"), by_rows)
iterator = iter(wrapped)
next(iterator)
positions = multihost_utils.process_allgather(np.array([wrapped.state_dict()["position"]]))
assert positions.reshape(-1).tolist() == [4 * world_size] * world_size

numbers = [3, 0, 2, 0, 5, 1, 0]
failing = feedline.DataLoader(
    numbers,
    2,
    sampler=feedline.DistributedSampler(feedline.SequentialSampler(), tail="exact"),
    on_error="skip",
    transform=lambda item: 1 / item,
)
list(failing)
assert sorted(failure.index for failure in feedline.gather_failures(failing)) == [1, 3, 6]
assert len(failing.failures) < 3
jax.distributed.shutdown()
