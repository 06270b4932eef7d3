"""Ray actors give what the calling thread gives: batches, randomness, errors, positions."""

from __future__ import annotations

import json
import os
import random
import threading

import numpy as np
import pytest

from feedline import ArrayDataset, DataLoader, IterableDataset
from loading import (
    AsyncSquares,
    Broken,
    Squares,
    draw_with_context,
    results,
    same_results,
)
from process_datasets import Awaited, Numbers, Raising, TellsProcess, from_global_generators

pytestmark = pytest.mark.usefixtures("local_ray")


def actors(dataset, num_workers=2, **options):
    return DataLoader(dataset, num_workers=num_workers, worker_type="ray", **options)


def both(make, **options):
    """Return the results of two epochs of a Ray loader, and of one in the calling thread."""
    with actors(make(), **options) as loader:
        found = [results(loader.iter_with_indices()) for _ in range(2)]
    serial = DataLoader(make(), **options)
    return found, [results(serial.iter_with_indices()) for _ in range(2)]


SHUFFLED = {"batch_size": 5, "shuffle": True, "seed": 5, "transform": draw_with_context}
SAME = {
    "items side by side": (Squares, {**SHUFFLED, "item_concurrency": 3}),
    "errors": (Broken, SHUFFLED),
    "awaited": (lambda: AsyncSquares(23, (3, 4)), {**SHUFFLED, "item_concurrency": 4, "on_error": "skip"}),
}


@pytest.mark.parametrize("name", SAME)
def test_two_epochs_are_those_of_the_calling_thread(name):
    make, options = SAME[name]
    found, expected = both(make, **options)
    assert all(map(same_results, found, expected))


def test_batches_out_of_order_are_the_same_batches():
    with actors(Numbers(60), batch_size=4, in_order=False) as loader:
        rows = sorted(index for _, indices in loader for index in indices.tolist())
    assert rows == list(range(60))


def test_both_actors_work_and_stay_for_the_next_epoch():
    with actors(TellsProcess(), batch_size=1) as loader:
        pids = {int(batch[0]) for _ in range(2) for batch in loader}
        for _ in range(10):
            pids.add(int(next(iter(loader))[0]))
    assert os.getpid() not in pids
    assert len(pids) <= 2


def test_the_global_random_state_is_left_alone():
    random.seed(7)
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
    with actors(Numbers(8), batch_size=2) as loader:
        list(loader)
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpy_before


@pytest.mark.parametrize("rows", [3, 200])
def test_batches_are_writable_and_outlive_their_actors(rows):
    x = np.arange(rows * 1000.0).reshape(rows, 1000)
    with actors(ArrayDataset(x), batch_size=rows) as loader:
        kept = [next(iter(loader))[0] for _ in range(4)]
    for batch in kept:
        assert batch.flags.writeable
        assert batch.flags.aligned
        batch += 1
    assert all(np.array_equal(batch, x + 1) for batch in kept)


class Shared:
    """An item tells whether its actor may write to the dataset's array, which all actors of a machine see."""

    def __init__(self):
        self.array = np.zeros(100_000)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.array.flags.writeable, bool(self.array.flags.owndata)


def test_the_arrays_of_a_dataset_lie_in_the_object_store_once():
    with actors(Shared(), batch_size=4) as loader:
        writable, own = next(iter(loader))
    assert not writable.any()
    assert not own.any()


@pytest.mark.parametrize("name", ["KeyError", "HTTPError", "Detailed", "chained", "SystemExit"])
def test_errors_travel_as_themselves_or_are_told(name):
    with (
        actors(Raising(name), batch_size=4) as loader,
        DataLoader(Raising(name), batch_size=4, num_workers=1, worker_type="process") as processes,
    ):
        told = []
        for kind in (loader, processes):
            iterator = iter(kind)
            next(iterator)
            with pytest.raises(Exception) as caught:
                next(iterator)
            told.append(caught.value)
            assert next(iterator).tolist() == [8, 9, 10, 11]
    ours, theirs = told
    assert type(ours) is type(theirs)
    assert getattr(ours, "type_name", None) == getattr(theirs, "type_name", None)
    if name != "HTTPError":
        assert ours.args == theirs.args
    assert "(row 3 of batch 1, epoch 0)" in ours.__notes__[0]
    assert "Ray actor" in ours.__notes__[0]
    while ours.__cause__ is not None:
        ours = ours.__cause__
    assert "process_datasets.py" in str(ours)


