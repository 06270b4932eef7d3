"""Worker processes give what the calling thread gives: batches, randomness, errors, positions."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

from feedline import DataLoader, IterableDataset, OptionError, WorkerError
from feedline.datasets.arrays import ArrayDataset
from process_datasets import (
    ERRORS,
    Awaited,
    Detailed,
    LateItem,
    Numbers,
    Raising,
    TellsProcess,
    WithGetItems,
    add_noise,
    from_global_generators,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


def processes(dataset, **options):
    return DataLoader(dataset, num_workers=2, worker_type="process", **options)


def outcomes_of(loader):
    """Return what comes of every batch of an epoch: its rows, or type, arguments and notes of its error."""
    iterator = iter(loader)
    found = []
    while True:
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            return found
        except Exception as error:
            notes = [note.rpartition(", ")[0] for note in error.__notes__]
            found.append((type(error).__name__, error.args, notes))


def plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


@pytest.mark.parametrize("item_concurrency", [1, 3])
@pytest.mark.parametrize("kind", [Numbers, WithGetItems])
def test_batches_and_their_randomness_are_those_of_the_calling_thread(kind, item_concurrency):
    options = {"batch_size": 7, "shuffle": True, "seed": 5, "transform": add_noise}
    with processes(kind(), item_concurrency=item_concurrency, **options) as loader:
        serial = DataLoader(kind(), **options)
        for _ in range(2):
            assert outcomes_of(loader) == outcomes_of(serial)


def test_whole_batches_are_gathered_in_the_workers():
    x, y = np.arange(400_000.0).reshape(10_000, 40), np.arange(10_000)
    with processes(ArrayDataset(x, y), batch_size=600, shuffle=True) as loader:
        for ours, theirs in zip(
            loader, DataLoader(ArrayDataset(x, y), batch_size=600, shuffle=True), strict=True
        ):
            assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(ours, theirs))


def test_batches_out_of_order_are_the_same_batches():
    with processes(Numbers(60), batch_size=4, in_order=False) as loader:
        rows = sorted(index for _, indices in loader for index in indices.tolist())
    assert rows == list(range(60))


def after_a_moment(item):
    """Wait long enough that one worker alone can't be through before the other has begun."""
    threading.Event().wait(0.02)
    return item


def test_both_workers_work_and_stay_for_the_next_epoch():
    with processes(TellsProcess(), batch_size=1, transform=after_a_moment) as loader:
        first = {int(batch[0]) for batch in loader}
        second = {int(batch[0]) for batch in loader}
    assert os.getpid() not in first
    assert len(first | second) == 2


def test_nothing_starts_before_the_first_batch_is_asked_for():
    before = threading.active_count()
    loader = processes(Numbers())
    iterator = iter(loader)
    assert loader.state_dict()["position"] == 0
    assert threading.active_count() == before
    iterator.close()


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors_travel_as_themselves_or_are_told(name):
    original = ERRORS[name]()
    with processes(Raising(name), batch_size=4) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(Exception) as caught:
            next(iterator)
        assert next(iterator).tolist() == [8, 9, 10, 11]
    error = caught.value
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    # The worker's traceback ends the chain, on lines of its own.
    assert "process_datasets.py" in str(chain[-1])
    assert "\n" in str(chain[-1])
    assert any(
        "item 7 (row 3 of batch 1, epoch 0)" in note and "worker process" in note for note in error.__notes__
    )
    if name in (
        "HTTPError",
        "KeywordOnly",
        "HoldsLock",
        "Local",
        "RaisesOnLoad",
        "SystemExit",
        "KeyboardInterrupt",
    ):
        assert type(error) is WorkerError
        assert error.type_name.endswith(type(original).__name__)
        assert error.index == 7
        assert "Traceback" in error.traceback_text
    elif name == "StopIteration":
        assert type(error) is RuntimeError
        assert isinstance(chain[1], StopIteration)
    else:
        assert type(error) is type(original)
        assert error.args == original.args


def test_errors_keep_their_attributes_and_causes():
    with processes(Raising("Detailed"), batch_size=12) as loader, pytest.raises(Detailed) as caught:
        next(iter(loader))
    assert caught.value.detail == {"why": [1, 2]}
    with (
        processes(Raising("chained"), batch_size=12) as loader,
        pytest.raises(ValueError, match="second") as chained,
    ):
        next(iter(loader))
    assert isinstance(chained.value.__cause__, KeyError)


@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_failure_policies_work_as_in_the_calling_thread(on_error):
    options = {"batch_size": 5, "shuffle": True, "on_error": on_error}
    with processes(Raising("HoldsLock"), **options) as loader:
        serial = DataLoader(Raising("HoldsLock"), **options)
        for _ in range(2):  # in the second epoch the failure is known, and not tried again
            assert outcomes_of(loader) == outcomes_of(serial)
        assert loader.failures == serial.failures
        assert [failure.index for failure in loader.failures] == [7]


