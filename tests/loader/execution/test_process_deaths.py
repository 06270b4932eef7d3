"""Worker processes that die, hang, or can't start: noticed, named, replaced, and no batch is lost."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from feedline import DataLoader, WorkerDied
from feedline.loader.execution import process_pool
from feedline.loader.execution.job import Job
from feedline.loader.execution.template_process import TemplateProcess
from process_datasets import ENDS, Dying, Gated, LateItem, Numbers, Stuck, TellsProcess

pytestmark = pytest.mark.usefixtures("nothing_left")


def processes(dataset, num_workers=2, **options):
    return DataLoader(dataset, num_workers=num_workers, worker_type="process", **options)


CODES = {"kill": -9, "_exit": 3, "abort": -6}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_a_batch_whose_workers_die_three_times_is_an_error_that_names_them(how, tmp_path, capfd):
    with processes(Dying(tmp_path, how), batch_size=3) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist(), next(iterator).tolist()]
        with pytest.raises(WorkerDied) as caught:
            next(iterator)
        found.append(next(iterator).tolist())
    assert found == [[0, 1, 2], [3, 4, 5], [9, 10, 11]]
    error = caught.value
    assert error.exit_code == CODES[how]
    assert error.index == 7
    assert len(os.listdir(tmp_path)) == 3
    name = "exit code 3" if how == "_exit" else signal.Signals(-CODES[how]).name
    assert name in str(error)
    assert "item 7 was the last that it began" in str(error)
    assert re.search(r"worker process \d \(pid \d+\)", str(error))
    assert "batch 2 of epoch 0" in error.__notes__[0]


@pytest.mark.parametrize("times", [1, 2])
def test_a_batch_is_computed_again_when_its_worker_dies(times, tmp_path):
    with processes(Dying(tmp_path, "kill", times=times), batch_size=2) as loader:
        assert [batch.tolist() for batch in loader] == [[i, i + 1] for i in range(0, 12, 2)]
    assert len(os.listdir(tmp_path)) == times


def test_batches_behind_a_dying_one_lose_no_tries(tmp_path):
    # One worker has everything, and each of its batches would be lost at the third death.
    with processes(
        Dying(tmp_path, "_exit", where=0), num_workers=1, batch_size=1, prefetch_depth=6
    ) as loader:
        iterator = iter(loader)
        with pytest.raises(WorkerDied):
            next(iterator)
        assert [int(batch[0]) for batch in iterator] == list(range(1, 12))


def test_a_worker_is_replaced_whenever_it_is_killed():
    with processes(TellsProcess(), batch_size=1) as loader:
        for _ in range(20):
            iterator = iter(loader)
            victim = int(next(iterator)[0])
            os.kill(victim, signal.SIGKILL)
            assert len(list(iterator)) == 63
            iterator.close()


def test_an_exit_out_of_user_code_is_reported_and_not_obeyed():
    with processes(ExitsQuietly(8), batch_size=2) as loader:
        with pytest.raises(RuntimeError, match="SystemExit out of user code: x"):
            list(loader)


class ExitsQuietly(Numbers):
    def __getitem__(self, index):
        if index == 5:
            raise SystemExit("x")
        return index


class EndsAtLoad:
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index

    def __getstate__(self):
        return {"end": True}

    def __setstate__(self, state):
        os._exit(4)


def test_workers_that_can_not_start_are_an_error():
    with processes(EndsAtLoad(), batch_size=2) as loader:
        with pytest.raises(WorkerDied, match="ended with exit code 4 while it was started"):
            next(iter(loader))


def test_without_a_process_that_workers_come_from_every_batch_is_an_error(monkeypatch, capfd):
    monkeypatch.setattr(
        "feedline.loader.execution.template_process.bootstrap", lambda *_: "raise LookupError('no way')"
    )
    with processes(Numbers(), batch_size=20) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="worker processes can't be started"):
                next(iterator)
    assert "LookupError: no way" in capfd.readouterr().err


class FailsAtLoad(EndsAtLoad):
    def __setstate__(self, state):
        raise LookupError("no such place over here")


def test_what_can_not_be_unpickled_is_an_error_with_its_cause():
    with processes(FailsAtLoad(), batch_size=2) as loader:
        with pytest.raises(LookupError, match="no such place") as caught:
            next(iter(loader))
    assert "could not unpickle the dataset" in "".join(caught.value.__notes__)


class Unpicklable:
    def __init__(self):
        self.inner = {"handles": [1, threading.Lock()]}

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


def test_what_can_not_be_pickled_is_named_at_the_first_batch():
    with processes(Unpicklable(), batch_size=2) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(TypeError) as caught:
                next(iterator)
            assert "dataset.inner['handles'][1]: cannot pickle '_thread.lock' object" in str(caught.value)
    assert [batch.tolist() for batch in DataLoader(Unpicklable(), batch_size=2, num_workers=1)] == [
        [0, 1],
        [2, 3],
    ]
    lock = threading.Lock()
    with processes(Numbers(), transform=lambda item: (item, lock)) as loader:
        with pytest.raises(TypeError, match=r"transform \(its variable 'lock'\): cannot pickle"):
            next(iter(loader))


def test_a_batch_that_can_not_be_pickled_is_an_error_of_its_batch():
    with processes(Numbers(4), batch_size=2, collate_fn=lambda items: [items, threading.Lock()]) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(TypeError, match=r"batch\[1\]: cannot pickle '_thread.lock' object"):
                next(iterator)


@pytest.mark.parametrize(
    ("on_error", "together"), [("raise", False), ("raise", True), ("skip", False), ("substitute", True)]
)
def test_a_worker_that_is_stuck_in_c_is_replaced_and_its_item_is_a_failure(on_error, together):
    with processes(Stuck(together=together), batch_size=4, timeout=0.2, on_error=on_error) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1, 2, 3]
        if on_error == "raise":
            with pytest.raises(TimeoutError, match="let nothing else run in its worker process"):
                next(iterator)
        else:
            rows = next(iterator).tolist()
            assert rows[0] == 4
            assert rows[-2:] == [6, 7]
            assert len(rows) == (3 if on_error == "skip" else 4)
            assert [failure.index for failure in loader.failures] == [5]
        assert next(iterator).tolist() == [8, 9, 10, 11]


def test_the_template_may_die_as_well():
    with processes(TellsProcess(), batch_size=4) as loader:
        iterator = iter(loader)
        first = next(iterator)
        template = int(Path(f"/proc/{int(first[0])}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(template, signal.SIGKILL)
        assert len(list(iterator)) == 15


@pytest.mark.parametrize("number", [0, 1])
def test_a_template_whose_death_is_noticed_by_an_order_that_can_not_be_sent_is_replaced(number, monkeypatch):
    killed = []

    class Fragile(TemplateProcess):
        def spawn(self, seat, descriptors):
            if seat == number and not killed:
                killed.append(seat)
                self._process.kill()
                self._process.wait()
            super().spawn(seat, descriptors)

    monkeypatch.setattr(process_pool, "TemplateProcess", Fragile)
    with processes(TellsProcess(), batch_size=4) as loader:
        assert len(list(loader)) == 16
    assert killed == [number]


def test_sockets_are_closed_also_if_nobody_tells_that_the_workers_have_ended():
    with processes(TellsProcess(), batch_size=4) as loader:
        iterator = iter(loader)
        first = next(iterator)
        pool = loader._executor().pool
        _until(lambda: len(pool.process_ids()) == 2)
        seats = list(pool._seats)
        template = int(Path(f"/proc/{int(first[0])}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(template, signal.SIGSTOP)
        loader.close()
        pool.join(30)
    assert [seat._channel.fileno() for seat in seats] == [-1, -1]


def test_a_process_that_can_not_be_sent_what_workers_run_is_ended_again(monkeypatch):
    with processes(TellsProcess(), batch_size=4) as loader:
        iterator = iter(loader)
        first = next(iterator)
        pool = loader._executor().pool
        made = []

        class Recorded(TemplateProcess):
            def __init__(self):
                super().__init__()
                made.append(self)

            def equip(self, parcel, options):
                raise OSError(24, "Too many open files")

        monkeypatch.setattr(process_pool, "TemplateProcess", Recorded)
        template = int(Path(f"/proc/{int(first[0])}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(template, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"no worker process can be started: .*Too many open files"):
            list(iterator)
        assert pool._template is None
    assert made
    assert all(template._channel.fileno() == -1 for template in made)
    assert all(template._process.returncode is not None for template in made)


def test_a_watchdog_writes_the_stacks_of_everybody(caplog, capfd):
    with processes(LateItem(4), batch_size=2, watchdog=0.2) as loader:
        iterator = iter(loader)
        next(iterator)
        consumer = threading.Thread(target=lambda: _swallow(iterator))
        consumer.start()
        text = ""

        def has_come():
            nonlocal text
            text += capfd.readouterr().err
            return "__getitem__" in text and "watchdog" in caplog.text

        _until(has_come)
        iterator.close()
        loader.close()
        assert "process_datasets.py" in text
        assert "feedline-processes" in caplog.text
        iterator._session.notify()
        consumer.join(20)
        assert not consumer.is_alive()


def _until(condition):
    pause = threading.Event()  # never set: a wait with a deadline between two looks
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise TimeoutError("it has not come within 30 s")


def _swallow(iterator):
    try:
        next(iterator)
    except RuntimeError:
        return


def test_a_job_that_fails_gives_each_of_its_batches_an_error_of_its_own():
    from feedline.loader.batch import Task
    from feedline.loader.execution.threads import Line

    line = Line(True, {})
    job = Job(line, 1, Task(4, 0, [1, 2, 3, 4], count=2, batch_size=2), b"")
    job.fail(ValueError("broken"), "somewhere")
    errors = [line.outcomes._outcomes[number].error for number in (4, 5)]
    assert errors[0] is not errors[1]
    assert errors[1].__notes__ == ["feedline: batch 5 of epoch 0, somewhere"]


def test_no_child_of_multiprocessing_is_used():
    with processes(Numbers(8), batch_size=2) as loader:
        list(loader)
        assert multiprocessing.active_children() == []


def test_leaving_a_loop_stops_what_is_in_progress_after_its_item(tmp_path):
    gate = tmp_path / "gate"
    with processes(Gated(gate, tmp_path), batch_size=8, num_workers=1) as loader:
        iterator = iter(loader)
        consumer = threading.Thread(target=lambda: _swallow(iterator))
        consumer.start()
        _until(lambda: (tmp_path / "0").exists())
        iterator.close()
        gate.touch()
        loader.set_epoch(1)
        # Nothing of the first epoch runs on: its batch ends behind its first item.
        (tmp_path / "0").unlink()
        assert next(iter(loader)).tolist() == list(range(8))
        # (The batch behind it may have begun already.)
        assert {(tmp_path / str(n)).read_text() for n in range(8)} == {"1"}
        iterator._session.notify()
        consumer.join(20)
        assert not consumer.is_alive()
