"""What a state holds, when it may be taken, and how one that does not fit is refused."""

from __future__ import annotations

import json
import pickle
import threading

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    MapDataset,
    RandomSampler,
    Subset,
    shuffle_buffer,
)
from feedline.errors import StateError
from loading import DEADLINE, Broken, CountingStream, Gate, SeekableStream, Squares, draw_with_context


def after(count, **options):
    loader = DataLoader(Squares(10), **{"batch_size": 3, "shuffle": True, "seed": 1, **options})
    iterator = iter(loader)
    for _ in range(count):
        next(iterator)
    return loader


def test_a_state_is_a_small_json_document() -> None:
    state = after(2).state_dict()
    assert json.loads(json.dumps(state)) == state
    assert {key: state[key] for key in ("version", "epoch", "position", "batch", "world_size")} == {
        "version": 1,
        "epoch": 0,
        "position": 6,
        "batch": 2,
        "world_size": 1,
    }
    assert set(state) == {"version", "epoch", "position", "batch", "world_size", "failures", "fingerprint"}
    assert len(json.dumps(state)) < 1000


def test_reading_it_changes_nothing_and_starts_nothing(nothing_left) -> None:
    loader = DataLoader(Squares(10), 3, num_workers=2)
    before = threading.enumerate()
    for _ in range(3):
        assert loader.state_dict()["position"] == 0
    assert threading.enumerate() == before
    assert loader.epoch == 0


def test_it_counts_what_was_received_not_what_was_prefetched() -> None:
    gate = Gate()
    gate.open()

    class Watched(Squares):
        def __getitem__(self, index):
            gate.enter()
            return super().__getitem__(index)

    loader = DataLoader(Watched(30), 2, num_workers=2, prefetch_depth=4)
    with iter(loader) as iterator:
        next(iterator)
        gate.wait_for(10)
        assert loader.state_dict()["position"] == 2
        assert iterator.state_dict() == loader.state_dict()


def test_the_loader_speaks_for_the_newest_iterator_and_each_iterator_for_itself() -> None:
    loader = DataLoader(Squares(10), 3)
    one = iter(loader)
    next(one)
    two = iter(loader)
    assert loader.state_dict()["epoch"] == 1
    assert (one.state_dict()["epoch"], one.state_dict()["position"]) == (0, 3)
    next(one)
    assert one.state_dict()["position"] == 6
    assert loader.state_dict() == two.state_dict()
    next(two)
    assert loader.state_dict()["position"] == 3


def test_the_position_outlives_the_iterator() -> None:
    for leave in (lambda iterator: iterator.close(), lambda iterator: None):
        loader = DataLoader(Squares(10), 3)
        iterator = iter(loader)
        next(iterator)
        leave(iterator)
        del iterator
        assert loader.state_dict()["position"] == 3


def test_an_error_counts_as_received() -> None:
    loader = DataLoader(Broken(10, bad=(4,)), 3)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(OSError, match="bad item"):
        next(iterator)
    state = loader.state_dict()
    assert state["position"] == 6
    assert state["failures"] == [
        {
            "index": 4,
            "location": None,
            "epoch": 0,
            "batch": 1,
            "error": "OSError: [Errno bad item] 4",
            "error_type": "OSError",
        }
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_may_be_taken_from_another_thread_at_any_time(workers) -> None:
    for dataset in (CountingStream(2000), shuffle_buffer(SeekableStream(2000), 10), Squares(2000)):
        loader = DataLoader(dataset, 1, collate_fn=len, num_workers=workers)
        seen, stop, problems = [], threading.Event(), []

        def look(loader=loader, seen=seen, stop=stop, problems=problems):
            try:
                while not stop.is_set():
                    seen.append(loader.state_dict()["position"])
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=look)
        iterator = iter(loader)
        thread.start()
        for _ in iterator:
            pass
        stop.set()
        thread.join(DEADLINE)
        assert not problems
        going = [position for position in seen if position]
        assert going == sorted(going)


def test_loading_leaves_living_iterators_alone() -> None:
    loader = DataLoader(Squares(10), 3)
    state = after(0, shuffle=False, seed=0).state_dict()
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict({**state, "position": 6, "batch": 2})
    assert [batch["index"].tolist() for batch in iterator] == [[3, 4, 5], [6, 7, 8], [9]]
    assert [batch["index"].tolist() for batch in loader] == [[6, 7, 8], [9]]


def test_set_epoch_after_loading_keeps_the_position_in_that_epoch_only() -> None:
    state = {**after(0).state_dict(), "epoch": 2, "position": 6, "batch": 2}
    loader = after(0)
    loader.load_state_dict(state)
    loader.set_epoch(2)
    assert loader.epoch == 2
    assert len(iter(loader)) == 2
    loader.load_state_dict(state)
    loader.set_epoch(3)
    assert loader.state_dict()["position"] == 0
    assert len(iter(loader)) == 4
    loader.load_state_dict(state)
    loader.set_epoch(1)
    loader.set_epoch(2)
    assert len(iter(loader)) == 4