def test_classes_and_functions_of_the_program_itself_are_sent_by_value():
    class Local:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index * factor

    factor = 3
    with actors(Local(), batch_size=3, collate_fn=lambda items: sum(items)) as loader:
        assert list(loader) == [9, 36]


def test_global_generators_are_seeded_for_each_item():
    options = {"batch_size": 4, "shuffle": True, "transform": from_global_generators, "reseed_globals": True}
    found, expected = both(lambda: Numbers(24), **options)
    assert all(map(same_results, found, expected))


def test_a_position_moves_between_kinds_of_workers():
    options = {"batch_size": 3, "shuffle": True, "seed": 9, "transform": draw_with_context}
    whole = results(DataLoader(Squares(), **options).iter_with_indices())
    with actors(Squares(), **options) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        with DataLoader(Squares(), num_workers=3, **options) as threads:
            threads.load_state_dict(state)
            assert same_results(results(threads.iter_with_indices()), whole[4:])
            early = DataLoader(Squares(), **options)
            next(iter(early))
            loader.load_state_dict(early.state_dict())
            assert same_results(results(loader.iter_with_indices()), whole[1:])


def test_leaving_a_loop_keeps_the_actors():
    with actors(TellsProcess(), num_workers=1, batch_size=1) as loader:
        pids = set()
        for _ in range(5):
            for batch in loader:
                pids.add(int(batch[0]))
                break
    assert len(pids) == 1


def test_two_iterators_share_the_actors():
    with actors(Numbers(20), batch_size=4) as loader:
        one, two = iter(loader), iter(loader)
        pairs = [(a[1].tolist(), b[1].tolist()) for a, b in zip(one, two, strict=True)]
    assert pairs == [(list(range(i, i + 4)),) * 2 for i in range(0, 20, 4)]


def test_an_asynchronous_dataset_is_closed_in_each_actor(tmp_path):
    with actors(Awaited(closed=tmp_path), num_workers=1, batch_size=2, on_error="skip") as loader:
        assert len(list(loader)) == 12
    wait_until(lambda: len(os.listdir(tmp_path)) == 1)


class Opens(IterableDataset):
    """A stream that can't be pickled, for which it is never asked."""

    def __iter__(self):
        self.lock = threading.Lock()
        yield from range(10)


def test_a_stream_stays_with_its_reader():
    with actors(Opens(), batch_size=4) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_what_can_not_be_pickled_is_named():
    lock = threading.Lock()
    with actors(Numbers(4), batch_size=2, transform=lambda item: (item, lock)) as loader:
        with pytest.raises(TypeError, match=r"transform \(its variable 'lock'\): cannot pickle"):
            next(iter(loader))
    with actors(
        Numbers(4), num_workers=1, batch_size=2, collate_fn=lambda items: [threading.Lock()]
    ) as loader:
        with pytest.raises(TypeError, match=r"batch\[0\]: cannot pickle '_thread.lock' object"):
            next(iter(loader))


def test_tensors_of_a_dataset_are_copies_that_may_be_written_to():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(20_000.0)
    with actors(tensor, num_workers=1, batch_size=4, transform=lambda item: item.add_(1)) as loader:
        assert next(iter(loader)).tolist() == [1, 2, 3, 4]
    assert float(tensor[0]) == 0


def wait_until(condition):
    pause = threading.Event()  # never set: a wait with a deadline between two looks
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise TimeoutError("it has not come within 30 s")
