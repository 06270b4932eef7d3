"""A forked child: loaders work, iterators of the parent say that they don't, and the parent is not disturbed."""

from __future__ import annotations

import os
import sys
import traceback

import numpy as np
import pytest

from feedline import ArrayDataset, DataLoader, NdfDataset, save_ndf
from loading import AsyncSquares, CountingStream, Squares

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Python warns of forks beside threads; that is what is tested.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_child(function) -> str:
    """Run `function` in a forked child, and return what it returned as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(function())
        except BaseException:
            text = traceback.format_exc()
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


LOADERS = {
    "serial": lambda: DataLoader(Squares(20), 3, shuffle=True),
    "lanes": lambda: DataLoader(Squares(20), 3, shuffle=True, item_concurrency=2),
    "threads": lambda: DataLoader(Squares(20), 3, shuffle=True, num_workers=2),
    "arrays": lambda: DataLoader(ArrayDataset(np.arange(20)), 3, shuffle=True, num_workers=2),
    "awaited": lambda: DataLoader(AsyncSquares(20), 3, shuffle=True, num_workers=2, item_concurrency=2),
    "stream": lambda: DataLoader(CountingStream(20), 3, num_workers=2),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_works_in_the_child_and_in_the_parent(name, nothing_left) -> None:
    loader = LOADERS[name]()
    expected = str([i for i, _ in LOADERS[name]().iter_with_indices()])
    iterator = loader.iter_with_indices()
    first = next(iterator)[0]
    loader.set_epoch(0)
    assert in_child(lambda: [i for i, _ in loader.iter_with_indices()]) == expected
    assert in_child(lambda: [list(loader), loader.close(), "done"][-1]) == "done"
    assert str([first, *[i for i, _ in iterator]]) == expected
    loader.close()


@pytest.mark.parametrize("name", LOADERS)
def test_an_iterator_of_the_parent_says_what_to_do(name) -> None:
    loader = LOADERS[name]()
    iterator = iter(loader)
    next(iterator)

    def use():
        state = iterator.state_dict()
        try:
            next(iterator)
        except RuntimeError as error:
            iterator.close()
            return state["position"], error
        return "no error"

    assert in_child(use) == (
        "(3, RuntimeError('this iterator was made before a fork, its workers are in the parent; "
        "make a new one with iter(loader)'))"
    )
    assert len(list(iterator)) == 6
    loader.close()


def test_a_child_of_a_child_works_too() -> None:
    loader = LOADERS["threads"]()
    next(iter(loader))
    loader.set_epoch(0)
    expected = str([i for i, _ in LOADERS["threads"]().iter_with_indices()])
    assert in_child(lambda: in_child(lambda: [i for i, _ in loader.iter_with_indices()])) == expected
    loader.close()


def test_children_read_a_file_that_the_parent_had_open(tmp_path) -> None:
    x = np.arange(600.0).reshape(100, 6)
    save_ndf(tmp_path / "rows.ndf", x, x[:, :1])
    dataset = NdfDataset(tmp_path / "rows.ndf")
    assert dataset[0][0].tolist() == x[0].tolist()

    def read(seed):
        loader = DataLoader(dataset, 7, shuffle=True, seed=seed, num_workers=seed % 3)
        for _ in range(10):
            for indices, (rows, _) in loader.iter_with_indices():
                if not np.array_equal(rows, x[indices]):
                    return f"wrong rows for {indices}"
        return "right"

    children = []
    for seed in range(4):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write_end, read(seed).encode())
            os._exit(0)
        os.close(write_end)
        children.append((pid, read_end))
    assert read(9) == "right"
    for pid, read_end in children:
        with open(read_end, encoding="utf-8") as pipe:
            assert pipe.read() == "right"
        os.waitpid(pid, 0)


def test_a_child_that_exits_as_programs_do_is_quiet(tmp_path) -> None:
    code = """
import os, sys
from feedline import DataLoader
loader = DataLoader(range(100), 2, num_workers=2)
iterator = iter(loader)
next(iterator)
if os.fork() == 0:
    print(len(list(loader)), flush=True)
    sys.exit(0)
os.wait()
print(len(list(iterator)))
"""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "50\n49\n", "")