def test_an_item_over_its_time_limit_is_a_failure_and_its_worker_goes_on():
    with processes(LateItem(8), batch_size=4, timeout=0.3) as loader:
        iterator = iter(loader)
        with pytest.raises(TimeoutError, match=r"0\.3 s"):
            next(iterator)
        assert next(iterator)[1].tolist() == [4, 5, 6, 7]


def test_items_of_asynchronous_datasets_are_awaited_in_the_workers(tmp_path):
    for item_concurrency in (1, 4):
        options = {"batch_size": 5, "item_concurrency": item_concurrency}
        with processes(Awaited(closed=tmp_path), **options) as loader:
            found = outcomes_of(loader)
        assert found == outcomes_of(DataLoader(Awaited(), **options))
        assert next(entry for entry in found if isinstance(entry, tuple))[:2] == ("KeyError", ("thirteen",))
    with processes(Awaited(), batch_size=5, on_error="substitute") as loader:
        assert [len(batch) for batch in loader] == [5, 5, 5, 5, 4]


def test_an_asynchronous_dataset_is_closed_when_its_worker_ends(tmp_path):
    dataset = Awaited(closed=tmp_path)
    with DataLoader(dataset, num_workers=1, worker_type="process", batch_size=2, on_error="skip") as loader:
        assert len(list(loader)) == 12
        assert os.listdir(tmp_path) == []
    pause = threading.Event()  # never set: a wait with a deadline between two looks
    for _ in range(1000):
        if os.listdir(tmp_path):
            break
        pause.wait(0.01)
    assert len(os.listdir(tmp_path)) == 1


class Stream(IterableDataset):
    def __iter__(self):
        self.unpicklable = threading.Lock()
        for index in range(50):
            yield np.full(3, index)


def test_streams_are_read_here_and_their_items_travel():
    options = {"batch_size": 4, "transform": lambda item, context: item + context.rng.integers(1000)}
    with processes(Stream(), **options) as loader:
        found = outcomes_of(loader)
        assert found == outcomes_of(DataLoader(Stream(), **options))
        assert len(found) == 13


def test_an_item_of_a_stream_that_can_not_be_pickled_is_an_error_of_its_batch():
    items = [1, 2, threading.Lock(), 4, 5, 6]
    with processes((item for item in items), batch_size=2) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [1, 2]
        with pytest.raises(ValueError, match=r"items\[0\]: cannot pickle '_thread.lock' object"):
            next(iterator)
        assert next(iterator).tolist() == [5, 6]


def test_global_generators_are_seeded_for_each_item():
    options = {"batch_size": 4, "shuffle": True, "transform": from_global_generators, "reseed_globals": True}
    before = random.getstate()
    with processes(Numbers(24), **options) as loader:
        found = outcomes_of(loader)
    assert random.getstate() == before
    assert found == outcomes_of(DataLoader(Numbers(24), **options))
    with pytest.raises(OptionError, match="item_concurrency=2"):
        processes(Numbers(), item_concurrency=2, reseed_globals=True)


def test_unseeded_generators_of_workers_differ():
    with processes(Numbers(64), batch_size=1, transform=from_global_generators) as loader:
        drawn = [float(batch[2][0]) for batch in loader]
    assert len(set(drawn)) == 64


def test_a_position_moves_between_kinds_and_numbers_of_workers():
    options = {"batch_size": 3, "shuffle": True, "seed": 9, "transform": add_noise}
    whole = outcomes_of(DataLoader(Numbers(), **options))
    with DataLoader(Numbers(), num_workers=4, worker_type="process", prefetch_depth=4, **options) as loader:
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
    for workers in (
        {"num_workers": 0},
        {"num_workers": 1},
        {"num_workers": 7},
        {"num_workers": 1, "worker_type": "process"},
    ):
        with DataLoader(Numbers(), **workers, **options) as other:
            other.load_state_dict(state)
            assert outcomes_of(other) == whole[5:]


def test_several_iterators_and_threads_share_the_workers():
    with processes(Numbers(40), batch_size=4) as loader:
        expected = outcomes_of(DataLoader(Numbers(40), batch_size=4))
        first, second = iter(loader), iter(loader)
        found = [(plain(next(first)), plain(next(second))) for _ in range(10)]
        assert found == [(batch, batch) for batch in expected]
        results = {}
        threads = [
            threading.Thread(target=lambda n=n: results.update({n: outcomes_of(loader)})) for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert results == dict.fromkeys(range(3), expected)


def test_a_forked_child_makes_workers_of_its_own():
    script = """
import os, sys
from feedline import DataLoader
loader = DataLoader(list(range(12)), batch_size=3, num_workers=2, worker_type="process")
iterator = iter(loader)
first = next(iterator).tolist()
pid = os.fork()
if pid == 0:
    try:
        next(iterator)
    except RuntimeError as error:
        assert "fork" in str(error), error
    else:
        os._exit(1)
    loader.set_epoch(0)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert [batch.tolist() for batch in iterator] == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
print("good")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "good\n", "")


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_batch_can_be_replayed():
    with processes(Numbers(), batch_size=3, shuffle=True, transform=add_noise) as loader:
        epoch = outcomes_of(loader)
        assert plain(loader.batch_at(0, 4)) == epoch[4]
