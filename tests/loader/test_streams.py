"""Streams load: in order by one reader, whatever the workers; shared out by position; and they end as they end."""

from __future__ import annotations

import gc
import logging
import pickle
import threading

import numpy as np
import pytest

from feedline import DataLoader, IterableDataset, OptionError, StateError, WorkerError, shuffle_buffer
from feedline.loader import pulling
from feedline.loader.lanes import charge
from feedline.loader.pulling import Pull, Puller, TimedItems
from feedline.loader.streams import StreamSource
from feedline.loader.walk import Rewalk
from loading import DEADLINE, CountingStream, SeekableStream, draw_with_context, results

WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


@WORKERS
def test_items_come_in_order_with_indices_of_the_whole_stream(workers) -> None:
    with DataLoader(CountingStream(10), 4, num_workers=workers, transform=draw_with_context) as loader:
        found = list(loader.iter_with_indices())
    assert [indices for indices, _ in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch["index"] for _, batch in found] == [list("0123"), list("4567"), list("89")]


@WORKERS
def test_one_reader_reads_and_reads_no_further_than_it_must(workers) -> None:
    readers, taken = set(), []

    class Watched(IterableDataset):
        def __iter__(self):
            for number in range(1000):
                readers.add(threading.get_ident())
                taken.append(number)
                yield number

    with DataLoader(Watched(), 2, num_workers=workers, prefetch_depth=1) as loader:
        iterator = iter(loader)
        assert taken == []
        for _ in range(5):
            next(iterator)
        assert len(readers) == 1
        assert len(taken) <= 2 * (5 + workers + 1)
        assert (threading.get_ident() in readers) is (workers == 0)


@pytest.mark.parametrize(
    "make", [lambda: iter(range(7)), lambda: (n for n in range(7)), lambda: map(int, "0123456")]
)
def test_any_iterable_is_a_stream_and_a_one_shot_iterator_warns_once(make) -> None:
    loader = DataLoader(make(), 3)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    with pytest.warns(UserWarning, match="is an iterator and used up: this epoch may be empty") as caught:
        assert list(loader) == []
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert list(loader) == []


@WORKERS
@pytest.mark.parametrize("fails_at", [0, 3, 4, 9])
def test_an_error_ends_the_stream_behind_a_short_batch(fails_at, workers) -> None:
    with DataLoader(CountingStream(10, fails_at), 4, num_workers=workers) as loader:
        iterator = loader.iter_with_indices()
        found = results(iterator)
        assert next(iterator, None) is None
    before = [tuple(range(k, min(k + 4, fails_at))) for k in range(0, fails_at, 4)]
    assert [result.indices for result in found] == [*before, None]
    kind, arguments, _, notes = found[-1].value
    assert (kind, arguments) == (OSError, ("the wire is cut", fails_at))
    assert notes == [f"feedline: the stream failed at item {fails_at}, epoch 0"] or notes[0].startswith(
        f"feedline: the stream failed at item {fails_at}"
    )


@WORKERS
def test_a_stream_whose_state_can_not_be_had_ends_with_that_error_once(workers) -> None:
    class Speechless(IterableDataset):
        def __iter__(self):
            return iter(range(10))

        def state_dict(self):
            raise ValueError("no state today")

        def load_state_dict(self, state):
            pass

    loader = DataLoader(Speechless(), 4, num_workers=workers)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no state today") as caught:
        next(iterator)
    assert caught.value.__notes__ == ["feedline: the stream's state_dict() failed behind item 4, epoch 0"]
    assert list(iterator) == []
    assert loader.state_dict()["epoch"] == 1
    loader.close()


def test_the_position_is_known_when_more_was_received_than_the_reader_has_read_again() -> None:
    plan = StreamSource(CountingStream(20), 2, False, 0, 1).plan(0, 0, 0)
    assert plan.task(0) is not None
    for number in (1, 2, 5, 0, 6):
        plan.forget(number)
    assert plan.items_before(3) == 6


