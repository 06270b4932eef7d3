"""Awaited items: how many at once, whose errors, what is cancelled, and that it works wherever it is called."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time

import numpy as np
import pytest

from feedline import AsyncDataset, DataLoader, WorkerError
from loading import DEADLINE, AsyncSquares, results


class Counted(AsyncDataset):
    """Counts what is awaited at a time; `hold` items wait for the test."""

    def __init__(self, length=24, hold=()) -> None:
        self.length = length
        self.hold = hold
        self.now = self.most = self.begun = 0
        self.cancelled: list[int] = []
        self.closed = 0
        self.loops: set[int] = set()
        self.release = threading.Event()
        self.changed = threading.Condition()

    def __len__(self) -> int:
        return self.length

    async def __getitem__(self, index):
        self.loops.add(id(asyncio.get_running_loop()))
        with self.changed:
            self.now += 1
            self.begun += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if index in self.hold:
                while not self.release.is_set():
                    await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.append(index)
            raise
        finally:
            self.now -= 1
        return index

    async def aclose(self) -> None:
        self.closed += 1

    def wait_for_begun(self, count) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun >= count, DEADLINE)


@pytest.mark.parametrize(("workers", "concurrency"), [(0, 1), (0, 3), (1, 4), (3, 1), (2, 4)])
def test_no_more_are_awaited_than_was_asked_for(workers, concurrency) -> None:
    dataset = Counted(48)
    loader = DataLoader(dataset, 8, num_workers=workers, item_concurrency=concurrency)
    assert [batch.tolist() for batch in loader] == [list(range(k, k + 8)) for k in range(0, 48, 8)]
    assert dataset.most == concurrency * max(1, workers)
    loader.close()


def test_items_of_the_next_batch_are_awaited_while_the_last_of_this_one_is_on_its_way() -> None:
    dataset = Counted(16, hold={3})
    loader = DataLoader(dataset, 4, num_workers=1, item_concurrency=4)
    iterator = iter(loader)
    thread = threading.Thread(target=lambda: found.extend(batch.tolist() for batch in iterator))
    found: list = []
    thread.start()
    dataset.wait_for_begun(8)
    dataset.release.set()
    thread.join(DEADLINE)
    assert found == [list(range(k, k + 4)) for k in range(0, 16, 4)]
    loader.close()


def test_no_more_than_the_window_is_begun_behind_an_item_that_hangs() -> None:
    dataset = Counted(400, hold={0})
    loader = DataLoader(dataset, 4, num_workers=2, item_concurrency=4, prefetch_depth=1)
    iterator = iter(loader)
    thread = threading.Thread(target=lambda: found.extend(batch[0] for batch in iterator))
    found: list = []
    thread.start()
    dataset.wait_for_begun(12)
    assert dataset.begun <= 12
    dataset.release.set()
    thread.join(DEADLINE)
    assert found == list(range(0, 400, 4))
    loader.close()


@pytest.mark.parametrize("how", ["drop", "close", "close the loader"])
def test_leaving_cancels_what_is_in_flight(how, nothing_left) -> None:
    dataset = Counted(40, hold=range(4, 40))
    loader = DataLoader(dataset, 4, num_workers=2, item_concurrency=4)
    iterator = iter(loader)
    next(iterator)
    dataset.wait_for_begun(12)
    if how == "drop":
        del iterator
        gc.collect()
    elif how == "close":
        iterator.close()
    else:
        loader.close()
        assert dataset.closed == 1
    # The loop goes on to serve others, if it was not closed.
    if how != "close the loader":
        dataset.hold = ()
        loader.set_epoch(0)
        assert len(list(loader)) == 10
    loader.close()
    assert sorted(dataset.cancelled) == list(range(4, 12))
    assert dataset.now == 0
    assert dataset.closed == 1


def test_aclose_is_awaited_once_for_each_loop_and_on_it(nothing_left) -> None:
    dataset = Counted(8)
    loaders = [DataLoader(dataset, 4, num_workers=workers) for workers in (0, 2)]
    for loader in loaders:
        for _ in range(3):
            list(loader)
    assert dataset.closed == 0
    assert len(dataset.loops) == 2
    for loader in loaders:
        loader.close()
        loader.close()
    assert dataset.closed == 2
    del loaders, loader
    gc.collect()
    assert dataset.closed == 2


def test_a_loader_that_never_ran_has_nothing_to_close() -> None:
    dataset = Counted(8)
    DataLoader(dataset, 4).close()
    iterator = iter(DataLoader(dataset, 4))
    del iterator
    assert dataset.closed == 0


class BadlyClosed(AsyncSquares):
    def __init__(self, kind) -> None:
        super().__init__(4)
        self.kind = kind

    async def aclose(self) -> None:
        raise self.kind("can't")


@pytest.mark.parametrize("kind", [OSError, SystemExit, asyncio.CancelledError])
def test_an_aclose_that_fails_is_logged(kind, caplog, nothing_left) -> None:
    with caplog.at_level(logging.WARNING, "feedline"), DataLoader(BadlyClosed(kind), 2) as loader:
        list(loader)
    assert [record.getMessage() for record in caplog.records] == ["aclose() of BadlyClosed failed"]


def test_it_works_inside_of_a_running_loop() -> None:
    async def main():
        loader = DataLoader(AsyncSquares(10), 5, num_workers=1)
        found = [batch["index"].tolist() for batch in loader]
        loader.close()
        return found

    assert asyncio.run(main()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_two_loaders_interleave_and_one_is_used_in_another_thread() -> None:
    one, two = (DataLoader(AsyncSquares(20), 2, num_workers=1, item_concurrency=2) for _ in range(2))
    pairs = [(a["index"].tolist(), b["index"].tolist()) for a, b in zip(one, two)]
    assert pairs == [([k, k + 1], [k, k + 1]) for k in range(0, 20, 2)]
    found = []
    thread = threading.Thread(target=lambda: found.extend(len(batch["index"]) for batch in one))
    thread.start()
    thread.join(DEADLINE)
    assert found == [2] * 10
    one.close()
    two.close()


def test_a_dataset_may_be_awaited_by_hand_beside_its_loaders() -> None:
    dataset = AsyncSquares(4)
    with DataLoader(dataset, 2) as loader:
        next(iter(loader))

        async def by_hand():
            return (await dataset[3])["index"]

        assert asyncio.run(by_hand()) == 3
        assert len(list(loader)) == 2


class Failing(AsyncDataset):
    """Items 1 and 2 fail, 2 first; what is behind is cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []
        self.second_failed = self.third_began = None

    def __len__(self) -> int:
        return 8

    async def __getitem__(self, index):
        if self.second_failed is None:
            self.second_failed, self.third_began = asyncio.Event(), asyncio.Event()
        try:
            if index == 1:
                await self.second_failed.wait()
                raise ValueError("first by position")
            if index == 2:
                await self.third_began.wait()
                self.second_failed.set()
                raise OSError("first by time")
            if index == 3:
                self.third_began.set()
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.append(index)
            raise
        return index


