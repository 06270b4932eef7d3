"""What happens to items that fail: whose error it is, what it says, what is recorded, and what comes in their place."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import threading
import traceback
import urllib.error
from asyncio import CancelledError

import numpy as np
import pytest

from feedline import (
    CollateError,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    TooManyFailures,
    WorkerError,
)
from feedline.loader.failures import MAX_SUBSTITUTES, Failure, as_batch_error, attach_note, substitutes
from loading import DEADLINE, AsyncSquares, Broken, Gate, Many, Squares, draw_with_context, results

WORKERS = [0, 2]


class Raising(Squares):
    """Item 4 raises what it is given."""

    def __init__(self, make, length=9) -> None:
        super().__init__(length)
        self.make = make

    def __getitem__(self, index):
        if index == 4:
            raise self.make()
        return super().__getitem__(index)


class KeywordOnly(Exception):
    def __init__(self, *, code) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class OddNotes(Exception):
    __notes__ = ("a tuple",)


class Hiding(Exception):
    @property
    def location(self):
        raise RuntimeError("not told")


class Holding(Exception):
    def __init__(self) -> None:
        self.lock = threading.Lock()


ODD = {
    "several arguments": lambda: urllib.error.HTTPError("http://x", 404, "gone", None, None),
    "a process": lambda: subprocess.CalledProcessError(1, ["x"]),
    "keywords": lambda: KeywordOnly(code=7),
    "no words": Mute,
    "frozen": lambda: Frozen(3),
    "odd notes": OddNotes,
    "odd attributes": Hiding,
    "a lock": Holding,
    "a group": lambda: ExceptionGroup("several", [ValueError(1), OSError(2)]),
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", ODD)
def test_the_original_exception_comes_and_the_next_batch_follows(name, workers) -> None:
    made = []

    def make():
        made.append(ODD[name]())
        return made[-1]

    loader = DataLoader(Raising(make), 3, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(type(ODD[name]())) as caught:
        next(iterator)
    assert caught.value is made[0]
    assert next(iterator)["index"].tolist() == [6, 7, 8]
    assert [failure.index for failure in loader.failures] == [4]
    assert loader.failures[0].location is None
    loader.state_dict()
    loader.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_note_names_item_batch_epoch_place_and_worker(workers) -> None:
    loader = DataLoader(Broken(10, bad=(5,)), 3, num_workers=workers)
    list_epoch_0 = results(loader.iter_with_indices())
    assert len(list_epoch_0) == 4
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="bad item") as caught:
        next(iterator)
    (note,) = caught.value.__notes__
    who = r"worker thread \d" if workers else "the calling thread"
    assert re.fullmatch(
        rf"feedline: item 5 \(row 2 of batch 1, epoch 1\) failed when it was fetched, in {who}", note
    )
    loader.close()


def test_a_note_names_the_step_of_a_chain() -> None:
    from feedline import Compose

    def third(item):
        raise ValueError(item["index"])

    def same(item):
        return item

    iterator = iter(DataLoader(Squares(4), 2, transform=Compose([same, Compose([same, third])])))
    with pytest.raises(ValueError, match="0") as caught:
        next(iterator)
    note = "failed in step 2 of the transform, test_a_note_names_the_step_of_a_chain.<locals>.third, in the"
    assert note in caught.value.__notes__[0]


def test_the_traceback_has_the_users_line_and_no_escaped_line_breaks() -> None:
    class Missing(Squares):
        def __getitem__(self, index):
            return {}["k"]

    for workers in WORKERS:
        loader = DataLoader(Missing(4), num_workers=workers)
        with pytest.raises(KeyError) as caught:
            next(iter(loader))
        assert caught.value.args == ("k",)
        text = "".join(traceback.format_exception(caught.value))
        assert 'return {}["k"]' in text
        assert "\\n" not in text
        assert "feedline: item 0" in text
        loader.close()


# On the main thread a KeyboardInterrupt is the user's.
@pytest.mark.parametrize(
    ("kind", "workers"),
    [(kind, n) for kind in (SystemExit, CancelledError, GeneratorExit) for n in WORKERS]
    + [(KeyboardInterrupt, 2)],
)
def test_what_would_end_the_consumer_is_reported_and_not_obeyed(kind, workers) -> None:
    loader = DataLoader(Raising(lambda: kind("out of a dataset")), 3, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(WorkerError, match=f"{kind.__name__} out of user code: out of a dataset") as caught:
        next(iterator)
    assert caught.value.type_name.endswith(kind.__name__)
    assert caught.value.index == 4
    assert "in __getitem__" in caught.value.traceback_text
    assert type(caught.value.__cause__) is kind
    assert next(iterator)["index"].tolist() == [6, 7, 8]
    loader.close()


@pytest.mark.parametrize("options", [{"item_concurrency": 2}, {"timeout": 60}, {"num_workers": 1}])
def test_a_keyboard_interrupt_of_user_code_beside_the_main_thread_is_an_error_of_its_batch(options) -> None:
    other = threading.Event()

    class Interrupting(Squares):
        def __getitem__(self, index):
            if threading.current_thread() is not threading.main_thread():
                other.set()
                raise KeyboardInterrupt
            assert other.wait(DEADLINE)
            return super().__getitem__(index)

    loader = DataLoader(Interrupting(60), 30, **options)
    with pytest.raises(WorkerError, match="KeyboardInterrupt out of user code"):
        list(loader)
    loader.close()


def test_a_serial_loader_in_another_thread_has_no_ctrl_c_either() -> None:
    caught = []

    def consume():
        for dataset in (Raising(KeyboardInterrupt), Raising(KeyboardInterrupt, 5)):
            try:
                list(DataLoader(dataset, 3, transform=None if dataset.length == 9 else dict))
            except WorkerError as error:
                caught.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(DEADLINE)
    assert len(caught) == 2


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_a_stop_iteration_of_user_code_is_no_end(kind, workers) -> None:
    loader = DataLoader(Raising(kind), 3, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(RuntimeError, match=f"{kind.__name__} out of user code") as caught:
        next(iterator)
    assert type(caught.value.__cause__) is kind
    assert len(list(iterator)) == 1
    loader.close()


def test_an_index_error_is_no_end_either() -> None:
    found = results(DataLoader(Raising(IndexError), 2).iter_with_indices())
    assert [result.indices for result in found] == [(0, 1), (2, 3), None, (6, 7), (8,)]


def test_skipped_items_are_left_out_and_empty_batches_too() -> None:
    loader = DataLoader(Broken(12, bad=(1, 4, 5, 6, 7, 11)), 2, on_error="skip")
    iterator = loader.iter_with_indices()
    assert len(iterator) == 6
    assert next(iterator)[0] == [0]
    assert next(iterator)[0] == [2, 3]
    assert next(iterator)[0] == [8, 9]
    assert len(iterator) == 1
    assert next(iterator)[0] == [10]
    assert next(iterator, None) is None
    assert [(failure.index, failure.batch) for failure in loader.failures] == [
        (1, 0),
        (4, 2),
        (5, 2),
        (6, 3),
        (7, 3),
        (11, 5),
    ]
    with pytest.raises(IndexError, match="batch 2 of epoch 0 is not there: all of its items are left out"):
        loader.batch_at(0, 2)


@pytest.mark.parametrize("options", [{}, {"item_concurrency": 3}, {"num_workers": 2}])
def test_substitutes_keep_sizes_and_everything_later_in_place(options) -> None:
    whole = [i for i, _ in DataLoader(Squares(30), 4, shuffle=True).iter_with_indices()]
    loader = DataLoader(Broken(30, bad=(3, 17, 25)), 4, shuffle=True, on_error="substitute", **options)
    found = [i for i, _ in loader.iter_with_indices()]
    assert [len(batch) for batch in found] == [len(batch) for batch in whole]
    changed = [(a, b) for one, two in zip(whole, found) for a, b in zip(one, two) if a != b]
    assert sorted(a for a, _ in changed) == [3, 17, 25]
    assert not {b for _, b in changed} & {3, 17, 25}
    assert [
        i
        for i, _ in DataLoader(
            Broken(30, bad=(3, 17, 25)), 4, shuffle=True, on_error="substitute"
        ).iter_with_indices()
    ] == found
    loader.close()


def test_substitutes_are_drawn_from_seed_epoch_and_index_alone() -> None:
    draws = {
        (seed, epoch, index): list(substitutes(seed, epoch, index, 50))
        for seed in (0, 1)
        for epoch in (0, 1)
        for index in (7, 8)
    }
    assert len({tuple(draw) for draw in draws.values()}) == 8
    assert draws[(1, 0, 7)] == list(substitutes(1, 0, 7, 50))
    for (_, _, index), draw in draws.items():
        assert index not in draw
        assert len(draw) <= MAX_SUBSTITUTES
        assert all(0 <= other < 50 for other in draw)
        assert len(set(draw)) > 30
    assert list(substitutes(0, 0, 0, 1)) == []
    assert set(substitutes(0, 0, 0, 2)) == {1}


def test_when_no_substitute_works_the_batch_raises_and_says_how_many_were_tried() -> None:
    loader = DataLoader(Broken(5, bad=range(5)), 2, on_error="substitute")
    with pytest.raises((ValueError, KeyError, IndexError, RuntimeError, OSError)) as caught:
        next(iter(loader))
    assert f"no substitute for item 0 worked, of {MAX_SUBSTITUTES} tried" in caught.value.__notes__[-1]
    indices = [failure.index for failure in loader.failures]
    assert sorted(indices) == [0, 1, 2, 3, 4]  # none twice


def test_keys_and_streams_have_no_substitutes() -> None:
    with pytest.raises(KeyError) as caught:
        next(iter(DataLoader({"a": 1}, sampler=["b"], on_error="substitute")))
    assert "there is no substitute for the key 'b'" in caught.value.__notes__[-1]

    def fails(item):
        raise ValueError(item)

    with pytest.raises(ValueError, match="0") as caught:
        next(iter(DataLoader(iter(range(3)), transform=fails, on_error=lambda failure: "substitute")))
    assert "there is no substitute for an item of a stream" in caught.value.__notes__[-1]


@pytest.mark.parametrize("policy", ["skip", "substitute", lambda failure: "skip"])
def test_a_known_failure_is_not_tried_again(policy) -> None:
    tried = []

    class Watched(Broken):
        def __getitem__(self, index):
            tried.append(index)
            return super().__getitem__(index)

    def make():
        return DataLoader(Watched(20, bad=(5, 9)), 4, shuffle=True, on_error=policy)

    loader = make()
    list(loader)
    assert {5, 9} <= set(tried)
    tried.clear()
    list(loader)
    assert not {5, 9} & set(tried)
    assert {(f.index, f.epoch) for f in loader.failures} == {(5, 0), (9, 0)}
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    list(resumed)
    assert not {5, 9} & set(tried)


@pytest.mark.parametrize("policy", ["raise", lambda failure: "raise"])
@pytest.mark.parametrize("dataset", [Broken, AsyncSquares])
def test_with_raise_it_is_tried_again(policy, dataset) -> None:
    loader = DataLoader(dataset(10, bad=(6,)), 5, on_error=policy)
    for epoch in range(3):
        found = results(loader.iter_with_indices())
        assert [result.indices is None for result in found] == [False, True]
        assert [failure.epoch for failure in loader.failures] == list(range(epoch + 1))
    loader.close()


def test_a_policy_is_given_the_failure_and_may_differ_by_it() -> None:
    asked = []

    def policy(failure):
        asked.append(failure)
        return {"KeyError": "skip", "OSError": "substitute"}.get(failure.error_type, "raise")

    loader = DataLoader(Broken(20, bad=(4, 6, 15)), 10, on_error=policy)
    found = results(loader.iter_with_indices())
    assert [len(result.indices or ()) for result in found] == [9, 0]
    assert [failure.index for failure in asked] == [4, 6, 15]
    assert asked[0] == Failure(4, None, 0, 0, "OSError: [Errno bad item] 4", "OSError")


@pytest.mark.parametrize("answer", ["ignore", None, 3])
def test_a_policy_that_answers_something_else_is_an_error_of_the_batch(answer) -> None:
    iterator = iter(DataLoader(Broken(4, bad=(1,)), 2, on_error=lambda failure: answer))
    with pytest.raises(
        ValueError, match=f"on_error answered {answer!r}; it must be one of raise, skip, substitute"
    ):
        next(iterator)
    assert next(iterator)["index"].tolist() == [2, 3]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_policy_that_raises_is_an_error_of_the_batch(workers) -> None:
    def policy(failure):
        raise LookupError("no idea")

    loader = DataLoader(Broken(4, bad=(1,)), 2, on_error=policy, num_workers=workers)
    for _ in range(2):
        iterator = iter(loader)
        with pytest.raises(LookupError, match="no idea"):
            next(iterator)
        assert next(iterator)["index"].tolist() == [2, 3]
    loader.close()


def test_max_failures_allows_so_many_and_ends_at_the_next() -> None:
    loader = DataLoader(Broken(20, bad=(1, 5, 9, 13, 17)), 2, on_error="skip", max_failures=3)
    iterator = iter(loader)
    for _ in range(6):
        next(iterator)
    with pytest.raises(
        TooManyFailures, match=r"4 items failed, max_failures=3; the last one was item 13 of batch 6"
    ) as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, RuntimeError)
    for _ in range(2):
        with pytest.raises(TooManyFailures):
            next(iterator)
    assert loader.state_dict()["position"] == 14
    assert len(loader.failures) == 4


def test_a_fraction_is_of_the_items_of_one_epoch() -> None:
    for fraction, ends in ((0.0, True), (0.1, True), (0.15, False), (1.0, False)):
        loader = DataLoader(Broken(20, bad=(1, 5, 9)), 2, max_failures=fraction)
        for _ in range(4):
            found = results(_Until(iter(loader.iter_with_indices())))
            assert any(r.indices is None and r.value[0] is TooManyFailures for r in found) is ends
    with pytest.raises(TooManyFailures, match="1 items failed, max_failures=0 of the epoch's items"):
        list(DataLoader(Broken(20, bad=(0,)), 2, max_failures=0.0))


class _Until:
    """An iterator that ends at `TooManyFailures`, which is raised for ever."""

    def __init__(self, iterator) -> None:
        self.iterator = iterator
        self.over = False

    def __next__(self):
        if self.over:
            raise StopIteration
        try:
            return next(self.iterator)
        except TooManyFailures:
            self.over = True
            raise


def test_a_mask_stays_right_where_rows_are_skipped() -> None:
    # Rank 2 of 3 over 0 ... 6 has 2, 5 and, as padding, 1.
    for bad, expected in (
        ((), ([2, 5, 1], [True, True, False])),
        ((1,), ([2, 5], [True, True])),
        ((2,), ([5, 1], [True, False])),
        ((2, 5), ([1], [False])),
    ):
        sampler = DistributedSampler(SequentialSampler(), 2, 3, tail="mask")
        loader = DataLoader(Broken(7, bad=bad), 3, sampler=sampler, on_error="skip")
        ((indices, batch),) = loader.iter_with_indices()
        assert (indices, batch.mask.tolist()) == expected
        assert batch.data["index"].tolist() == indices


@pytest.mark.parametrize("workers", WORKERS)
def test_a_failing_getitems_is_looked_into_one_by_one_under_a_policy(workers) -> None:
    calls = []

    class Sometimes(Many):
        def __getitems__(self, indices):
            calls.append(list(indices))
            return [self[index] for index in indices]

        def __getitem__(self, index):
            if index == 3:
                raise ValueError(index)
            return super().__getitem__(index)

    loader = DataLoader(Sometimes(6), 3, on_error="skip", num_workers=workers)
    assert [i for i, _ in loader.iter_with_indices()] == [[0, 1, 2], [4, 5]]
    assert calls == [[0, 1, 2], [3, 4, 5]]
    loader.close()
    with pytest.raises(ValueError, match="3") as caught:
        list(DataLoader(Sometimes(6), 3))
    assert "items 3, 4, 5 of batch 1, epoch 0, failed when they were fetched together by __getitems__" in str(
        caught.value.__notes__
    )


def test_getitems_must_return_as_many_as_asked_and_none_turns_it_off() -> None:
    class Short(Many):
        def __getitems__(self, indices):
            return [self[index] for index in indices][1:]

    class Off(Squares):
        __getitems__ = None

    with pytest.raises(
        ValueError, match=r"Short\.__getitems__ returned 1 items for 2 indices; it must return as many"
    ):
        next(iter(DataLoader(Short(4), 2)))
    assert len(list(DataLoader(Off(4), 2))) == 2


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"item_concurrency": 2}])
def test_an_item_over_its_time_limit_is_a_failure_and_what_it_still_does_is_not_seen(options) -> None:
    gate = Gate()

    class Slow(Squares):
        def __getitem__(self, index):
            if index == 2:
                gate.enter()
            return super().__getitem__(index)

    def note(item, context):
        row = context.allocate((2,), np.float32)
        row[:] = item["row"]
        return row

    loader = DataLoader(Slow(6), 2, timeout=0.5, transform=note, **options)
    iterator = loader.iter_with_indices()
    next(iterator)
    with pytest.raises(TimeoutError, match=r"the item took longer than 0\.5 s \(timeout=\)") as caught:
        next(iterator)
    assert type(caught.value) is TimeoutError
    assert "item 2 (row 0 of batch 1" in caught.value.__notes__[0]
    indices, rows = next(iterator)
    gate.open()
    assert rows[:, 0].tolist() == [4, 5] == indices
    assert [failure.index for failure in loader.failures] == [2]
    loader.close()


def test_the_time_limit_covers_the_transform_and_batches_of_getitems() -> None:
    gate = Gate()

    def slow(item):
        if item["index"] == 1:
            gate.enter()
        return item

    loader = DataLoader(Squares(4), 2, timeout=0.4, transform=slow, on_error="skip")
    assert [i for i, _ in loader.iter_with_indices()] == [[0], [2, 3]]

    class Stuck(Many):
        def __getitems__(self, indices):
            gate.enter()
            return []

    with pytest.raises(TimeoutError, match=r"the items took longer than 0\.8 s"):
        next(iter(DataLoader(Stuck(4), 2, timeout=0.4)))
    gate.open()


def test_items_in_time_are_not_disturbed_by_those_that_hang() -> None:
    gate = Gate()

    class Hanging(Squares):
        def __getitem__(self, index):
            if index % 10 == 3:
                gate.enter()
            return super().__getitem__(index)

    loader = DataLoader(Hanging(40), 4, timeout=0.4, on_error="substitute", num_workers=2)
    assert [len(i) for i, _ in loader.iter_with_indices()] == [4] * 10
    assert {3, 13, 23, 33} <= {failure.index for failure in loader.failures}
    gate.open()
    loader.close()


def test_awaitables_are_refused_whatever_the_policy() -> None:
    class Coroutines(Squares):
        def __getitem__(self, index):
            async def fetch():
                return index

            return fetch()

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    for options in (
        {},
        {"on_error": "skip"},
        {"on_error": "substitute", "item_concurrency": 2},
        {"num_workers": 1},
    ):
        loader = DataLoader(Coroutines(4), 2, **options)
        for _ in range(2):
            with pytest.raises(
                TypeError, match=r"returned an awaitable; for asynchronous items, subclass feedline\.Async"
            ):
                next(iter(loader))
        assert loader.failures == ()
        loader.close()


def test_errors_of_collation_name_the_items() -> None:
    class Ragged(Squares):
        def __getitem__(self, index):
            return np.zeros(2 if index != 17 else 3)

    for workers in WORKERS:
        loader = DataLoader(Ragged(20), 4, sampler=[3, 17, 5, 6], num_workers=workers)
        with pytest.raises(TypeError, match="shape") as caught:
            next(iter(loader))
        assert "batch 0 of epoch 0 failed in collation" in caught.value.__notes__[0]
        assert "row 1 is item 17" in caught.value.__notes__[0]
        loader.close()

    def own(items):
        raise OSError("no")

    with pytest.raises(OSError, match="no") as caught:
        next(iter(DataLoader(Squares(20), 10, collate_fn=own)))
    assert caught.value.__notes__[0].endswith("items 0, 1, 2, 3, 4, 5, 6, 7, ...")


@pytest.mark.parametrize("workers", WORKERS)
def test_the_error_of_an_empty_batch_says_that_it_has_no_items_and_what_to_do(workers) -> None:
    with DataLoader(Squares(4), batch_sampler=[[0, 1], []], num_workers=workers) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(CollateError, match="a batch of zero items") as caught:
            next(iterator)
    who = r"worker thread \d" if workers else "the calling thread"
    note = caught.value.__notes__[0]
    assert re.fullmatch(
        rf"feedline: batch 1 of epoch 0 failed in collation, in {who}; it has no items: leave empty batches out of the "
        rf"sampler, or .*collate_fn.*",
        note,
    )


def test_notes_do_not_pile_up_on_an_exception_that_is_raised_again() -> None:
    shared = ValueError("always the same object")
    shared.add_note("mine")
    loader = DataLoader(Raising(lambda: shared), 1, sampler=[4, 4, 4])
    for _ in range(3):
        results(loader.iter_with_indices())
    assert len(shared.__notes__) == 2
    assert shared.__notes__[0] == "mine"


def test_the_pure_parts() -> None:
    error = ValueError("x")
    assert as_batch_error(error, 3) is error
    frozen = Frozen(1)
    attach_note(frozen, "nothing to hold it")
    assert Failure.of(Mute(), ("a", 1), 2, 3).index == "('a', 1)"
    assert "message could not be made" in Failure.of(Mute(), 1, 2, 3).error
    assert Failure.of(ValueError("two\nlines"), 1, 2, 3).error == "ValueError: two lines"
    assert Failure.of(ValueError(), 1, 2, 3).error == "ValueError"
    failure = Failure.of(KeywordOnly(code=1), "k", 0, 0)
    assert Failure.from_dict(failure.as_dict()) == failure
    assert failure.error_type.endswith("test_failures.KeywordOnly")


def test_reseeding_makes_global_draws_depend_on_the_item_alone_and_leaves_the_globals_alone() -> None:
    import random

    def draw(item):
        return np.array([random.random(), np.random.random(), item["index"]])

    def run(sampler):
        loader = DataLoader(Squares(10), None, sampler=sampler, transform=draw, reseed_globals=True)
        return [{int(row[2]): row[:2].tolist() for row in loader} for _ in range(2)]

    before = (random.getstate(), np.random.get_state()[1].tolist())
    one, two = run(range(10)), run(range(9, -1, -1))
    assert one == two
    assert len({str(draws) for epoch in one for draws in epoch.values()}) == 20
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_draw_of_the_context_is_the_same_whatever_the_workers() -> None:
    runs = [
        [
            b["draw"].tolist()
            for _ in range(2)
            for b in DataLoader(Squares(64), 8, transform=draw_with_context, **options)
        ]
        for options in ({}, {"num_workers": 3}, {"item_concurrency": 4}, {"timeout": 60})
    ]
    assert all(run == runs[0] for run in runs)
    loader = DataLoader(Squares(64), 64, transform=draw_with_context)
    (first,), (second,) = list(loader), list(loader)
    assert len({*first["draw"].tolist(), *second["draw"].tolist()}) == 128


def test_random_sampler_with_failures_has_a_stable_order() -> None:
    loader = DataLoader(Broken(12), 3, sampler=RandomSampler(4), on_error="skip")
    one = [i for i, _ in loader.iter_with_indices()]
    loader.set_epoch(0)
    assert [i for i, _ in loader.iter_with_indices()] == one
