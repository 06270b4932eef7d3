"""How a waiting consumer looks at the workers."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from feedline.loader import lookout
from feedline.loader.lookout import Lookout, cores, memory_of
from feedline.loader.stats import Tally


class Session:
    """Returns from `wait` when the time is over, or `ready` says that something has come."""

    def __init__(self, time: Any, ready: bool = False) -> None:
        self.time = time
        self.ready = ready
        self.waits: list[float | None] = []

    def wait(self, seconds: float | None = None) -> None:
        self.waits.append(seconds)
        if not self.ready:
            self.time.now += seconds or 0.0


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(lookout, "perf_counter", found)
    return found


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the system counts, one number for each question."""
    told: list[int] = []
    monkeypatch.setattr(lookout, "voluntary_switches", lambda: told.pop(0))
    return told


def test_a_look_finds_the_gil_free_if_the_thread_slept_once(time: Time, switches: list[int]) -> None:
    tally = Tally()
    switches += [5, 6]
    Lookout(tally, list, shares_gil=True).look(Session(time), 1)  # type: ignore[arg-type]
    assert (tally.looks, tally.gil_looks) == (1, 0)


def test_a_look_finds_the_gil_held_if_the_thread_slept_again(time: Time, switches: list[int]) -> None:
    tally = Tally()
    switches += [5, 8]
    Lookout(tally, list, shares_gil=True).look(Session(time), 1)  # type: ignore[arg-type]
    assert (tally.looks, tally.gil_looks) == (1, 1)


def test_the_gil_is_no_matter_of_worker_processes(time: Time, switches: list[int]) -> None:
    tally = Tally()
    tally.batches = 1
    switches += [5, 8]
    Lookout(tally, list, shares_gil=False).look(Session(time), 1)  # type: ignore[arg-type]
    assert (tally.looks, tally.gil_looks) == (1, 0)


def test_worker_processes_that_are_being_started_are_left_alone(time: Time, switches: list[int]) -> None:
    tally, session = Tally(), Session(time)
    Lookout(tally, list, shares_gil=False).look(session, 1)  # type: ignore[arg-type]
    assert (tally.looks, session.waits) == (0, [None])


def test_a_batch_that_comes_in_time_is_no_look(time: Time, switches: list[int]) -> None:
    tally = Tally()
    switches += [5, 8]
    Lookout(tally, list, shares_gil=True).look(Session(time, ready=True), 1)  # type: ignore[arg-type]
    assert tally.looks == 0


def test_looks_are_rare_and_leave_the_rest_of_a_wait_alone(time: Time, switches: list[int]) -> None:
    tally = Tally()
    switches += [0, 1] * 200
    looking, session = Lookout(tally, list, shares_gil=True), Session(time)
    while time.now < 1.0:
        time.now = max(time.now, looking.due)
        looking.look(session, 1)  # type: ignore[arg-type]
    assert 20 <= tally.looks <= 45


def test_looks_are_spread_over_a_usual_wait(time: Time, switches: list[int]) -> None:
    tally = Tally()
    tally.waits, tally.wait_seconds = 10, 0.1
    switches += [0, 1] * 200
    looking, session = Lookout(tally, list, shares_gil=True), Session(time)
    for _ in range(50):
        time.now += 1.0
        looking.look(session, 1)  # type: ignore[arg-type]
    pauses = sorted(pause for pause in session.waits if pause is not None)
    assert pauses[0] < 0.002
    assert 0.008 < pauses[-1] <= 0.01


def test_without_a_count_of_the_system_lateness_has_to_do(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "voluntary_switches", None)

    class Late(Session):
        def wait(self, seconds: float | None = None) -> None:
            self.time.now += (seconds or 0.0) + 0.004

    tally = Tally()
    Lookout(tally, list, shares_gil=True).look(Late(time), 1)  # type: ignore[arg-type]
    assert (tally.looks, tally.gil_looks) == (1, 1)


def test_workers_are_counted_as_working_and_asleep(time: Time, switches: list[int], tmp_path: Any) -> None:
    places = []
    for number, state in enumerate("RSDR"):
        place = tmp_path / f"stat{number}"
        place.write_text(f"{number} (a (strange) name) {state} 1 2 3")
        places.append(str(place))
    tally = Tally()
    switches += [0, 1] * 2
    looking = Lookout(tally, lambda: places, shares_gil=True)
    for _ in range(2):
        time.now += 1.0
        looking.look(Session(time), 3)  # type: ignore[arg-type]
    # Two workers have their turn in each look, and stand for the others.
    assert (tally.worker_looks, tally.working_looks, tally.asleep_looks) == (8, 6, 4)


def test_a_worker_that_has_ended_is_not_asleep(time: Time, switches: list[int], tmp_path: Any) -> None:
    tally = Tally()
    switches += [0, 1]
    Lookout(tally, lambda: [str(tmp_path / "gone")], shares_gil=True).look(Session(time), 1)  # type: ignore[arg-type]
    assert (tally.worker_looks, tally.asleep_looks) == (1, 0)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the system has no /proc")
def test_a_thread_that_waits_is_seen_asleep() -> None:
    gate, ready = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        gate.wait(30)

    thread = threading.Thread(target=wait)
    thread.start()
    assert ready.wait(30)
    seen = False
    for _ in range(10_000):
        seen = lookout._is_asleep(f"/proc/self/task/{thread.native_id}/stat")
        if seen:
            break
    gate.set()
    thread.join()
    assert seen


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="the system does not tell")
def test_the_memory_of_processes_is_added_up() -> None:
    one = memory_of(["/proc/self/stat"])
    assert one > 1 << 20
    assert memory_of(["/proc/self/stat", "/proc/self/stat"]) > 1.5 * one
    assert memory_of(["/proc/self/no-such-process/stat"]) == 0


def test_there_is_at_least_one_core() -> None:
    assert cores() >= 1
