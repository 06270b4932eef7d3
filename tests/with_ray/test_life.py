"""What happens around Ray: nothing is started early or printed, forks and exits, Ctrl-C, and a Ray that goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from feedline import DataLoader
from feedline.errors import MissingExtraError
from ray_session import python_path, within

pytestmark = pytest.mark.usefixtures("local_ray")
SECONDS = 150


@pytest.fixture
def start(local_ray):
    """Start programs with warnings as errors, each with a Ray of its own, in a process group of its own."""
    environment = {**os.environ, "PYTHONPATH": python_path()}
    environment.pop("RAY_ADDRESS", None)
    processes = []

    def begin(code):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def members(group):
    """Return the processes of a group that are not dead."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True, timeout=30
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == group and not state.startswith("Z")]


def test_a_program_that_ends_leaves_nothing_and_nothing_is_printed(start):
    process = start("""
import random, sys
random.seed(3)
state = random.getstate()
from feedline import DataLoader
loader = DataLoader(list(range(12)), 3, num_workers=2, worker_type="ray")
iterator = iter(loader)
assert "ray" not in sys.modules
assert next(iterator).tolist() == [0, 1, 2]
assert random.getstate() == state
""")
    assert process.communicate(timeout=SECONDS) == ("", "")
    assert process.returncode == 0
    # Where Ray's own shutdown takes it more than a second, it kills the process that its agents belong to, and these notice
    # after a minute that they are alone.
    assert within(120, lambda: members(process.pid) == []), members(process.pid)


def test_ctrl_c_a_fork_and_a_shutdown_in_mid_epoch(start):
    process = start("""
import os, threading
from feedline import DataLoader

class Stops:
    def __len__(self):
        return 6
    def __getitem__(self, index):
        if index == self.where:
            threading.Event().wait(self.seconds)
        return index

slow = Stops()
slow.where, slow.seconds = 2, 1.5
loader = DataLoader(slow, 2, num_workers=1, worker_type="ray")
iterator = iter(loader)
try:
    print(next(iterator), flush=True)
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(next(iterator), next(iterator), flush=True)

pid = os.fork()
if pid == 0:
    try:
        next(iter(loader))
    except RuntimeError as error:
        os.write(1, str(error)[:41].encode() + b"\\n")
    os._exit(0)
os.waitpid(pid, 0)

import ray
slow.seconds = 60
stuck = iter(DataLoader(slow, 2, num_workers=1, worker_type="ray"))
next(stuck)
ray.shutdown()
try:
    next(stuck)
except RuntimeError as error:
    print(error)
# A loader that had nothing at work goes on, with another Ray.
print(next(iter(loader)))
""")
    assert process.stdout.readline() == "[0 1]\n"
    # To the whole group, as a terminal does: Ray's processes pass over it.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert out.splitlines() == [
        "interrupted",
        "[2 3] [4 5]",
        "worker_type='ray' in a forked child: Ray'",
        "Ray was shut down while it computed the batch",
        "[0 1]",
    ], err
    assert err == ""


def test_a_ray_that_is_started_anew_is_another_connection(start):
    process = start("""
import ray
from feedline.loader.execution.cluster_connection import connect, connection
names = []
for _ in range(2):
    names.append(connect())
    assert connection() == names[-1]
    ray.shutdown()
    assert connection() is None
assert len(set(names)) == 2, names
""")
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err


def test_actors_end_with_their_loader(local_ray):
    with DataLoader([1, 2, 3], 1, num_workers=2, worker_type="ray") as loader:
        list(loader)
        [executor] = loader._executors.values()
        seats = list(executor.pool.crew.seats)
        assert seats
    executor.pool.join(30)

    def is_gone(seat):
        try:
            local_ray.get(seat._actor.look.remote(), timeout=30)
        except local_ray.exceptions.RayActorError:
            return True
        return False

    # An actor may still answer what reaches it before the order to end.
    assert all(within(30, lambda seat=seat: is_gone(seat)) for seat in seats)


def test_a_loader_that_is_made_smaller_ends_the_actors_that_are_too_many():
    with DataLoader(list(range(40)), 2, num_workers=2, worker_type="ray") as loader:
        list(loader)
        [executor] = loader._executors.values()
        executor.resize(1)
        assert [batch.tolist() for batch in loader] == [[n, n + 1] for n in range(0, 40, 2)]
        pause = threading.Event()  # never set: a wait with a deadline between two looks
        for _ in range(3000):
            if len(executor.pool.crew.seats) == 1:
                break
            pause.wait(0.01)
        assert len(executor.pool.crew.seats) == 1
        assert executor.places() == []


def test_a_loader_that_is_dropped_ends_its_actors(local_ray):
    loader = DataLoader([1, 2, 3], 1, num_workers=1, worker_type="ray")
    next(iter(loader))
    [executor] = loader._executors.values()
    pool = executor.pool
    del loader, executor
    pool.join(30)
    assert not pool._thread.is_alive()
    assert pool.crew.seats == []


def test_without_ray_the_constructor_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"worker_type='ray' needs an optional library: .*feedline\[ray\]"
    ):
        DataLoader([1], num_workers=1, worker_type="ray")
    DataLoader([1], worker_type="ray")