@WORKERS
@pytest.mark.parametrize("kind", [SystemExit, StopAsyncIteration, GeneratorExit])
def test_what_would_end_the_program_is_an_error_of_the_stream(kind, workers) -> None:
    class Ending(IterableDataset):
        def __iter__(self):
            yield 1
            raise kind("from a stream")

    with DataLoader(Ending(), 1, num_workers=workers) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises((WorkerError, RuntimeError), match="out of user code"):
            next(iterator)
        assert next(iterator, None) is None


def test_a_stream_that_can_not_start_says_so_at_once() -> None:
    class Closed(IterableDataset):
        def __iter__(self):
            raise OSError("nobody listens")

    loader = DataLoader(Closed(), 2)
    for _ in range(2):
        with pytest.raises(OSError, match="nobody listens"):
            iter(loader)
    assert loader.epoch == 0


@WORKERS
def test_ranks_share_a_stream_by_position(workers) -> None:
    shares = []
    for rank in range(3):
        with DataLoader(CountingStream(11), 2, rank=rank, world_size=3, num_workers=workers) as loader:
            shares.append([index for indices, _ in loader.iter_with_indices() for index in indices])
    assert shares == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]


def test_a_stream_that_can_shard_itself_does_and_keeps_indices_apart() -> None:
    class Sharding(CountingStream):
        def shard(self, index, count):
            return range(index * 100, index * 100 + 3)

    found = {}
    for rank in range(2):
        loader = DataLoader(Sharding(), 2, rank=rank, world_size=2)
        found[rank] = [(indices, batch.tolist()) for indices, batch in loader.iter_with_indices()]
    assert found == {0: [([0, 2], [0, 1]), ([4], [2])], 1: [([1, 3], [100, 101]), ([5], [102])]}
    assert len(list(DataLoader(Sharding(4), 2))) == 2  # alone it is read as it is


def test_a_state_of_a_stream_that_shards_itself_is_for_as_many_ranks() -> None:
    class Sharding(CountingStream):
        def shard(self, index, count):
            return list(range(index, 12, count))

    loader = DataLoader(Sharding(12), 2, rank=0, world_size=2)
    next(iter(loader))
    state = loader.state_dict()
    other = DataLoader(Sharding(12), 2, rank=1, world_size=2)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == [[5, 7], [9, 11]]
    with pytest.raises(StateError, match="shards: the state has 2, the loader has 3"):
        DataLoader(Sharding(12), 2, rank=1, world_size=3).load_state_dict(state)


def test_drop_last_and_lengths() -> None:
    assert len(DataLoader(SeekableStream(10), 4)) == 3
    assert len(DataLoader(SeekableStream(10), 4, drop_last=True)) == 2
    assert len(DataLoader(SeekableStream(10), 4, rank=1, world_size=3)) == 1
    assert [len(i) for i, _ in DataLoader(SeekableStream(10), 4, drop_last=True).iter_with_indices()] == [
        4,
        4,
    ]
    iterator = iter(DataLoader(SeekableStream(10), 4))
    next(iterator)
    assert len(iterator) == 2
    for thing in (DataLoader(CountingStream(5)), iter(DataLoader(CountingStream(5)))):
        with pytest.raises(TypeError, match="length"):
            len(thing)


def test_a_length_that_is_a_lie_changes_no_batch() -> None:
    class Lying(CountingStream):
        def __len__(self):
            return 100

    iterator = iter(DataLoader(Lying(5), 2))
    assert len(iterator) == 50
    assert [len(batch) for batch in iterator] == [2, 2, 1]


def test_set_epoch_is_called_before_each_epoch() -> None:
    loader = DataLoader(SeekableStream(2), 2)
    assert [batch[:, 1].tolist() for _ in range(3) for batch in loader] == [[0, 0], [1, 1], [2, 2]]
    loader.set_epoch(7)
    assert next(iter(loader))[:, 1].tolist() == [7, 7]


