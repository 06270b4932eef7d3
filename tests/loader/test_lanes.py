"""Threads below a batch: how many, in which order errors count, and what happens when they are closed."""

from __future__ import annotations

import threading

import pytest

from feedline import WorkerError
from feedline.loader.lanes import Lanes, charge
from loading import DEADLINE, Gate


@pytest.fixture
def lanes(nothing_left):
    lanes = Lanes("test-lane")
    yield lanes
    lanes.close()


def test_results_are_in_order_and_the_caller_works_too(lanes) -> None:
    seen = set()

    def call(position):
        seen.add(threading.current_thread().name)
        return position * position

    assert lanes.map(call, 100, 4) == [n * n for n in range(100)]
    assert len(seen) <= 4
    assert lanes.map(call, 1, 8) == [0]
    assert lanes.map(call, 0, 8) == []


@pytest.mark.parametrize("width", [1, 2, 5])
def test_no_more_run_at_a_time_than_the_width(lanes, width) -> None:
    gate = Gate()
    result = []
    thread = threading.Thread(target=lambda: result.extend(lanes.map(lambda n: gate.enter() or n, 12, width)))
    thread.start()
    gate.wait_for(width)
    assert gate.inside == width
    gate.open()
    thread.join(DEADLINE)
    assert result == list(range(12))
    assert gate.most <= width


def test_the_error_of_the_lowest_position_is_raised_after_those_in_progress(lanes) -> None:
    reached = threading.Barrier(3)
    ended = []

    def call(position):
        reached.wait(DEADLINE)
        ended.append(position)
        raise ValueError(position)

    with pytest.raises(ValueError, match="0"):
        lanes.map(call, 3, 3)
    assert sorted(ended) == [0, 1, 2]


def test_behind_an_error_nothing_is_started(lanes) -> None:
    started = []

    def call(position):
        started.append(position)
        raise ValueError(position)

    with pytest.raises(ValueError, match="0"):
        lanes.map(call, 1000, 2)
    assert len(started) <= 2


def test_threads_are_used_again(lanes) -> None:
    before = threading.active_count()
    for _ in range(50):
        lanes.map(lambda n: n, 20, 4)
        lanes.limited(lambda: 1, DEADLINE, "it")
    assert threading.active_count() <= before + 4


def test_a_limit_ends_the_wait_and_the_lane_is_not_counted_on(lanes) -> None:
    gate = Gate()
    assert lanes.limited(lambda: "in time", DEADLINE, "it") == "in time"
    with pytest.raises(TimeoutError, match=r"the item took longer than 0\.01 s \(timeout=\)"):
        lanes.limited(gate.enter, 0.01, "the item")
    assert lanes.limited(lambda: "another lane", DEADLINE, "it") == "another lane"
    gate.open()


def test_errors_come_back_as_they_are_but_not_as_a_ctrl_c(lanes) -> None:
    error = KeyError("k")

    def fail(what):
        raise what

    with pytest.raises(KeyError) as caught:
        lanes.limited(lambda: fail(error), DEADLINE, "it")
    assert caught.value is error
    with pytest.raises(SystemExit):
        lanes.limited(lambda: fail(SystemExit(1)), DEADLINE, "it")
    with pytest.raises(WorkerError, match="KeyboardInterrupt out of user code"):
        lanes.limited(lambda: fail(KeyboardInterrupt()), DEADLINE, "it")


def test_closed_lanes_still_end_what_was_asked_for(nothing_left) -> None:
    lanes = Lanes("test-lane")
    gate = Gate()
    result = []
    thread = threading.Thread(target=lambda: result.extend(lanes.map(lambda n: gate.enter() or n, 8, 3)))
    thread.start()
    gate.wait_for(3)
    lanes.close()
    lanes.close()
    gate.open()
    thread.join(DEADLINE)
    assert result == list(range(8))
    assert lanes.map(lambda n: n, 8, 3) == list(range(8))
    assert lanes.limited(lambda: 5, DEADLINE, "it") == 5


def test_many_callers_share_them(lanes) -> None:
    found = {}

    def use(caller):
        found[caller] = [lanes.map(lambda n: (caller, n), 9, 3) for _ in range(20)]

    threads = [threading.Thread(target=use, args=(caller,)) for caller in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert found == {caller: [[(caller, n) for n in range(9)]] * 20 for caller in range(5)}


def test_what_is_charged_to_a_call_counts_against_its_limit_and_no_other(lanes) -> None:
    charge(1e6)  # outside of any call it is nobody's

    def call(*seconds):
        for each in seconds:
            charge(each)
        return sum(seconds)

    assert lanes.limited(lambda: call(20.0, 30.0), 60.0, "the item") == 50.0
    with pytest.raises(TimeoutError, match=r"the item took longer than 60 s \(timeout=\)"):
        lanes.limited(lambda: call(20.0, 50.0), 60.0, "the item")
    assert lanes.limited(lambda: call(20.0), 60.0, "the item") == 20.0
    assert lanes.map(call, 3, 2) == [0, 1, 2]


def test_a_call_that_hangs_is_given_up_when_what_is_charged_to_it_leaves_nothing(lanes) -> None:
    gate = threading.Event()

    def hanging():
        charge(1000.0)
        gate.wait(DEADLINE)

    with pytest.raises(TimeoutError, match="longer than 1000 s"):
        lanes.limited(hanging, 1000.0, "the item")
    assert not gate.is_set()
    gate.set()
