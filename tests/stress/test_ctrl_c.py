"""Ctrl-C at every moment at which CPython can deliver it: no batch is lost, none comes twice, and the state is right."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from feedline import ArrayDataset, DataLoader, shuffle_buffer
from interrupting import walk
from loading import AsyncSquares, Broken, CountingStream, Many, SeekableStream, Squares

N = 13


class Generated:
    def __iter__(self):
        yield from range(N - 1, -1, -1)


class Delivering(DataLoader):
    """Does something to each batch when it is handed out."""

    def _delivery(self):
        return dict


def skipping():
    return DataLoader(Broken(N, bad=(2, 5, 6, 7, 8)), 3, on_error="skip")


LOADERS = {
    "items": lambda: DataLoader(Squares(N), 3),
    "items, with a transform": lambda: DataLoader(Squares(N), 3, transform=dict),
    "items fetched together": lambda: DataLoader(Many(N), 3),
    "items fetched side by side": lambda: DataLoader(Squares(N), 3, item_concurrency=2),
    "items with a time limit": lambda: DataLoader(Squares(N), 3, timeout=60.0),
    "arrays": lambda: DataLoader(ArrayDataset(np.arange(N)), 3, shuffle=True),
    "failures": skipping,
    "an own sampler": lambda: DataLoader(Squares(N), 3, sampler=Generated()),
    "out of order": lambda: DataLoader(Squares(N), 3, in_order=False),
    "a stream": lambda: DataLoader(CountingStream(N), 3),
    "a stream with a state": lambda: DataLoader(SeekableStream(N), 3),
    "a shuffled stream": lambda: DataLoader(shuffle_buffer(SeekableStream(N), 4), 3),
    "a rank of a stream": lambda: DataLoader(CountingStream(N), 2, rank=1, world_size=2),
    "delivered": lambda: Delivering(Squares(N), 3),
    "delivered by threads": lambda: Delivering(Squares(N), 3, num_workers=1, in_order=False),
    "threads": lambda: DataLoader(Squares(N), 3, num_workers=2),
    "threads, arrays": lambda: DataLoader(ArrayDataset(np.arange(N)), 3, num_workers=2),
    "threads, out of order": lambda: DataLoader(Squares(N), 3, num_workers=2, in_order=False),
    "threads, a stream": lambda: DataLoader(CountingStream(N), 3, num_workers=1),
    "awaited items": lambda: DataLoader(AsyncSquares(N), 3, num_workers=1),
}


# A generator that is being closed when the interrupt comes swallows it, and Python says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", LOADERS)
def test_no_moment_loses_a_batch(name, nothing_left) -> None:
    expected, _ = walk(LOADERS[name](), 10**9)
    moment, state = 0, (0, {})
    while state is not None and moment < 700:
        moment += 1
        with LOADERS[name]() as loader:
            found, state = walk(loader, moment)
            where = f"interrupted at moment {moment}"
            assert sorted(found) == sorted(expected), where
            if "out of order" not in name:
                assert found == expected, where
            assert loader.state_dict()["epoch"] == 1
            if name == "failures":
                assert [failure.index for failure in loader.failures] == [2, 5, 6, 7, 8], where
            elif state is not None:
                count, position = state
                received = position["batch"] + len(position.get("ahead", ()))
                assert (received if position["epoch"] == 0 else len(expected)) == count, where
    assert moment > 30


STORM = """
import os, random, signal, sys, threading
sys.path.insert(0, {tests!r})
from loading import *
from feedline import *
import numpy as np

def handler(number, frame):
    # Only what CPython would deliver inside of the library: outside, the test's own bookkeeping would be cut off.
    while frame is not None:
        if "/feedline/" in frame.f_code.co_filename:
            raise KeyboardInterrupt
        frame = frame.f_back

signal.signal(signal.SIGINT, handler)
stop = threading.Event()
main = threading.main_thread().ident

def fire():
    chance = random.Random(0)
    while not stop.wait(chance.random() * 0.0005):
        signal.pthread_kill(main, signal.SIGINT)

loader = {loader}
expected = [indices for indices, _ in loader.iter_with_indices()]
loader.set_epoch(0)
iterator = loader.iter_with_indices()
found, interrupts = [], 0
thread = threading.Thread(target=fire, daemon=True)
thread.start()
while True:
    try:
        for indices, _ in iterator:
            found.append(indices)
        break
    except KeyboardInterrupt:
        interrupts += 1
stop.set()
thread.join()
assert loader.state_dict()["epoch"] == 1
loader.close()
print("same" if found == expected else "other", interrupts > 0)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to a thread")
@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(Squares(6000), 3, shuffle=True, transform=draw_with_context)",
        "DataLoader(ArrayDataset(np.arange(60000)), 2, shuffle=True)",
        "DataLoader(Squares(6000), 3, shuffle=True, num_workers=2)",
        "DataLoader(shuffle_buffer(SeekableStream(1500), 5), 3)",
    ],
)
def test_a_storm_of_signals_loses_nothing(loader) -> None:
    code = STORM.format(loader=loader, tests=str(Path(__file__).parents[1]))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["same", "True"]


INTERRUPTED = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
from feedline import AsyncDataset, DataLoader, IterableDataset
import asyncio

class Slow:
    def __len__(self): return 100
    def __getitem__(self, i):
        if i == 8: print("slow", flush=True)
        if i >= 8: time.sleep(20)
        return i

class SlowAsync(AsyncDataset):
    def __len__(self): return 100
    async def __getitem__(self, i):
        if i == 8: print("slow", flush=True)
        if i >= 8: await asyncio.sleep(20)
        return i

class SlowStream(IterableDataset):
    def __iter__(self):
        for i in range(100): yield Slow()[i]

for batch in {loader}:
    pass
"""


@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(Slow(), 4)",
        "DataLoader(Slow(), 4, item_concurrency=3)",
        "DataLoader(Slow(), 4, timeout=60)",
        "DataLoader(Slow(), 4, num_workers=2)",
        "DataLoader(SlowAsync(), 4, num_workers=2, item_concurrency=4)",
        "DataLoader(SlowStream(), 4)",
        "DataLoader(SlowStream(), 4, num_workers=2)",
    ],
)
def test_ctrl_c_ends_a_script_at_once_with_one_traceback(loader) -> None:
    code = INTERRUPTED.format(loader=loader, tests=str(Path(__file__).parents[1]))
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == "slow\n"
        child.send_signal(signal.SIGINT)
        # An item in flight would take 20 seconds.
        _, errors = child.communicate(timeout=10)
    finally:
        child.kill()
    assert child.returncode in (-signal.SIGINT, 130)
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in errors


def test_a_serial_item_that_was_interrupted_is_loaded_again() -> None:
    class Interrupting(Squares):
        calls = 0

        def __getitem__(self, index):
            if index == 4 and not Interrupting.calls:
                Interrupting.calls += 1
                raise KeyboardInterrupt
            return super().__getitem__(index)

    loader = DataLoader(Interrupting(10), 3)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert iterator.state_dict()["position"] == 3
    assert [batch["index"].tolist() for batch in iterator] == [[3, 4, 5], [6, 7, 8], [9]]


def test_a_generator_that_an_interrupt_has_ended_says_so() -> None:
    def endless():
        for number in range(100):
            if number == 5:
                raise KeyboardInterrupt
            yield number

    for loader in (DataLoader(endless(), 3), DataLoader(Squares(100), 3, sampler=endless())):
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        with pytest.raises(RuntimeError, match="the generator endless was interrupted in its own code"):
            list(iterator)