def test_of_several_errors_the_first_by_position_is_raised_and_the_rest_cancelled(nothing_left) -> None:
    dataset = Failing()
    loader = DataLoader(dataset, 4, num_workers=1, item_concurrency=4)
    iterator = iter(loader)
    with pytest.raises(ValueError, match="first by position"):
        next(iterator)
    assert next(iterator).tolist() == [4, 5, 6, 7]
    assert dataset.cancelled == [3]
    assert [failure.index for failure in loader.failures] == [1]
    loader.close()


class Stopping(AsyncDataset):
    """Item 3 tries to end its task, the loop, the program."""

    def __init__(self, way) -> None:
        self.way = way

    def __len__(self) -> int:
        return 12

    async def __getitem__(self, index):
        if index == 3:
            await self.way()
        return index


async def cancel_oneself():
    asyncio.current_task().cancel()
    await asyncio.sleep(60)


async def cancel_oneself_and_return():
    asyncio.current_task().cancel()


async def raise_cancelled():
    raise asyncio.CancelledError("by hand")


async def exit_the_program():
    raise SystemExit(3)


async def interrupt():
    raise KeyboardInterrupt


async def time_out():
    async with asyncio.timeout(0.001):
        await asyncio.sleep(60)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        (cancel_oneself, WorkerError),
        (cancel_oneself_and_return, None),
        (raise_cancelled, WorkerError),
        (exit_the_program, WorkerError),
        (interrupt, WorkerError),
        (time_out, TimeoutError),
    ],
)
def test_what_an_item_does_to_its_task_is_an_error_of_its_batch_alone(
    way, kind, concurrency, nothing_left
) -> None:
    loader = DataLoader(Stopping(way), 3, num_workers=2, item_concurrency=concurrency)
    for _ in range(2):
        found = results(loader.iter_with_indices())
        assert [result.indices for result in found] == [
            (0, 1, 2),
            None if kind else (3, 4, 5),
            (6, 7, 8),
            (9, 10, 11),
        ]
        assert kind is None or found[1].value[0] is kind
    loader.close()


class Many(AsyncSquares):
    def __init__(self, length=12, bad=(), short=False) -> None:
        super().__init__(length, bad)
        self.calls: list[list[int]] = []
        self.short = short

    async def __getitems__(self, indices):
        self.calls.append(list(indices))
        items = [self.inner[index] for index in indices]
        return items[: -1 if self.short else None]