def test_the_epoch_of_a_loaded_state_is_told() -> None:
    loader = after(0)
    loader.load_state_dict({**after(0).state_dict(), "epoch": 5, "position": 3, "batch": 1})
    assert loader.epoch == 5
    list(loader)
    assert loader.epoch == 6
    assert loader.state_dict()["epoch"] == 6


def test_a_loader_pickles_with_its_position() -> None:
    loader = DataLoader(Squares(10), 3, shuffle=True, seed=None, transform=draw_with_context)
    iterator = loader.iter_with_indices()
    next(iterator)
    copy = pickle.loads(pickle.dumps(loader))
    rest = [(i, b["draw"].tolist()) for i, b in iterator]
    assert [(i, b["draw"].tolist()) for i, b in copy.iter_with_indices()] == rest
    assert len(pickle.dumps(loader)) < 3000


MISFITS = {
    "another length": (Squares(11), {}, r"dataset\.length: the state has 10, the loader has 11"),
    "another kind of dataset": (
        list(range(10)),
        {},
        r"dataset\.kind: the state has 'loading.Squares', .*builtins.list",
    ),
    "another batch size": (Squares(10), {"batch_size": 4}, "batch_size: the state has 3, the loader has 4"),
    "another seed": (Squares(10), {"seed": 2}, "seed: the state has 1, the loader has 2"),
    "another sampler": (
        Squares(10),
        {"shuffle": False},
        r"sampler\.kind: the state has 'feedline.RandomSampler', the loader has 'feedline.SequentialSampler'",
    ),
    "drop_last": (Squares(10), {"drop_last": True}, "drop_last: the state has False, the loader has True"),
    "no seed": (Squares(10), {"seed": None}, "seed: the state has 1, the loader has None"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_state_that_does_not_fit_is_refused_by_name_and_nothing_is_changed(name) -> None:
    dataset, options, message = MISFITS[name]
    state = after(2).state_dict()
    loader = DataLoader(dataset, **{"batch_size": 3, "shuffle": True, "seed": 1, **options})
    iterator = iter(loader)
    next(iterator)
    before = loader.state_dict()
    with pytest.raises(StateError, match=message):
        loader.load_state_dict(state)
    assert loader.state_dict() == before
    next(iterator)


def test_every_difference_has_a_line_of_its_own() -> None:
    with pytest.raises(StateError) as caught:
        DataLoader(Squares(9), 4, shuffle=True, seed=3).load_state_dict(after(1).state_dict())
    lines = str(caught.value).splitlines()
    assert lines[0] == "the state does not fit this loader:"
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == [
        "batch_size",
        "dataset.length",
        "sampler.options.seed",
        "seed",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: None, "a state is a dict"),
        (lambda s: [], "a state is a dict"),
        (lambda s: {}, "no state of a feedline loader: it is empty"),
        (lambda s: {"weights": 1}, "only 'weights'"),
        (lambda s: {**s, "version": 2}, "of version 2, this feedline reads up to 1: update feedline"),
        (lambda s: {**s, "version": "1"}, "version is '1'"),
        (lambda s: {**s, "version": 0}, "versions are ints from 1 on"),
        (lambda s: {**s, "epoch": -1}, "epoch must be a non-negative int, not -1"),
        (lambda s: {**s, "position": 2.0}, r"position must be a non-negative int, not 2\.0"),
        (lambda s: {**s, "position": True}, "position must be a non-negative int, not True"),
        (lambda s: {**s, "position": 11}, "position: the state has 11, the loader's epoch ends at 10"),
        (lambda s: {**s, "batch": None}, "batch must be a non-negative int, not None"),
        (lambda s: {**s, "ahead": [1, "x"]}, "ahead must be a list of batch numbers"),
        (lambda s: {**s, "ahead": [1]}, "ahead must be a list of batch numbers beyond 2"),
        (lambda s: {**s, "failures": {}}, "failures must be a list"),
        (lambda s: {**s, "failures": [{"index": 3}]}, "a failure that can't be read"),
        (lambda s: {**s, "failures": [3]}, "a failure that can't be read"),
        (lambda s: {**s, "fingerprint": []}, "fingerprint must be a dict"),
        (lambda s: {key: s[key] for key in s if key != "position"}, "no 'position': it is cut short"),
        (lambda s: {**s, "stream": 3}, "stream must be a dict"),
        (lambda s: {**s, "stream": {"state": 1}}, "no 'read'"),
    ],
)
def test_a_broken_state_is_refused(change, message) -> None:
    loader = after(1)
    before = loader.state_dict()
    with pytest.raises(StateError, match=message):
        loader.load_state_dict(change(after(2).state_dict()))
    assert loader.state_dict() == before