def test_skipped_items_of_a_stream_are_left_out_and_told_by_their_place() -> None:
    def picky(item):
        if item[0] % 3 == 0:
            raise ValueError("no threes")
        return item

    with DataLoader(CountingStream(8), 3, transform=picky, on_error="skip", num_workers=2) as loader:
        assert [i for i, _ in loader.iter_with_indices()] == [[1, 2], [4, 5], [7]]
        assert [failure.index for failure in loader.failures] == [0, 3, 6]


def test_resuming_without_a_state_says_once_that_it_reads_again(caplog) -> None:
    state = {**DataLoader(CountingStream(9), 2).state_dict(), "position": 4, "batch": 2}
    loader = DataLoader(CountingStream(9), 2)
    with caplog.at_level(logging.INFO, "feedline"):
        for _ in range(2):
            loader.load_state_dict(state)
            assert next(loader.iter_with_indices())[0] == [4, 5]
    assert [record.getMessage() for record in caplog.records] == [
        "CountingStream has no state of its own: it is read again up to item 4, without transforms"
    ]


def test_transforms_are_not_run_again_when_it_is_read_again() -> None:
    ran = []

    def note(item):
        ran.append(int(item[0]))
        return item

    loader = DataLoader(CountingStream(9), 2, transform=note)
    loader.load_state_dict({**loader.state_dict(), "position": 4, "batch": 2})
    list(loader)
    assert ran == [4, 5, 6, 7, 8]


def test_two_iterators_of_a_shuffled_stream_tell_their_own_places() -> None:
    loader = DataLoader(shuffle_buffer(range(40), 6, seed=2), 4)
    one, two = loader.iter_with_indices(), loader.iter_with_indices()
    next(one), next(two), next(two), next(one), next(one)
    for iterator in (one, two):
        resumed = DataLoader(shuffle_buffer(range(40), 6, seed=2), 4)
        resumed.load_state_dict(iterator.state_dict())
        assert [b.tolist() for b in resumed] == [b.tolist() for _, b in iterator]


def test_batch_at_needs_random_access() -> None:
    with pytest.raises(TypeError, match=r"batch_at.* needs random access; a stream has none"):
        DataLoader(CountingStream(5)).batch_at(0, 0)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_shuffle_buffer_gives_every_item_once_and_moves_it_no_further_ahead_than_its_size(size) -> None:
    found = list(shuffle_buffer(range(50), size, seed=3))
    assert sorted(found) == list(range(50))
    assert all(place >= item - size + 1 for place, item in enumerate(found))
    assert found == list(shuffle_buffer(range(50), size, seed=3))
    assert (found == list(range(50))) is (size == 1)
    assert size == 1 or found != list(shuffle_buffer(range(50), size, seed=4))


def test_a_shuffle_buffer_differs_by_epoch_and_reads_on_only_as_it_must() -> None:
    buffer = shuffle_buffer(SeekableStream(30), 4, seed=1)
    loader = DataLoader(buffer, 30)
    orders = [batch[:, 0].tolist() for _ in range(3) for batch in loader]
    assert len({tuple(order) for order in orders}) == 3
    stream = SeekableStream(30)
    walk = iter(shuffle_buffer(stream, 4))
    next(walk)
    assert stream.items_read == 4
    assert len(buffer) == 30
    assert not hasattr(type(shuffle_buffer(CountingStream(3), 2)), "__len__")
    assert repr(shuffle_buffer(range(3), 2, seed=5)) == "shuffle_buffer(range(0, 3), size=2, seed=5)"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((3, 2), TypeError, "takes an iterable, not int"),
        ((range(3), 0), OptionError, "size must be at least 1, not 0"),
        ((range(3), 2.5), TypeError, "size must be an int"),
        ((range(3), True), TypeError, "size must be an int"),
        ((range(3), 2, -1), OptionError, "seed must be between"),
    ],
)
def test_a_shuffle_buffer_checks_its_arguments(arguments, kind, message) -> None:
    with pytest.raises(kind, match=message):
        shuffle_buffer(*arguments)


