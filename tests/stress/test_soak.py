"""Minutes of everything at once: kinds of workers, faults, early exits; no batch is wrong, and memory stays flat.

    FEEDLINE_SOAK_MINUTES=10 python -m pytest tests/stress/test_soak.py -m soak

Left out of ordinary runs: it skips itself unless it is asked for with `-m soak`.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from feedline import AsyncDataset, DataLoader, WorkerDied
from leftovers import Snapshot, left_since

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

MINUTES = float(os.environ.get("FEEDLINE_SOAK_MINUTES", "10"))
RUN_SECONDS = 120
ITEMS = 240
WIDTH = 3_000


class Faulty:
    """Rows that are a function of their index; some items raise, and now and then one kills its worker."""

    def __init__(self, rng, is_process):
        self.bad = frozenset(rng.sample(range(ITEMS), 3)) if rng.random() < 0.5 else frozenset()
        self.deadly = rng.randrange(ITEMS) if is_process and rng.random() < 0.3 else -1
        self.how = rng.choice(["kill", "exit"])

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        if index == self.deadly:
            os._exit(7) if self.how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
        if index in self.bad:
            raise LookupError(f"item {index} is bad")
        return np.full(WIDTH, index, np.float32)


class Awaited(AsyncDataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    async def __getitem__(self, index):
        return self.inner[index]


def one_run(rng):
    """Iterate some epochs, whole or not, and check every batch; return how many came."""
    kind = rng.choice(["serial", "thread", "process", "process", "process"])
    dataset = Faulty(rng, kind == "process")
    options = {
        "batch_size": rng.choice([1, 7, 16, 60]),
        "shuffle": rng.random() < 0.5,
        "num_workers": 0 if kind == "serial" else rng.randint(1, 3),
        "worker_type": "process" if kind == "process" else "thread",
        "in_order": rng.random() < 0.7,
        "on_error": rng.choice(["raise", "skip", "substitute"]),
        "item_concurrency": rng.choice([1, 1, 4]),
        "timeout": rng.choice([None, None, 30]),
    }
    is_async = rng.random() < 0.25 and dataset.deadly < 0
    loader = DataLoader(Awaited(dataset) if is_async else dataset, **options)
    batches = 0
    for _ in range(rng.randint(1, 3)):
        stop = rng.randint(1, 40) if rng.random() < 0.5 else ITEMS
        kept = []
        iterator = loader.iter_with_indices()
        while batches < stop * 3:
            try:
                indices, batch = next(iterator)
            except StopIteration:
                break
            except LookupError:
                assert dataset.bad
                continue
            except WorkerDied:
                assert dataset.deadly >= 0
                continue
            assert batch.shape == (len(indices), WIDTH)
            assert np.array_equal(batch[:, 0], np.array(indices, np.float32))
            assert np.array_equal(batch[:, -1], batch[:, 0])
            if rng.random() < 0.1:
                kept.append((indices, batch))
            batches += 1
        for indices, batch in kept:
            # What the user holds was not written over by what came later.
            assert np.array_equal(batch[:, 7], np.array(indices, np.float32))
        if rng.random() < 0.3:
            break  # the iterator is dropped with batches in flight
    if rng.random() < 0.5:
        loader.close()
    return batches


def watched_run(rng):
    # In the place of the limit for one test: a run that hangs ends everything with the stacks of all threads.
    faulthandler.dump_traceback_later(RUN_SECONDS, exit=True)
    try:
        return one_run(rng)
    finally:
        faulthandler.cancel_dump_traceback_later()


def resident_megabytes():
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) / 1e3
    raise LookupError("smaps_rollup has no Pss_Anon")


def test_hours_of_use_change_nothing(request):
    if "soak" not in (request.config.option.markexpr or ""):
        pytest.skip("takes minutes; run with -m soak")
    seed = int(os.environ.get("FEEDLINE_SOAK_SEED", time.time_ns() % 2**32))
    print(f"seed {seed}, {MINUTES:g} minutes")
    rng = random.Random(seed)
    end = time.monotonic() + MINUTES * 60
    for _ in range(20):
        watched_run(rng)
    before = Snapshot.take()
    memory, runs, batches, next_look = [], 0, 0, 0.0
    while time.monotonic() < end:
        batches += watched_run(rng)
        runs += 1
        if time.monotonic() > next_look:
            next_look = time.monotonic() + MINUTES * 60 / 20
            gc.collect()
            memory.append(resident_megabytes())
            print(f"{runs} runs, {batches} batches, {memory[-1]:.1f} MB", flush=True)
    assert left_since(before, 20) == []
    assert runs > 0
    third = max(1, len(memory) // 3)
    # The level of the last third against the first: what is kept is bounded, and does not grow with use.
    assert min(memory[-third:]) < min(memory[:third]) + 30, memory
