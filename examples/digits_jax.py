"""Handwritten digits in JAX, batches sharded over all devices; the last, short batch is padded and masked.

    python examples/digits_jax.py

Needs JAX and scikit-learn. On a machine with one CPU device, this makes four of it.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

from feedline import ArrayDataset, DataLoader
from feedline.jax import shard


def loss(weights, x, y, mask):
    hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
    log_p = jax.nn.log_softmax(hidden @ weights["w2"] + weights["b2"])
    each = -jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
    return (each * mask).sum() / mask.sum()


@jax.jit
def step(weights, batch):
    (x, y), mask = batch
    slope = jax.grad(loss)(weights, x, y, mask)
    return jax.tree.map(lambda w, g: w - 0.5 * g, weights, slope)


@jax.jit
def count_right(weights, batch):
    (x, y), mask = batch
    hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
    return (((hidden @ weights["w2"] + weights["b2"]).argmax(1) == y) & mask).sum()


def new_weights():
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(0, 0.1, (64, 64)), rng.normal(0, 0.1, (64, 10))
    arrays = {"w1": w1, "b1": np.zeros(64), "w2": w2, "b2": np.zeros(10)}
    return {name: jnp.asarray(array, jnp.float32) for name, array in arrays.items()}


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    x, y = (images / 16).astype(np.float32), labels.astype(np.int32)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_rows = NamedSharding(mesh, PartitionSpec("data"))

    # 1,500 items in batches of 64: the last one has 28 rows, and 36 that are masked.
    training = shard(DataLoader(ArrayDataset(x[:1500], y[:1500]), 64, shuffle=True, seed=1), by_rows)
    test = shard(DataLoader(ArrayDataset(x[1500:], y[1500:]), 64), by_rows)
    weights = jax.device_put(new_weights(), NamedSharding(mesh, PartitionSpec()))
    for _ in range(15):
        for batch in training:
            weights = step(weights, batch)
    right = sum(int(count_right(weights, batch)) for batch in test)
    print(f"accuracy on {len(jax.devices())} devices after 15 epochs: {right / 297:.1%}")
    if right < 255:
        raise SystemExit("that is too little")


if __name__ == "__main__":
    main()
