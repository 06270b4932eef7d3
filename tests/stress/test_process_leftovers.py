"""Whatever ends a program that has worker processes: nothing is left of them, and it ends at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from feedline import DataLoader
from leftovers import Snapshot, left_since
from process_datasets import Numbers

TESTS = Path(__file__).parents[1]
#: Beyond what the program takes to start, on a loaded machine.
DEADLINE = 60


def start(script, **options):
    paths = os.pathsep.join([str(TESTS), *(path for path in sys.path if path)])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        process_group=0,
        **options,
    )


def group_members(group):
    """Return the processes of a group that are not zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended since
            if int(fields[2]) == group and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def wait_until_gone(group, seconds=5.0):
    pause = threading.Event()  # never set: a wait with a deadline between two looks
    end = time.monotonic() + seconds
    while group_members(group):
        assert time.monotonic() < end, f"processes are left: {group_members(group)}"
        pause.wait(0.02)


def finish(process):
    """Return (exit code, stdout, stderr) when the program and all of its group have ended."""
    out, err = process.communicate(timeout=DEADLINE)
    wait_until_gone(process.pid)
    return process.returncode, out, err


SLOW = """
import os, sys, time, signal, gc
from feedline import DataLoader

class Slow:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        if index >= 4:
            time.sleep(600)
        return index

def make(workers=4):
    return DataLoader(Slow(), batch_size=2, num_workers=workers, worker_type="process")
"""

ENDS = {
    "end of the script": "",
    "iterator in a global": "kept = iterator",
    "sys.exit": "sys.exit(0)",
    "close": "loader.close()",
    "garbage": "del iterator, loader; gc.collect()",
    "unraised": "sys.excepthook = lambda *_: None\nraise ValueError",
}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_a_program_with_slow_items_in_flight_ends_at_once(how):
    script = (
        SLOW
        + f"loader = make(8)\niterator = iter(loader)\nnext(iterator)\nprint(time.time(), flush=True)\n{ENDS[how]}\n"
    )
    process = start(script)
    line = process.stdout.readline()
    code, _, err = finish(process)
    took = time.time() - float(line)
    assert err == ""
    assert code == (1 if how == "unraised" else 0)
    # Nobody waits for the items: they take ten minutes.
    assert took < 30


@pytest.mark.parametrize("busy", ["sleeping", "in C"])
def test_nothing_survives_a_killed_parent(busy):
    script = SLOW + (
        "Slow.__getitem__ = lambda self, index: index if index < 4 else __import__('process_datasets').hold_gil()\n"
        if busy == "in C"
        else ""
    )
    script += "loader = make()\niterator = iter(loader)\nprint(next(iterator).tolist(), flush=True)\ntime.sleep(600)\n"
    process = start(script)
    assert process.stdout.readline() == "[0, 1]\n"
    assert len(group_members(process.pid)) >= 3
    process.kill()
    code, _, err = finish(process)
    assert code == -signal.SIGKILL
    assert err == ""


def test_ctrl_c_is_one_interrupt_in_the_consumer_and_silence_elsewhere():
    script = (
        SLOW
        + """
loader = make(2)
iterator = iter(loader)
print(next(iterator).tolist(), next(iterator).tolist(), flush=True)
try:
    next(iterator)
except KeyboardInterrupt:
    # The iterator is as usable as before: its workers still have the items.
    assert len(iterator) == 498
    print("interrupted", time.time(), flush=True)
    raise
"""
    )
    process = start(script)
    assert process.stdout.readline() == "[0, 1] [2, 3]\n"
    threading.Event().wait(
        0.3
    )  # into the wait for the third batch; if it comes earlier, it is an interrupt all the same
    sent = time.time()
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    assert code in (-signal.SIGINT, 130)
    assert out.startswith("interrupted")
    assert float(out.split()[1]) - sent < 5
    assert err.count("Traceback") == 1
    assert "worker" not in err


