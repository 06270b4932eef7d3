"""Loaders that are slow in each known way, and whether the verdict names the way: also on a machine that is busy.

Nothing here asserts a time: a loader runs until its consumer has looked at the workers often enough.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import sys
import time
from typing import Any

import numpy as np
import pytest

from feedline import AsyncDataset, DataLoader, IterableDataset
from feedline.loader.stats import LoaderStats
from feedline.loader.switches import voluntary_switches
from feedline.loader.verdict import Verdict, judge
from loading import DEADLINE

LOOKS = 25
BLOCK = bytes(1 << 20)

needs_linux = pytest.mark.skipif(
    voluntary_switches is None, reason="the system does not tell what threads wait for"
)
needs_gil = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL in this Python"
)
pytestmark = needs_linux


class Rows:
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return np.full(4, float(index))


def hold_gil(item: Any) -> Any:
    """Take a millisecond or so, without ever letting another thread run."""
    for _ in range(20_000):
        pass
    return item


def release_gil(item: Any) -> Any:
    """Take about as long in code that leaves the GIL to others."""
    hashlib.sha256(BLOCK).digest()
    return item


def rest(item: Any) -> Any:
    """Wait, as for a disk."""
    time.sleep(0.002)
    return item


class SlowRows(Rows):
    def __init__(self, slow: Any) -> None:
        self.slow = slow

    def __getitem__(self, index: int) -> Any:
        return self.slow(super().__getitem__(index))


class Awaited(AsyncDataset):
    def __len__(self) -> int:
        return 1 << 20

    async def __getitem__(self, index: int) -> Any:
        await asyncio.sleep(0.005)
        return np.full(4, float(index))


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return (rest(np.full(4, float(index))) for index in range(1 << 20))


def run(
    dataset: Any, cores: int = 8, step: Any = None, looks: int = LOOKS, **options: Any
) -> tuple[Verdict, LoaderStats]:
    """Return verdict and numbers of a loader on a machine that has `cores`."""
    with DataLoader(dataset, batch_size=8, **options) as loader:
        end = time.monotonic() + DEADLINE
        for number, _ in enumerate(loader):
            if step is not None:
                step(number)
            stats = loader.stats()
            if stats.looks >= looks or (step is not None and number > 30):
                break
            assert time.monotonic() < end, f"only {stats.looks} looks"
        assert loader.report()
        stats = dataclasses.replace(loader.stats(), cores=cores)
    return judge(stats), stats


def test_a_fetch_that_waits() -> None:
    verdict, stats = run(SlowRows(rest), num_workers=2)
    assert (verdict.bottleneck, verdict.limit) == ("fetch", "waiting")
    assert stats.blocked_fraction is not None
    assert stats.blocked_fraction > 0.5


@needs_gil
def test_a_fetch_that_holds_the_gil() -> None:
    verdict, _stats = run(SlowRows(hold_gil), num_workers=2)
    assert (verdict.bottleneck, verdict.limit) == ("fetch", "gil")
    assert verdict.gil_fraction is not None
    assert verdict.gil_fraction > 0.75


@needs_gil
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_transform_that_holds_the_gil(workers: int) -> None:
    verdict, _ = run(Rows(), num_workers=workers, transform=hold_gil)
    assert (verdict.bottleneck, verdict.limit) == ("transform", "gil")
    assert "worker_type='process'" in verdict.advice


@pytest.mark.parametrize("workers", [1, 2])
def test_a_transform_that_releases_the_gil_and_has_too_few_workers(workers: int) -> None:
    verdict, _stats = run(Rows(), num_workers=workers, transform=release_gil)
    assert (verdict.bottleneck, verdict.limit) == ("transform", "workers")
    assert "num_workers=8" in verdict.advice


def test_a_transform_that_has_all_cores() -> None:
    verdict, _ = run(Rows(), cores=2, num_workers=2, transform=release_gil)
    assert (verdict.bottleneck, verdict.limit) == ("transform", "cpu")


def test_a_transform_that_waits() -> None:
    verdict, _ = run(Rows(), num_workers=2, transform=rest)
    assert (verdict.bottleneck, verdict.limit) == ("transform", "waiting")


@needs_gil
def test_a_collate_function_that_holds_the_gil() -> None:
    verdict, _ = run(Rows(), num_workers=2, collate_fn=lambda items: [hold_gil(item) for item in items])
    assert (verdict.bottleneck, verdict.limit) == ("collate", "gil")


def test_a_slow_step() -> None:
    # The step is as long as it takes until a batch lies ready, so that no machine is too slow for this test.
    class Patient:
        loader: Any = None

        def __call__(self, number: int) -> None:
            if number:
                hold_gil(None)
                time.sleep(0.01)

    verdict, stats = run(Rows(), num_workers=2, prefetch_depth=8, step=Patient())
    assert verdict.bottleneck in ("step", "start")
    assert stats.step_seconds > stats.wait_seconds


def test_one_slow_batch_that_holds_up_the_others() -> None:
    def uneven(item: Any) -> Any:
        if item[0] % 32 == 0:
            time.sleep(0.02)
        return item

    verdict, stats = run(Rows(), num_workers=4, prefetch_depth=0, transform=uneven)
    assert verdict.limit == "window"
    assert "prefetch_depth=4 (now 0)" in verdict.advice
    assert stats.working_fraction is not None
    assert stats.working_fraction < 0.6


def test_asynchronous_items_too_few_of_which_are_in_flight() -> None:
    verdict, stats = run(Awaited(), num_workers=2, item_concurrency=2)
    assert (verdict.bottleneck, verdict.limit) == ("fetch", "waiting")
    assert 2 < stats.in_flight <= 4.1
    assert "item_concurrency=8 (now 2)" in verdict.advice


@needs_gil
def test_a_transform_behind_asynchronous_items_that_holds_the_gil() -> None:
    verdict, _ = run(
        Awaited(), num_workers=2, item_concurrency=8, transform=lambda item: hold_gil(hold_gil(item))
    )
    assert verdict.limit == "gil"


def test_a_stream_that_is_read_slowly() -> None:
    verdict, _ = run(Stream(), num_workers=2)
    assert (verdict.bottleneck, verdict.limit) == ("fetch", "reader")


def test_processes_that_compute() -> None:
    verdict, stats = run(Rows(), num_workers=1, worker_type="process", transform=hold_gil)
    assert (verdict.bottleneck, verdict.limit) == ("transform", "workers")
    assert stats.gil_fraction is None


def test_processes_that_wait() -> None:
    verdict, _ = run(Rows(), num_workers=1, worker_type="process", transform=rest)
    assert (verdict.bottleneck, verdict.limit) == ("transform", "waiting")
    assert "worker_type='thread'" in verdict.advice


def test_the_memory_of_worker_processes_is_told_at_the_end_of_an_epoch() -> None:
    with DataLoader(list(range(8)), batch_size=4, num_workers=1, worker_type="process") as loader:
        list(loader)
        assert loader.stats().memory_bytes > 1 << 20
        assert "1 worker process with" in loader.report()


@pytest.mark.parametrize(
    ("transform", "limit", "advice"),
    [
        (rest, "waiting", "threads suffice"),
        (hold_gil, "workers", "num_workers=8"),
        (release_gil, "workers", "num_workers=8"),
    ],
)
def test_the_calling_thread_alone(transform: Any, limit: str, advice: str) -> None:
    verdict, stats = run(Rows(), looks=3, transform=transform)
    assert (verdict.bottleneck, verdict.limit) == ("transform", limit)
    assert advice in verdict.advice
    assert stats.gil_fraction is None


def test_batches_that_cost_less_than_a_hand_over() -> None:
    verdict, _ = run(list(range(200_000)), looks=10, num_workers=2)
    assert verdict.limit == "handover"
    assert "num_workers=0" in verdict.advice


def test_epochs_of_which_only_the_start_is_slow() -> None:
    def slow_first(item: int) -> int:
        if item == 0:
            time.sleep(0.05)
        return item

    with DataLoader(list(range(64)), batch_size=4, num_workers=2, transform=slow_first) as loader:
        for _ in range(3):
            for _ in loader:
                time.sleep(0.004)
        stats = loader.stats()
    assert stats.epochs == 3
    assert stats.first_wait_seconds > stats.wait_seconds / 2