def test_a_state_of_another_shuffle_buffer_is_refused() -> None:
    buffer = shuffle_buffer(range(20), 8)
    walk = iter(buffer)
    for _ in range(3):
        next(walk)
    state = buffer.state_dict()
    assert all(type(value) in (int, list, dict) for value in state.values())
    with pytest.raises(StateError, match=r"holds 7 items .* this one is of size 4"):
        shuffle_buffer(range(20), 4).load_state_dict(state)
    for broken in ({}, {**state, "positions": [1.5]}, {**state, "read": None}):
        with pytest.raises(StateError, match="no state of a shuffle buffer"):
            shuffle_buffer(range(20), 8).load_state_dict(broken)
    short = shuffle_buffer(range(5), 8)
    short.load_state_dict(state)
    with pytest.raises(StateError, match="the stream ends at item 5; the state was made when it had more"):
        iter(short)


def test_a_reader_that_waits_for_its_stream_does_not_keep_a_consumer_that_leaves(nothing_left) -> None:
    gate = threading.Event()

    class Slow(IterableDataset):
        def __iter__(self):
            yield 0
            gate.wait(DEADLINE)
            yield 1

    loader = DataLoader(Slow(), 1, num_workers=1)
    for _ in loader:
        break
    loader.close()
    gate.set()


class Hanging(IterableDataset):
    """Hangs at item `at`, until the gate is opened."""

    def __init__(self, at, gate) -> None:
        self.at = at
        self.gate = gate
        self.threads: set[int] = set()

    def __iter__(self):
        for number in range(10):
            self.threads.add(threading.get_ident())
            if number == self.at:
                self.gate.wait(DEADLINE)
            yield number


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 4, 6])
def test_an_item_that_does_not_come_in_time_ends_the_stream(at, workers, nothing_left) -> None:
    gate = threading.Event()
    stream = Hanging(at, gate)
    loader = DataLoader(stream, 4, num_workers=workers, timeout=0.3)
    found = results(loader.iter_with_indices())
    assert [result.indices for result in found[:-1]] == [
        tuple(range(start, min(start + 4, at))) for start in range(0, at, 4)
    ]
    assert found[-1].value[:2] == (TimeoutError, ("the item took longer than 0.3 s (timeout=)",))
    assert found[-1].value[3] == [f"feedline: the stream failed at item {at}, epoch 0"]
    assert not gate.is_set()
    assert loader.state_dict()["epoch"] == 1
    loader.close()
    gate.set()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 3])
def test_a_time_limit_that_holds_changes_nothing_and_one_thread_reads(workers, world_size) -> None:
    for rank in range(world_size):
        stream = Hanging(None, threading.Event())
        options = {"rank": rank, "world_size": world_size, "num_workers": workers}
        with DataLoader(stream, 2, **options) as loader:
            expected = results(loader.iter_with_indices())
        stream.threads.clear()
        with DataLoader(stream, 2, timeout=60.0, **options) as loader:
            found = results(loader.iter_with_indices())
        assert [one.indices for one in found] == [one.indices for one in expected]
        assert [one.value.tolist() for one in found] == [one.value.tolist() for one in expected]
        assert len(stream.threads) == 1
        assert threading.get_ident() not in stream.threads


def test_an_item_that_comes_but_too_late_ends_the_stream_too() -> None:
    gate = threading.Event()
    pull = Pull(Rewalk(Hanging(1, gate)), 0, 1, 4, 1e-9)
    pull.run()
    assert (pull.items, type(pull.error), pull.at) == ([], TimeoutError, 0)


