"""`on_stats`: who is called, when, and what its errors do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from feedline import DataLoader, LoaderStats, OptionError
from loading import Broken, Squares


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "in_order": False}])
def test_the_callback_gets_the_numbers_each_so_many_batches_and_at_the_end(options: Any) -> None:
    told: list[LoaderStats] = []
    with DataLoader(Squares(23), batch_size=4, **options) as loader:
        loader.on_stats(told.append, every=2)
        list(loader)
        list(loader)
    assert [stats.batches for stats in told] == [2, 4, 6, 8, 10, 12]
    assert told[2].items == 23
    assert told[-1].epochs == 2


def test_batches_behind_the_last_call_are_told_at_the_end_of_the_epoch() -> None:
    told: list[int] = []
    loader = DataLoader(Squares(20), batch_size=4)
    loader.on_stats(lambda stats: told.append(stats.batches), every=3)
    list(loader)
    assert told == [3, 5]


def test_batches_that_raise_count_as_well() -> None:
    told: list[LoaderStats] = []
    loader = DataLoader(Broken(8, bad=(1,)), batch_size=4)
    loader.on_stats(told.append, every=1)
    batches = iter(loader)
    with pytest.raises(KeyError):
        next(batches)
    next(batches)
    assert [(stats.batches, stats.failed_batches) for stats in told] == [(1, 1), (2, 1)]


def test_an_error_in_it_is_logged_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def fail(stats: LoaderStats) -> None:
        calls.append(stats.batches)
        raise RuntimeError("the monitor is down")

    loader = DataLoader(Squares(20), batch_size=4)
    loader.on_stats(fail, every=1)
    with caplog.at_level(logging.WARNING, "feedline"):
        assert len(list(loader)) == 5
    assert calls == [1, 2, 3, 4, 5]
    assert len(caplog.records) == 1
    assert "a callback of on_stats() failed" in caplog.text
    assert "the monitor is down" in caplog.text


def test_several_callbacks_are_told_and_one_can_be_taken_back() -> None:
    first: list[LoaderStats] = []
    second: list[LoaderStats] = []
    loader = DataLoader(Squares(8), batch_size=4)
    remove = loader.on_stats(first.append, every=1)
    loader.on_stats(second.append, every=1)
    list(loader)
    remove()
    remove()
    list(loader)
    assert (len(first), len(second)) == (2, 4)


def test_without_callbacks_batches_take_the_short_cut() -> None:
    loader = DataLoader(Squares(8), batch_size=4)
    remove = loader.on_stats(print)
    assert iter(loader)._plain is None
    remove()
    assert iter(loader)._plain is not None


def test_it_is_called_in_the_consumers_thread() -> None:
    import threading

    threads: list[int] = []
    with DataLoader(Squares(8), batch_size=4, num_workers=2) as loader:
        loader.on_stats(lambda stats: threads.append(threading.get_ident()), every=1)
        list(loader)
    assert set(threads) == {threading.get_ident()}


def test_wrong_arguments_are_refused_at_once() -> None:
    loader = DataLoader([1])
    with pytest.raises(TypeError, match="on_stats\\(\\) needs a callable, not int"):
        loader.on_stats(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="every must be at least 1 batch, not 0"):
        loader.on_stats(print, every=0)
    with pytest.raises(TypeError, match=r"every must be an int, not 1\.5"):
        loader.on_stats(print, every=1.5)  # type: ignore[arg-type]
