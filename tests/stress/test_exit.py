"""A program with loaders ends as if it had none: in time, silently, whatever is in flight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import asyncio, gc, os, sys, threading, time
sys.path.insert(0, {tests!r})
from feedline import *
import numpy as np

class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        if i >= 8: time.sleep(30)
        return i

class SlowAsync(AsyncDataset):
    def __len__(self): return 1000
    async def __getitem__(self, i):
        if i >= 8:
            try: await asyncio.sleep(30)
            finally: CANCELLED.append(i)
        return i
    async def aclose(self):
        print("closed", flush=True)

CANCELLED = []

class SlowStream(IterableDataset):
    def __iter__(self):
        for i in range(100): yield Slow()[i]

"""

WAYS = {
    "break": "for batch in L: break",
    "break, the iterator kept": "I = iter(L); next(I)",
    "falling off the end while a thread iterates": (
        "I = iter(L); next(I)\nthreading.Thread(target=lambda: [next(I) for _ in range(9)], daemon=True).start()"
    ),
    "sys.exit": "I = iter(L); next(I); sys.exit(0)",
    "sys.exit in the loop": "for batch in L: sys.exit(0)",
    "closing": "I = iter(L); next(I); L.close()",
}
LOADERS = {
    "threads": "DataLoader(Slow(), 4, num_workers=8)",
    "lanes": "DataLoader(Slow(), 4, num_workers=2, item_concurrency=4)",
    "time limit": "DataLoader(Slow(), 4, num_workers=2, timeout=60)",
    "awaited": "DataLoader(SlowAsync(), 4, num_workers=8, item_concurrency=4)",
    "stream": "DataLoader(SlowStream(), 4, num_workers=2)",
}
#: Every way with threads, every kind with the hardest way.
CASES = [("threads", way) for way in WAYS] + [
    (kind, way) for kind in LOADERS if kind != "threads" for way in ("break, the iterator kept", "sys.exit")
]


def run(code):
    return subprocess.run(
        [sys.executable, "-c", START.format(tests=str(Path(__file__).parents[1])) + code],
        capture_output=True,
        text=True,
        timeout=20,  # items in flight take 30
        check=False,
    )


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_program_ends_with_slow_items_in_flight(kind, way) -> None:
    done = run(f"L = {LOADERS[kind]}\n{WAYS[way]}\n")
    assert (done.returncode, done.stderr) == (0, "")
    if kind == "awaited":
        assert done.stdout == "closed\n"


def test_an_error_in_the_loop_is_the_only_thing_on_the_screen() -> None:
    done = run("for batch in DataLoader(Slow(), 4, num_workers=2): 1 / 0\n")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.strip().endswith("ZeroDivisionError: division by zero")


def test_half_built_objects_are_collected_in_silence() -> None:
    done = run(
        """
for options in ({"batch_size": 0}, {"sampler": 3}, {"seed": -1}, {"num_workers": "2"}):
    try: DataLoader([1, 2], **options)
    except (TypeError, ValueError): pass
    else: raise SystemExit("accepted")
for dataset in (None, 3, list, "path"):
    try: DataLoader(dataset)
    except TypeError: pass
    else: raise SystemExit("accepted")
object.__new__(DataLoader)
gc.collect()
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_non_daemon_thread_that_consumes_ends_its_epoch_first() -> None:
    done = run(
        """
L = DataLoader(range(1000), 1, num_workers=2)
def consume():
    time.sleep(0)
    print(sum(1 for _ in L))
threading.Thread(target=consume).start()
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1000\n", "")


def test_workers_are_quiet_when_modules_are_gone() -> None:
    done = run(
        """
import builtins
builtins.kept = [iter(DataLoader(range(10**6), 2, num_workers=2)), iter(DataLoader(SlowAsync(), 2, num_workers=1))]
for one in builtins.kept: next(one)
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