def test_a_position_at_the_very_end_is_the_start_of_the_next_epoch() -> None:
    loader = after(0)
    loader.load_state_dict({**after(0).state_dict(), "position": 10, "batch": 4})
    assert (loader.epoch, loader.state_dict()["position"]) == (1, 0)


def test_an_unseeded_state_loads_into_unseeded_loaders_alone_and_brings_its_entropy() -> None:
    def make(**options):
        return DataLoader(Squares(100), 10, **options)

    for options in (
        {"shuffle": True, "seed": None},
        {"sampler": RandomSampler(None)},
        {"sampler": RandomSampler(None), "seed": None},
    ):
        one, two, three = (make(**_copied(options)) for _ in range(3))
        orders = [[i for i, _ in loader.iter_with_indices()] for loader in (one, two)]
        assert orders[0] != orders[1]
        three.load_state_dict(json.loads(json.dumps(one.state_dict())))
        assert [i for i, _ in one.iter_with_indices()] == [i for i, _ in three.iter_with_indices()]
    with pytest.raises(StateError, match="the loader has 5"):
        make(shuffle=True, seed=5).load_state_dict(make(shuffle=True, seed=None).state_dict())
    state = make(shuffle=True, seed=None).state_dict()
    del state["entropy"]
    with pytest.raises(StateError, match="entropy: the state has nothing"):
        make(shuffle=True, seed=None).load_state_dict(state)


def _copied(options):
    return {k: RandomSampler(None) if k == "sampler" else v for k, v in options.items()}


def test_a_seeded_sampler_keeps_its_order_in_an_unseeded_loader() -> None:
    orders = {
        str(
            [
                i
                for i, _ in DataLoader(
                    Squares(20), 4, sampler=RandomSampler(3), seed=seed
                ).iter_with_indices()
            ]
        )
        for seed in (None, None, 0, 7)
    }
    assert len(orders) == 1


def test_an_unseeded_sampler_draws_its_own_entropy_and_items_keep_the_loaders_seed() -> None:
    loaders = [
        DataLoader(Squares(20), 1, sampler=RandomSampler(None), seed=4, transform=draw_with_context)
        for _ in range(2)
    ]
    runs = [{i[0]: int(b["draw"][0]) for i, b in loader.iter_with_indices()} for loader in loaders]
    assert list(runs[0]) != list(runs[1])
    assert runs[0] == runs[1]


def test_ranks_may_load_one_anothers_state() -> None:
    def rank(number):
        return DataLoader(Squares(20), 2, sampler=DistributedSampler(RandomSampler(1), number, 4))

    loaders = [rank(number) for number in range(4)]
    for loader in loaders:
        next(iter(loader))
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    other = rank(3)
    other.load_state_dict(states[0])
    assert next(other.iter_with_indices())[0] == rank(3).batch_at(0, 1)["index"].tolist()


def test_the_kind_of_a_dataset_is_told_through_what_wraps_it() -> None:
    rows = ArrayDataset(np.arange(10))

    def kind(dataset):
        return DataLoader(dataset).state_dict()["fingerprint"]["dataset"]["kind"]

    kinds = {
        kind(dataset) for dataset in (rows, Subset(rows, [0]), ConcatDataset([rows]), MapDataset(rows, len))
    }
    assert len(kinds) == 4
    assert all("ArrayDataset" in text for text in kinds)


def test_transform_and_collate_fn_may_change() -> None:
    loader = DataLoader(
        Squares(10), 3, shuffle=True, seed=1, transform=draw_with_context, collate_fn=list, num_workers=2
    )
    loader.load_state_dict(after(2).state_dict())
    assert [len(batch) for batch in loader] == [3, 1]


def test_a_changed_length_of_the_dataset_shows_when_it_is_loaded() -> None:
    rows = list(range(10))
    loader = DataLoader(rows, 3)
    state = loader.state_dict()
    rows.append(10)
    assert sum(map(len, loader)) == 11
    with pytest.raises(StateError, match="length"):
        loader.load_state_dict(state)


def test_a_stream_speaks_of_its_kind_and_its_length() -> None:
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(int, 1)

    assert DataLoader(Endless()).state_dict()["fingerprint"]["dataset"].keys() == {"kind"}
    assert DataLoader(SeekableStream(5)).state_dict()["fingerprint"]["dataset"]["length"] == 5
    with pytest.raises(StateError, match=r"dataset\.length"):
        DataLoader(SeekableStream(6)).load_state_dict(DataLoader(SeekableStream(5)).state_dict())
