"""`shard`: global arrays over several devices, masks for tails, two batches ahead, the consumer's position."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs JAX: scripts/test --all")

import feedline  # noqa: E402
from feedline.errors import OptionError  # noqa: E402
from feedline.jax import shard  # noqa: E402

ONE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
SCRIPT = Path(__file__).with_name("on_four_devices.py")


def rows(n: int = 10, batch_size: int = 4, **options) -> feedline.DataLoader:
    x = np.arange(n * 2, dtype=np.float32).reshape(n, 2)
    return feedline.DataLoader(feedline.ArrayDataset(x, np.arange(n, dtype=np.int32)), batch_size, **options)


def test_batches_are_arrays_of_one_shape_with_masks() -> None:
    batches = list(shard(rows(), ONE))
    assert [type(batch) for batch in batches] == [feedline.MaskedBatch] * 3
    assert {batch.data[0].shape for batch in batches} == {(4, 2)}
    assert all(isinstance(batch.data[0], jax.Array) for batch in batches)
    real = np.concatenate([np.asarray(batch.data[1])[np.asarray(batch.mask)] for batch in batches])
    assert real.tolist() == list(range(10))
    assert batches[-1].mask.tolist() == [True, True, False, False]


def test_a_step_is_compiled_once() -> None:
    traced = []

    @jax.jit
    def step(batch):
        traced.append(1)
        return (batch.data[0].sum(1) * batch.mask).sum()

    total = sum(float(step(batch)) for batch in shard(rows(), ONE))
    assert total == np.arange(20).sum()
    assert len(traced) == 1


def test_a_short_batch_is_dropped_or_refused_if_asked_for() -> None:
    dropped = shard(rows(), ONE, tail="drop")
    assert [batch[1].tolist() for batch in dropped] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ValueError, match="drop_last=True"):
        list(shard(rows(), ONE, tail="error"))
    assert len(list(shard(rows(drop_last=True), ONE, tail="error"))) == 2


def test_masks_of_the_sampler_are_kept() -> None:
    sampler = feedline.DistributedSampler(feedline.SequentialSampler(), 1, 2, tail="mask")
    loader = feedline.DataLoader(np.arange(7, dtype=np.int32), 3, sampler=sampler)
    batches = list(shard(loader, ONE))
    assert [batch.mask.tolist() for batch in batches] == [[True, True, True], [False, False, False]]


def test_structure_and_what_is_no_array_stay_as_they_are() -> None:
    items = [{"x": np.ones(2, np.float32), "name": f"n{i}", "pair": (i, np.float32(2))} for i in range(3)]
    batch = next(iter(shard(feedline.DataLoader(items, 2, drop_last=True), ONE, tail="error")))
    assert batch["name"] == ["n0", "n1"]
    assert isinstance(batch["pair"], tuple)
    assert isinstance(batch["x"], jax.Array)
    mixed = next(iter(shard([{"x": np.ones((2, 3)), "epoch": 3, "scale": np.float32(2)}], ONE, tail="error")))
    assert mixed["epoch"] == 3
    assert type(mixed["scale"]) is np.float32


def test_batches_of_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch", reason="needs torch: scripts/test --all")
    assert next(iter(shard([torch.ones(2, 2)], ONE, tail="error"))).shape == (2, 2)


def test_nothing_is_copied_on_the_cpu_and_memory_is_not_reused_while_jax_has_it() -> None:
    x = np.arange(64 * 1024, dtype=np.float32).reshape(1024, 64)
    loader = feedline.DataLoader(feedline.ArrayDataset(x), 256)
    addresses = []

    class Spy:
        def __iter__(self):
            for batch in loader:
                addresses.append(batch[0].ctypes.data)
                yield batch

    batches = list(shard(Spy(), ONE, tail="error"))
    if jax.devices()[0].platform == "cpu":
        assert [batch[0].unsafe_buffer_pointer() for batch in batches] == addresses
    assert all(np.array_equal(batch[0], x[k * 256 : (k + 1) * 256]) for k, batch in enumerate(batches))
    assert len(set(addresses)) == 4


def test_two_batches_are_ahead_and_the_state_is_the_consumers() -> None:
    pulled = []

    class Noted:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int):
            pulled.append(index)
            return np.full(2, index, np.int32)

    loader = shard(feedline.DataLoader(Noted(), 1), ONE)
    iterator = iter(loader)
    assert int(next(iterator).data[0, 0]) == 0
    assert pulled == [0, 1, 2]
    state = loader.state_dict()
    assert state["position"] == 1
    resumed = shard(feedline.DataLoader(Noted(), 1), ONE)
    resumed.load_state_dict(state)
    assert [int(batch.data[0, 0]) for batch in resumed] == list(range(1, 10))
    assert len(loader) == 10
    assert len(iterator) == 9
    assert loader.epoch == 1


def test_integers_that_would_be_cut_are_an_error_of_their_batch() -> None:
    if jax.config.jax_enable_x64:
        pytest.skip("64-bit integers are kept here")
    iterator = iter(shard([np.array([2**40]), np.array([7])], ONE))
    with pytest.raises(OverflowError, match="jax_enable_x64"):
        next(iterator)
    assert next(iterator).data.tolist() == [7]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tail": "pad"}, OptionError),
        ({"tail": 3}, TypeError),
        ({"ahead": -1}, OptionError),
        ({"ahead": "2"}, TypeError),
    ],
)
def test_mistakes_are_told_at_once(options, error) -> None:
    with pytest.raises(error):
        shard(rows(), ONE, **options)
    with pytest.raises(TypeError, match="Sharding"):
        shard(rows(), "data")


def test_ranks_with_unequal_numbers_of_steps_are_refused() -> None:
    sampler = feedline.DistributedSampler(rank=0, world_size=2, tail="exact")
    with pytest.raises(OptionError, match='tail="mask"'):
        shard(rows(sampler=sampler), ONE)


def test_batches_without_rows_or_with_unequal_ones_are_refused() -> None:
    for batch in ({"a": 1}, (np.ones(2), np.ones(3))):
        with pytest.raises(ValueError, match="axis 0"):
            next(iter(shard([batch], ONE)))


def test_rows_are_spread_over_several_devices() -> None:
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    found = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0, found.stderr
