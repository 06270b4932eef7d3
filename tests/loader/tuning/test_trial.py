"""What a trial measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feedline import DataLoader
from feedline.loader.tuning.choices import Choice
from feedline.loader.tuning.trial import digest, measure
from loading import AsyncSquares, CountingStream, Squares


class Time:
    """Moves by a tenth of a second whenever it is read."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


@pytest.mark.parametrize("choice", [Choice("thread", 0), Choice("thread", 2), Choice("process", 1)])
@pytest.mark.parametrize("dataset", [Squares(40), AsyncSquares(40)], ids=["items", "event loop"])
def test_a_trial_counts_items_for_a_while_epoch_after_epoch(
    dataset: Any, choice: Choice, nothing_left: None
) -> None:
    found = measure(DataLoader(dataset, batch_size=4), choice, seconds=4.0, clock=Time())
    assert found.error is None
    assert found.choice == choice
    # Every reading of the clock is a batch of four in a tenth of a second, the first and the last ones aside.
    assert 30 <= found.items_per_second <= 42
    assert found.first_batch_seconds == pytest.approx(0.1)
    assert found.as_dict()["num_workers"] == choice.num_workers


def test_all_choices_see_the_same_first_batch() -> None:
    loader = DataLoader(Squares(40), batch_size=4, shuffle=True, seed=9)
    found = [measure(loader, Choice("thread", workers), 0.2, clock=Time()) for workers in (0, 1, 3)]
    assert len({trial.first_batch for trial in found}) == 1


def test_the_loader_itself_is_left_alone() -> None:
    loader = DataLoader(Squares(40), batch_size=4)
    before = loader.state_dict()
    measure(loader, Choice("thread", 1), 0.2, clock=Time())
    assert loader.state_dict() == before
    assert loader.stats().batches == 0


def test_a_stream_is_measured_as_well() -> None:
    assert (
        measure(DataLoader(CountingStream(40), 4), Choice("thread", 1), 1.0, clock=Time()).items_per_second
        > 0
    )


def test_a_loader_without_a_batch_says_so() -> None:
    assert measure(DataLoader([], 4), Choice("thread", 0), 1.0, clock=Time()).error == "it has no batches"


def test_memory_is_that_of_all_processes() -> None:
    alone = measure(DataLoader(Squares(40), 4), Choice("thread", 0), 0.3, clock=Time())
    both = measure(DataLoader(Squares(40), 4), Choice("process", 1), 0.3, clock=Time())
    if not alone.memory_bytes:
        pytest.skip("the system does not tell")
    assert both.memory_bytes > alone.memory_bytes


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.arange(4), "y": "a"},
        {"x": np.arange(3, dtype=np.int32), "y": "a"},
        {"x": np.arange(3).reshape(3, 1), "y": "a"},
        {"x": np.array([0, 1, 3]), "y": "a"},
        {"x": np.arange(3), "y": "b"},
        {"z": np.arange(3), "y": "a"},
        [np.arange(3), "a"],
        {"x": np.array([None, 1, 2]), "y": "a"},
    ],
)
def test_a_digest_tells_content_apart(other: Any) -> None:
    assert digest({"x": np.arange(3), "y": "a"}) == digest({"x": np.arange(6)[:3], "y": "a"})
    assert digest({"x": np.arange(3), "y": "a"}) != digest(other)
