"""`headroom`: how fast training would be with free data, by a clock that moves when somebody works."""

from __future__ import annotations

from typing import Any

import pytest

from feedline import DataLoader, OptionError
from feedline.loader import headroom as module
from feedline.loader.headroom import Headroom, headroom
from loading import Squares


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(module, "perf_counter", found)
    return found


def batches(time: Time, count: int, seconds: float) -> Any:
    for number in range(count):
        time.now += seconds
        yield number


def test_it_tells_how_much_faster_training_would_be(time: Time) -> None:
    def step(batch: int) -> None:
        time.now += 3.0

    found = headroom(batches(time, 50, seconds=1.0), step, batches=10, warm_up=2)
    assert found == Headroom(10, step_seconds_per_batch=3.0, total_seconds_per_batch=4.0, speedup=4 / 3)
    assert str(found) == (
        "With free data training would be 1.33 times as fast: a batch takes 4e+03 ms, of which the step needs "
        "3e+03 ms (data 25%)"
    )


def test_free_data_leaves_nothing_to_gain(time: Time) -> None:
    def step(batch: int) -> None:
        time.now += 1.0

    assert headroom(batches(time, 50, seconds=0.0), step, batches=10).speedup == 1.0


def test_a_step_that_takes_no_time_has_no_end_of_headroom(time: Time) -> None:
    found = headroom(batches(time, 50, seconds=1.0), lambda batch: None, batches=5)
    assert found.speedup == float("inf")
    assert "data 100%" in str(found)


def test_nothing_takes_no_time_is_no_gain(time: Time) -> None:
    assert headroom(batches(time, 50, seconds=0.0), lambda batch: None, batches=5).speedup == 1.0


def test_a_short_loader_is_measured_as_far_as_it_goes(time: Time) -> None:
    assert headroom(batches(time, 7, seconds=1.0), lambda batch: None, batches=32, warm_up=2).batches == 5


def test_the_loader_stands_where_it_stood() -> None:
    loader = DataLoader(Squares(64), batch_size=4, shuffle=True, num_workers=1)
    with loader:
        first = iter(loader)
        next(first)
        before = loader.state_dict()
        headroom(loader, len, batches=4)
        assert loader.state_dict() == before
        assert len(list(loader)) == 15


def test_it_stands_there_also_after_an_error_in_the_step(nothing_left: None) -> None:
    def fail(batch: Any) -> None:
        raise ZeroDivisionError

    with DataLoader(Squares(64), batch_size=4, num_workers=2) as loader:
        with pytest.raises(ZeroDivisionError):
            headroom(loader, fail)
        assert loader.epoch == 0
        assert len(list(loader)) == 16


@pytest.mark.parametrize(("batches", "warm_up"), [(0, 2), (1, -1)])
def test_wrong_counts_are_refused(batches: int, warm_up: int) -> None:
    with pytest.raises(OptionError, match="batches must be at least 1 and warm_up at least 0"):
        headroom([], len, batches=batches, warm_up=warm_up)


def test_a_loader_with_nothing_beyond_the_warm_up_says_so() -> None:
    with pytest.raises(OptionError, match="too few batches: 3 are needed"):
        headroom([1, 2], lambda batch: None)
