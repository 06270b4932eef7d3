"""Run by a test in a process of its own, which has four virtual devices."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import feedline
from feedline.jax import shard

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
by_rows = NamedSharding(mesh, PartitionSpec("data"))
x = np.arange(40 * 6, dtype=np.float32).reshape(40, 6)
loader = feedline.DataLoader(feedline.ArrayDataset(x, np.arange(40, dtype=np.int32)), 16, shuffle=True)

for epoch in range(2):
    seen = []
    for batch in shard(loader, by_rows):
        assert batch.data[0].sharding == by_rows
        assert batch.data[0].shape == (16, 6)
        assert {part.data.shape for part in batch.data[0].addressable_shards} == {(8, 6)}
        mask = np.asarray(batch.mask)
        index = np.asarray(batch.data[1])[mask]
        assert np.array_equal(np.asarray(batch.data[0])[mask], x[index])
        seen.extend(index.tolist())
    assert sorted(seen) == list(range(40)), epoch

# A function chooses for each array; here, columns are spread as well.
both = NamedSharding(mesh, PartitionSpec("data", "model"))
for batch in shard(loader, lambda array: both if array.ndim == 2 else by_rows, tail="drop"):
    assert {part.data.shape for part in batch[0].addressable_shards} == {(8, 3)}
    assert batch[1].sharding == by_rows

odd = feedline.DataLoader(feedline.ArrayDataset(x), 15)
with pytest.raises(ValueError, match="batch_size"):
    next(iter(shard(odd, by_rows)))