class Watch:
    """Stands in for the clock of reading, and goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 2}, {"num_workers": 1, "worker_type": "process"}], ids=str
)
def test_reading_an_item_and_its_transform_share_one_time_limit(workers, monkeypatch, nothing_left) -> None:
    watch = Watch()
    monkeypatch.setattr(pulling, "perf_counter", watch)

    class Slow(IterableDataset):
        def __iter__(self):
            for number in range(6):
                watch.now += 10.0 * number
                yield number

    def transform(number):
        charge(25.0)  # as if it took so long
        return number

    # Of item 3 on, both together take longer than the limit, and neither does alone.
    with DataLoader(Slow(), 2, transform=transform, timeout=52.0, on_error="skip", **workers) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
        assert [(failure.index, failure.error) for failure in loader.failures] == [
            (index, "TimeoutError: the item took longer than 52 s (timeout=)") for index in (3, 4, 5)
        ]
    with DataLoader(Slow(), 2, timeout=52.0, **workers) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


def test_items_that_were_timed_are_a_list_and_travel_with_their_times() -> None:
    items = pickle.loads(pickle.dumps(TimedItems("abc", [1.0, 2.0, 3.0])))
    assert items == ["a", "b", "c"]
    assert items[1:] == ["b", "c"]
    assert items.seconds == [1.0, 2.0, 3.0]


def reading_thread():
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "feedline-stream"]
    return thread


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("end", ["break", "close the iterator", "close the loader"])
def test_the_thread_that_reads_within_a_limit_ends_with_its_iterator(workers, end, nothing_left) -> None:
    loader = DataLoader(Hanging(None, threading.Event()), 2, num_workers=workers, timeout=60.0)
    iterator = iter(loader)
    gc.disable()
    try:
        for _ in iterator:
            thread = reading_thread()
            break
        if end == "break":
            del iterator
        elif end == "close the iterator":
            iterator.close()
        else:
            loader.close()
        thread.join(DEADLINE)
        assert not thread.is_alive()
    finally:
        gc.enable()
    assert loader.state_dict()["position"] == 2
    loader.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_nobody_reads_any_more_is_drawn_no_further_than_the_item_in_hand(workers) -> None:
    gate = threading.Event()
    stream = Hanging(4, gate)
    drawn = []

    class Counted(IterableDataset):
        def __iter__(self):
            for number in stream:
                drawn.append(number)
                yield number

    loader = DataLoader(Counted(), 4, num_workers=workers, timeout=60.0)
    iterator = iter(loader)
    next(iterator)
    ended = []

    def consume():
        with pytest.raises(RuntimeError, match="this iterator is closed") as caught:
            next(iterator)
        ended.append(caught.type)

    consumer = threading.Thread(target=consume)
    consumer.start()
    thread = reading_thread()
    iterator.close()
    gate.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert drawn in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    consumer.join(DEADLINE)
    assert ended == [RuntimeError]
    loader.close()


def test_nobody_waits_for_a_stream_that_is_closed(nothing_left) -> None:
    for begun in (False, True):
        puller = Puller(60.0)
        walk = Rewalk(range(5))
        if begun:
            assert puller.pull(walk, 0, 1, 2).items == [0, 1]
            puller.forget()
        puller.close()
        for _ in range(2):
            pull = puller.pull(walk, 2 * begun, 1, 2)
            assert isinstance(pull.error, RuntimeError)
            assert pull.items == []
        puller.close()


def test_a_ctrl_c_while_an_item_is_awaited_loses_none(monkeypatch) -> None:
    gate = threading.Event()
    wait = Pull.wait

    def interrupted(pull):
        monkeypatch.setattr(Pull, "wait", wait)
        gate.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(Pull, "wait", interrupted)
    iterator = iter(DataLoader(Hanging(2, gate), 4, timeout=60.0))
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert [batch.tolist() for batch in iterator] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_stream_with_a_time_limit_is_its_own(workers) -> None:
    with DataLoader(CountingStream(10, 6), 4, num_workers=workers, timeout=60.0) as loader:
        found = results(loader.iter_with_indices())
    assert [result.indices for result in found] == [(0, 1, 2, 3), (4, 5), None]
    assert found[-1].value[:2] == (OSError, ("the wire is cut", 6))


def test_torch_streams_are_streams() -> None:
    data = pytest.importorskip("torch.utils.data")

    class Numbers(data.IterableDataset):
        def __iter__(self):
            return iter(np.arange(5))

    assert [batch.tolist() for batch in DataLoader(Numbers(), 3)] == [[0, 1, 2], [3, 4]]
