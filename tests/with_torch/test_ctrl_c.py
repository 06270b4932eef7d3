"""Ctrl-C at every moment: the drop-in's iterator neither loses a batch nor gives one twice, and counts right."""

from __future__ import annotations

import sys
import warnings

import pytest

pytest.importorskip("torch", reason="needs torch: scripts/test --all")

from feedline.torch import DataLoader
from interrupting import Interrupt, walk
from loading import CountingStream, Squares

N = 13


class Measured(CountingStream):
    """Says that it has seven items, and has more."""

    def __len__(self) -> int:
        return 7


def asked(loader):
    assert len(loader) == 3
    return loader


LOADERS = {
    "items": lambda: DataLoader(Squares(N), 3),
    "with a limit on the wait": lambda: DataLoader(
        Squares(N), 3, num_workers=1, worker_type="thread", timeout=60
    ),
    "a stream with a length": lambda: asked(DataLoader(Measured(N), 3)),
    "a stream with a length and a limit": lambda: asked(
        DataLoader(Measured(N), 3, num_workers=1, worker_type="thread", timeout=60)
    ),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:the stream's length")
@pytest.mark.parametrize("name", LOADERS)
def test_no_moment_loses_a_batch(name, nothing_left) -> None:
    expected, _ = walk(LOADERS[name](), 10**9)
    assert len(expected) == 5
    moment, state = 0, (0, {})
    while state is not None and moment < 700:
        moment += 1
        with LOADERS[name]() as loader:
            found, state = walk(loader, moment)
            where = f"interrupted at moment {moment}"
            assert found == expected, where
            if state is not None:
                count, position = state
                assert (position["batch"] if position["epoch"] == 0 else len(expected)) == count, where
    assert moment > 30


def test_a_batch_that_an_interrupt_has_held_up_counts_once() -> None:
    moment, interrupted = 0, True
    while interrupted:
        moment += 1
        interrupted = False
        iterator = iter(asked(DataLoader(Measured(N), 3)))
        next(iterator)
        with warnings.catch_warnings(record=True) as early:
            warnings.simplefilter("always")
            sys.setprofile(Interrupt(moment))
            try:
                next(iterator)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                sys.setprofile(None)
            if interrupted:
                next(iterator)
            next(iterator)
        assert not early
        with pytest.warns(UserWarning, match=r"makes 3 batches .* more are coming") as caught:
            next(iterator)
        assert caught[0].filename == __file__
        assert len(list(iterator)) == 1
    assert moment > 10
