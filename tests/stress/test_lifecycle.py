"""What happens around the batches: leaving early, several iterators, closing, collecting, bounds, and nothing left over."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

from feedline import ArrayDataset, DataLoader
from loading import DEADLINE, AsyncSquares, Broken, CountingStream, Gate, Squares

KINDS = {
    "serial": lambda **o: DataLoader(Squares(40), 2, **o),
    "items side by side": lambda **o: DataLoader(Squares(40), 2, item_concurrency=2, **o),
    "time limit": lambda **o: DataLoader(Squares(40), 2, timeout=60.0, **o),
    "threads": lambda **o: DataLoader(Squares(40), 2, num_workers=3, **o),
    "threads and lanes": lambda **o: DataLoader(Squares(40), 2, num_workers=2, item_concurrency=2, **o),
    "arrays on threads": lambda **o: DataLoader(ArrayDataset(np.arange(40)), 2, num_workers=2, **o),
    "awaited": lambda **o: DataLoader(AsyncSquares(40), 2, num_workers=2, item_concurrency=2, **o),
    "awaited, no workers": lambda **o: DataLoader(AsyncSquares(40), 2, **o),
    "stream": lambda **o: DataLoader(CountingStream(40), 2, num_workers=2, **o),
}
every_kind = pytest.mark.parametrize("name", KINDS)


@every_kind
def test_two_hundred_first_batches_leave_nothing(name, nothing_left) -> None:
    loader = KINDS[name]()
    next(iter(loader))
    most = threading.active_count() + 1
    for _ in range(200):
        next(iter(loader))
    # One reader, of a stream, may still be at its last item.
    assert threading.active_count() <= most + 2
    loader.close()


@every_kind
def test_fifty_loaders_that_are_dropped_leave_nothing(name, nothing_left) -> None:
    for _ in range(50):
        next(iter(KINDS[name]()))


@every_kind
def test_an_iterator_goes_as_soon_as_it_is_dropped(name) -> None:
    loader = KINDS[name]()
    gc.collect()
    gc.disable()
    try:
        iterator = iter(loader)
        next(iterator)
        seen = weakref.ref(iterator)
        del iterator
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_goes_as_soon_as_it_is_dropped_after_an_error(workers) -> None:
    loader = DataLoader(Broken(40, bad=(0,)), 2, num_workers=workers)
    gc.collect()
    gc.disable()
    try:
        iterator = iter(loader)
        with pytest.raises(ValueError, match="bad item"):
            next(iterator)
        seen = weakref.ref(iterator)
        del iterator
        assert seen() is None
    finally:
        gc.enable()


@every_kind
def test_iterators_of_one_loader_are_independent(name, nothing_left) -> None:
    loader = KINDS[name]()
    expected = [str(batch) for batch in loader]
    one, two = iter(loader), iter(loader)
    pairs = [(str(a), str(b)) for a, b in zip(one, two)]
    assert [a for a, _ in pairs] == expected
    assert [b for _, b in pairs] == expected
    assert [str(a) == str(b) for a, b in zip(loader, loader)] == [True] * 20
    loader.close()


@pytest.mark.parametrize("name", ["serial", "threads", "awaited", "stream"])
def test_loops_nest(name) -> None:
    loader = KINDS[name]()
    assert sum(1 for _ in itertools.islice(loader, 5) for _ in loader) == 100
    loader.close()


@every_kind
def test_two_threads_iterate_one_loader(name) -> None:
    loader = KINDS[name]()
    expected = [str(batch) for batch in loader]
    found = {}

    def run(number):
        found[number] = [str(batch) for batch in loader]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert found == {0: expected, 1: expected}
    loader.close()


def test_epochs_advance_by_themselves_however_iterators_are_made() -> None:
    loader = DataLoader(Squares(20), 4, shuffle=True)
    orders = [[i for i, _ in loader.iter_with_indices()] for _ in range(3)]
    assert len({str(order) for order in orders}) == 3
    loader.set_epoch(0)
    late = [loader.iter_with_indices() for _ in range(3)]
    assert [[i for i, _ in iterator] for iterator in reversed(late)] == orders[::-1]
    assert loader.epoch == 3
    loader.set_epoch(10**15)
    assert loader.epoch == 10**15
    iterator = loader.iter_with_indices()
    loader.set_epoch(0)
    assert [i for i, _ in loader.iter_with_indices()] == orders[0]
    assert len(list(iterator)) == 5


@every_kind
def test_closing_is_idempotent_and_says_so_when_used(name, nothing_left) -> None:
    with KINDS[name]() as loader:
        iterator = iter(loader)
        next(iterator)
    for thing in (iterator, loader, iterator, loader):
        thing.close()
    with pytest.raises(RuntimeError, match="this iterator is closed; make a new one"):
        next(iterator)
    with pytest.raises(RuntimeError, match="the loader is closed"):
        iter(loader)
    with pytest.raises(RuntimeError, match="the loader is closed"):
        loader.batch_at(0, 0)
    assert loader.state_dict()["position"] == 2


def test_an_iterator_closes_alone() -> None:
    loader = DataLoader(Squares(10), 2, num_workers=1)
    with iter(loader) as one:
        next(one)
    two = iter(loader)
    with pytest.raises(RuntimeError, match="closed"):
        next(one)
    assert len(list(two)) == 5
    two.close()
    assert next(two, None) is None  # it had ended before
    loader.close()


@pytest.mark.parametrize("name", ["serial", "threads", "awaited", "stream"])
def test_the_end_stays_the_end(name) -> None:
    iterator = iter(KINDS[name]())
    assert len(list(iterator)) == 20
    for _ in range(3):
        assert next(iterator, None) is None


def gated(gate, kind):
    class Waiting(Squares):
        def __getitem__(self, index):
            gate.enter()
            return super().__getitem__(index)

    return DataLoader(Waiting(100), 2, **kind)


def test_closing_from_another_thread_ends_a_wait(nothing_left) -> None:
    gate = Gate()
    loader = gated(gate, {"num_workers": 1})
    iterator = iter(loader)
    caught = []

    def consume():
        try:
            next(iterator)
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=consume)
    thread.start()
    gate.wait_for(1)
    loader.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert "closed" in caught[0]
    gate.open()


def test_leaving_early_does_not_wait_for_items_in_flight(nothing_left) -> None:
    gate = Gate()

    class FirstIsFree(Squares):
        def __getitem__(self, index):
            if index > 1:
                gate.enter()
            return super().__getitem__(index)

    loader = DataLoader(FirstIsFree(100), 2, num_workers=2)
    for _ in loader:
        gate.wait_for(2)
        break  # the gate is still shut: waiting for it would be a time-out
    loader.close()
    assert gate.inside == 2
    gate.open()


class Stalling:
    """Item 0 waits for the gate, all others don't; tells which came."""

    def __init__(self, gate) -> None:
        self.gate = gate
        self.come = 0
        self.changed = threading.Condition()

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index):
        with self.changed:
            self.come += 1
            self.changed.notify_all()
        if index == 0:
            self.gate.enter()
        return index


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(("workers", "depth"), [(1, 0), (2, 2), (3, 5)])
def test_no_more_than_the_window_is_in_progress_behind_a_slow_first_batch(workers, depth, in_order) -> None:
    gate = Gate()
    dataset = Stalling(gate)
    loader = DataLoader(dataset, 2, num_workers=workers, prefetch_depth=depth, in_order=in_order)
    iterator = loader.iter_with_indices()
    window = workers + depth
    consumer = []
    thread = threading.Thread(target=lambda: consumer.extend(i for i, _ in iterator))
    thread.start()
    gate.wait_for(1)
    # With one worker nothing else runs; with more, the others work until the window is full.
    expected = 1 if workers == 1 else 2 * (window - 1) + 1
    with dataset.changed:
        assert dataset.changed.wait_for(lambda: dataset.come >= expected, DEADLINE)
        # Whoever would exceed the bound has had every occasion: all other workers are idle now.
        bound = window if in_order else 2 * window
        assert dataset.come <= 2 * bound
    gate.open()
    thread.join(DEADLINE)
    assert sorted(consumer) == [[k, k + 1] for k in range(0, 300, 2)]
    if in_order:
        assert consumer == sorted(consumer)
    loader.close()