def test_getitems_is_awaited_once_for_each_batch_unless_items_are_awaited_side_by_side() -> None:
    dataset = Many()
    with DataLoader(dataset, 4, num_workers=2) as loader:
        assert [b["index"].tolist() for b in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert sorted(dataset.calls) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    dataset.calls.clear()
    with DataLoader(dataset, 4, num_workers=2, item_concurrency=2) as loader:
        assert len(list(loader)) == 3
    assert dataset.calls == []


def test_a_getitems_that_fails_is_an_error_of_its_batch_or_looked_into() -> None:
    with DataLoader(Many(bad=(5,)), 4) as loader:
        assert [r.indices is None for r in results(loader.iter_with_indices())] == [False, True, False]
    with DataLoader(Many(bad=(5,)), 4, on_error="skip") as loader:
        assert [i for i, _ in loader.iter_with_indices()] == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11]]
        assert [failure.index for failure in loader.failures] == [5]
        # Known by now: asked for without it.
        assert [i for i, _ in loader.iter_with_indices()] == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11]]
        assert loader.dataset.calls[-2:] == [[4, 6, 7], [8, 9, 10, 11]]
    with (
        DataLoader(Many(short=True), 4) as loader,
        pytest.raises(ValueError, match="returned 3 items for 4 indices"),
    ):
        next(iter(loader))


class Stuck(AsyncSquares):
    async def __getitem__(self, index):
        if index == 5:
            await asyncio.sleep(60)
        return await super().__getitem__(index)


class StuckTogether(Stuck):
    async def __getitems__(self, indices):
        if 5 in indices:
            await asyncio.sleep(60)
        return [self.inner[index] for index in indices]


@pytest.mark.parametrize(
    ("kind", "policy", "concurrency"),
    [
        (Stuck, "raise", 1),
        (Stuck, "skip", 4),
        (Stuck, "substitute", 4),
        (StuckTogether, "raise", 1),
        (StuckTogether, "skip", 1),
        (StuckTogether, "substitute", 1),
    ],
)
def test_a_time_limit_holds_for_what_is_awaited(kind, policy, concurrency, nothing_left) -> None:
    loader = DataLoader(
        kind(12), 4, timeout=0.4, on_error=policy, item_concurrency=concurrency, num_workers=1
    )
    found = results(loader.iter_with_indices())
    lengths = [len(result.indices) if result.indices else 0 for result in found]
    assert lengths == {"raise": [4, 0, 4], "skip": [4, 3, 4], "substitute": [4, 4, 4]}[policy]
    if policy == "raise":
        assert found[1].value[0] is TimeoutError
        assert "took longer than" in found[1].value[1][0]
    else:
        assert [failure.index for failure in loader.failures] == [5]
    loader.close()


class Blocking(AsyncDataset):
    """Its item 5 waits without await, for longer than the limit."""

    def __len__(self):
        return 12

    async def __getitem__(self, index):
        if index == 5:
            time.sleep(0.7)
        return index


class BlockingTogether(Blocking):
    async def __getitems__(self, indices):
        return [await self[index] for index in indices]


@pytest.mark.parametrize("kind", [Blocking, BlockingTogether])
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_an_item_that_held_up_the_loop_for_too_long_has_failed_though_it_came(kind, policy) -> None:
    with DataLoader(kind(), 4, timeout=0.15, on_error=policy, num_workers=1) as loader:
        found = results(loader.iter_with_indices())
    lengths = [len(result.indices) if result.indices else 0 for result in found]
    assert lengths == {"raise": [4, 0, 4], "skip": [4, 3, 4]}[policy]
    if policy == "raise":
        assert found[1].value[0] is TimeoutError
    else:
        assert [failure.error_type for failure in loader.failures] == ["TimeoutError"]


def test_an_item_that_is_not_awaitable_says_so() -> None:
    class Plain(AsyncDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index

    with DataLoader(Plain()) as loader, pytest.raises(TypeError, match="await"):
        next(iter(loader))


def test_transforms_run_on_worker_threads_and_never_on_the_loop() -> None:
    names = set()

    def note(item):
        names.add(threading.current_thread().name)
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return item

    with DataLoader(
        AsyncSquares(20), 4, num_workers=2, item_concurrency=2, transform=note, collate_fn=list
    ) as loader:
        list(loader)
    assert names <= {"feedline-worker-0", "feedline-worker-1"}


def test_an_epoch_of_many_items_comes_whole() -> None:
    with DataLoader(Counted(3000), 30, num_workers=4, item_concurrency=16, shuffle=True) as loader:
        assert sorted(np.concatenate(list(loader)).tolist()) == list(range(3000))
        assert loader.batch_at(0, 3).shape == (30,)
