"""Ray actors that die, hang or can't start: noticed, named, replaced, and no batch is lost."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from feedline import DataLoader, WorkerDied
from feedline.loader.execution import cluster_crew
from process_datasets import Dying, Numbers, Stuck, TellsProcess
from ray_session import within

pytestmark = pytest.mark.usefixtures("local_ray")


def actors(dataset, num_workers=2, **options):
    return DataLoader(dataset, num_workers=num_workers, worker_type="ray", **options)


def test_a_batch_whose_actors_die_three_times_is_an_error_that_names_them(tmp_path):
    with actors(Dying(tmp_path, "_exit"), batch_size=3) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist(), next(iterator).tolist()]
        with pytest.raises(WorkerDied) as caught:
            next(iterator)
        found.append(next(iterator).tolist())
    assert found == [[0, 1, 2], [3, 4, 5], [9, 10, 11]]
    assert len(os.listdir(tmp_path)) == 3
    error = caught.value
    assert error.index == 7
    assert error.exit_code is None
    assert str(error).startswith(f"Ray actor {error.worker} (pid {error.pid} on ")
    assert "ended with the batch, as 2 others before it; item 7 was the last that it began" in str(error)
    assert "its worker process has died" in str(error)
    assert error.__notes__[0].startswith("feedline: batch 2 of epoch 0, Ray actor ")


def test_a_batch_is_computed_again_when_its_actor_dies_and_those_behind_it_lose_nothing(tmp_path):
    with actors(
        Dying(tmp_path, "kill", where=0, times=2), num_workers=1, batch_size=1, prefetch_depth=6
    ) as loader:
        assert [int(batch[0]) for batch in loader] == list(range(12))
    assert len(os.listdir(tmp_path)) == 2


def test_an_actor_is_replaced_whenever_it_is_killed(local_ray):
    with actors(TellsProcess(), batch_size=1) as loader:
        seen = set()
        for kill in (
            lambda pid: os.kill(pid, signal.SIGKILL),
            lambda pid: local_ray.kill(seat_of(loader, pid)._actor),
        ):
            iterator = iter(loader)
            victim = int(next(iterator)[0])
            kill(victim)
            rest = [int(batch[0]) for batch in iterator]
            assert len(rest) == 63
            seen.add(victim)
        assert seen.isdisjoint(int(batch[0]) for batch in loader)


def seat_of(loader, pid):
    [executor] = loader._executors.values()
    return next(seat for seat in executor.pool.crew.seats if seat.pid == pid)


def test_an_actor_that_is_stuck_in_c_is_replaced_and_its_item_is_a_failure(monkeypatch):
    monkeypatch.setattr(cluster_crew, "STUCK_GRACE_SECONDS", 1.0)
    with actors(Stuck(together=True), 1, batch_size=4, timeout=0.5, on_error="skip") as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11]]
        [failure] = loader.failures
    assert failure.index == 5
    assert failure.error_type == "TimeoutError"


class EndsAtLoad:
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index

    def __getstate__(self):
        return {"end": True}

    def __setstate__(self, state):
        os._exit(4)


def test_actors_that_can_not_start_are_an_error():
    with actors(EndsAtLoad(), 1, batch_size=6) as loader:
        with pytest.raises(WorkerDied, match="ended while it was started, as 2 others before it"):
            next(iter(loader))


class FailsAtLoad(EndsAtLoad):
    def __setstate__(self, state):
        raise LookupError("no such place over here")


def test_what_can_not_be_unpickled_is_an_error_with_its_cause():
    with actors(FailsAtLoad(), 1, batch_size=3) as loader:
        with pytest.raises(LookupError, match="no such place") as caught:
            next(iter(loader))
    assert "could not unpickle the dataset" in "".join(caught.value.__notes__)


class Parked:
    """Item 1 waits until a file appears."""

    def __init__(self, gate):
        self.gate = str(gate)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        pause = threading.Event()
        for _ in range(3000):
            if index != 1 or os.path.exists(self.gate):
                return index
            pause.wait(0.01)
        raise TimeoutError("nobody opened the gate")


def test_a_watchdog_tells_what_actors_do(tmp_path, caplog):
    gate = tmp_path / "gate"
    with actors(Parked(gate), 1, batch_size=1, watchdog=0.3) as loader:
        iterator = iter(loader)
        next(iterator)
        consumer = threading.Thread(target=lambda: list(iterator))
        consumer.start()
        pause = threading.Event()  # never set: a wait with a deadline between two looks
        for _ in range(3000):
            if "in __getitem__" in caplog.text:
                break
            pause.wait(0.01)
        gate.touch()
        consumer.join(30)
        assert not consumer.is_alive()
    assert "Ray actor 0 (pid " in caplog.text
    assert "in __getitem__" in caplog.text


def test_without_a_free_processor_one_actor_does_without(local_ray, monkeypatch, caplog):
    monkeypatch.setattr(cluster_crew, "PLACE_SECONDS", 0.5)

    class Holder:
        def here(self):
            return True

    holders = [local_ray.remote(num_cpus=1)(Holder).remote() for _ in range(2)]
    try:
        local_ray.get([holder.here.remote() for holder in holders], timeout=60)
        # Ray hears of what is taken a moment later than the holders.
        assert within(60, lambda: not local_ray.available_resources().get("CPU"))
        with actors(Numbers(8), batch_size=2) as loader:
            assert len(list(loader)) == 4
        assert "no Ray actor has got a free processor" in caplog.text
    finally:
        for holder in holders:
            local_ray.kill(holder)