def test_no_more_than_the_window_waits_for_a_consumer_that_sleeps() -> None:
    gate = Gate()
    gate.open()
    loader = gated(gate, {"num_workers": 2, "prefetch_depth": 3})
    iterator = iter(loader)
    next(iterator)
    gate.wait_for(2 * 6)
    # One batch is received, five are the window.
    assert gate.come == 2 * 6
    assert len(list(iterator)) == 49
    loader.close()


def test_prefetch_bytes_bounds_what_waits_one_batch_always_allowed() -> None:
    for limit, most in ((1, 1), (1600, 1), (3200, 2), (4800, 3), (10**9, 6)):
        started = threading.Semaphore(0)
        seen = []

        class Rows(Squares):
            def __getitem__(self, index):
                seen.append(index)
                started.release()
                return np.zeros(100)

        loader = DataLoader(Rows(60), 2, num_workers=2, prefetch_depth=4, prefetch_bytes=limit)
        iterator = iter(loader)
        assert seen == []
        next(iterator)
        for _ in range(2 * (1 + most)):
            assert started.acquire(timeout=DEADLINE)
        assert len(seen) <= 2 * (1 + most)
        assert len(list(iterator)) == 29
        loader.close()


@pytest.mark.parametrize("name", KINDS)
def test_error_storms_end_as_they_should(name, nothing_left) -> None:
    options = {"num_workers": 2} if "threads" in name or name == "awaited" else {}
    loader = DataLoader(Broken(100, bad=range(100)), 3, item_concurrency=1 + len(name) % 3, **options)
    iterator = iter(loader)
    errors = 0
    while True:
        try:
            next(iterator)
        except (ValueError, KeyError, IndexError, OSError, RuntimeError):
            errors += 1
        except StopIteration:
            break
    assert errors == 34
    loader.close()


def test_workers_are_kept_between_epochs() -> None:
    names = set()

    def note(item):
        names.add(threading.current_thread().ident)
        return item

    with DataLoader(Squares(40), 1, num_workers=2, transform=note) as loader:
        for _ in range(5):
            list(loader)
    assert len(names) <= 2


def test_a_batch_that_was_delivered_is_not_kept() -> None:
    class Item:
        pass

    for workers in (0, 2):
        loader = DataLoader(
            [None] * 10, 1, collate_fn=lambda items: Item(), num_workers=workers, prefetch_depth=0
        )
        iterator = iter(loader)
        batch = next(iterator)
        seen = weakref.ref(batch)
        del batch
        gc.collect()
        assert seen() is None, workers
        loader.close()