def test_ctrl_c_while_workers_start_reaches_the_consumer_alone():
    script = (
        SLOW
        + """
try:
    print("up", flush=True)
    while True:
        loader = make(2)
        next(iter(loader))
        loader.close()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    )
    process = start(script)
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out, err) == (0, "interrupted\n", "")


def test_a_script_without_a_guard_works(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import dataclasses
            from feedline import DataLoader

            class Failed(Exception):
                pass

            @dataclasses.dataclass
            class Item:
                value: int

            class Squares:
                def __init__(self):
                    self.function = lambda value: value**2
                def __len__(self):
                    return 8
                def __getitem__(self, index):
                    if index == 5:
                        raise Failed("five")
                    return Item(self.function(index))

            loader = DataLoader(Squares(), batch_size=2, num_workers=2, worker_type="process", collate_fn=list)
            iterator = iter(loader)
            for _ in range(4):
                try:
                    batch = next(iterator)
                    assert all(type(item) is Item for item in batch)
                    print([item.value for item in batch])
                except Failed as error:
                    print(repr(error))
            stream = DataLoader((Item(n) for n in range(4)), batch_size=2, num_workers=1, worker_type="process",
                                transform=lambda item: item.value)
            print([batch.tolist() for batch in stream])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.stderr == ""
    assert done.stdout == "[0, 1]\n[4, 9]\nFailed('five')\n[36, 49]\n[[0, 1], [2, 3]]\n"


def test_classes_of_a_notebook_work():
    script = """
    import sys, types
    from feedline import DataLoader
    cells = [
        "offset = 10\\nclass Cells:\\n    def __len__(self): return 4\\n    def __getitem__(self, index): return index + offset",
        "loader = DataLoader(Cells(), batch_size=2, num_workers=1, worker_type='process')",
        "print([batch.tolist() for batch in loader])",
        "offset = 20\\nprint([batch.tolist() for batch in DataLoader(Cells(), batch_size=4, num_workers=1, worker_type='process')])",
    ]
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), globals())
    # A module that is no file: nobody can import it elsewhere.
    module = types.ModuleType("made_up")
    exec(cells[0], module.__dict__)
    module.Cells.__module__ = "made_up"
    sys.modules["made_up"] = module
    print([batch.tolist() for batch in DataLoader(module.Cells(), batch_size=4, num_workers=1, worker_type='process')])
    """
    code, out, err = finish(start(script))
    assert (code, out, err) == (0, "[[10, 11], [12, 13]]\n[[20, 21, 22, 23]]\n[[10, 11, 12, 13]]\n", "")


def test_bad_options_and_garbage_leave_nothing_and_say_nothing():
    script = """
    import gc
    from feedline import DataLoader
    for options in ({"batch_size": 0}, {"num_workers": -1}, {"timeout": -1}, {"watchdog": 0}):
        try:
            DataLoader([1, 2], worker_type="process", **{"num_workers": 2, **options})
        except ValueError:
            gc.collect()
        else:
            raise SystemExit(f"{options} passed")
    """
    assert finish(start(script)) == (0, "", "")


def test_early_exits_leave_nothing():
    before = Snapshot.take()
    segments = set(os.listdir("/dev/shm"))
    for _ in range(6):
        loader = DataLoader(Numbers(400, 20_000), batch_size=8, num_workers=2, worker_type="process")
        for _ in range(2):
            next(iter(loader))
        del loader
    assert left_since(before, 10) == []
    assert set(os.listdir("/dev/shm")) - segments == set()


def test_two_hundred_iterators_of_one_loader_leave_nothing():
    before = Snapshot.take()
    with DataLoader(Numbers(64, 20_000), batch_size=8, num_workers=2, worker_type="process") as loader:
        next(iter(loader))
        while_alive = Snapshot.take()
        for _ in range(200):
            loader.set_epoch(0)
            assert next(iter(loader))[1].tolist() == list(range(8))
        assert left_since(while_alive, 10) == []
    assert left_since(before, 10) == []


def test_an_exception_in_the_loop_leaves_nothing():
    before = Snapshot.take()

    def train():
        loader = DataLoader(Numbers(64), batch_size=8, num_workers=2, worker_type="process")
        for _ in loader:
            raise LookupError("in the loop")

    with pytest.raises(LookupError):
        train()
    assert left_since(before, 10) == []
