"""The numbers of `stats()`, against loaders whose numbers are known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    AsyncDataset,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    NdfDataset,
    save_ndf,
)
from feedline.loader import iterator, plain
from feedline.loader import stats as stats_module
from feedline.loader.stats import Clock, LoaderStats, Tally, nbytes_of


class Rows:
    def __init__(self, n: int = 40) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return np.full(4, index, np.float32)


class Awaited(AsyncDataset):
    def __len__(self) -> int:
        return 40

    async def __getitem__(self, index: int) -> Any:
        await asyncio.sleep(0)
        return np.full(4, index, np.float32)


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return (np.full(4, index, np.float32) for index in range(40))


KINDS = [
    pytest.param(Rows(), {}, id="calling thread"),
    pytest.param(Rows(), {"transform": np.negative}, id="calling thread with a transform"),
    pytest.param(Rows(), {"num_workers": 2}, id="threads"),
    pytest.param(Rows(), {"num_workers": 2, "in_order": False}, id="threads out of order"),
    pytest.param(Rows(), {"num_workers": "auto"}, id="auto"),
    pytest.param(Rows(), {"num_workers": 1, "worker_type": "process"}, id="processes"),
    pytest.param(Rows(), {"num_workers": 2, "item_concurrency": 4, "transform": np.negative}, id="lanes"),
    pytest.param(ArrayDataset(np.zeros((40, 4), np.float32)), {}, id="arrays"),
    pytest.param(ArrayDataset(np.zeros((40, 4), np.float32)), {"num_workers": 1}, id="arrays in threads"),
    pytest.param(Awaited(), {"num_workers": 2, "item_concurrency": 4}, id="event loop"),
    pytest.param(Stream(), {}, id="stream"),
    pytest.param(Stream(), {"num_workers": 2}, id="stream in threads"),
]


@pytest.mark.parametrize(("dataset", "options"), KINDS)
def test_every_kind_counts_the_same_batches_items_and_bytes(dataset: Any, options: Any) -> None:
    with DataLoader(dataset, batch_size=8, **options) as loader:
        for _ in range(2):
            list(loader)
        found = loader.stats()
    assert (found.batches, found.items, found.epochs) == (10, 80, 2)
    assert found.size_bytes == 80 * 16
    assert (found.failed_items, found.failed_batches) == (0, 0)


@pytest.mark.parametrize(("dataset", "options"), KINDS)
def test_every_kind_tells_where_the_time_went(dataset: Any, options: Any) -> None:
    with DataLoader(dataset, batch_size=8, **options) as loader:
        list(loader)
        found = loader.stats()
    assert 0 < found.wait_seconds <= found.wall_seconds
    assert 0 < found.first_wait_seconds <= found.wait_seconds
    assert found.step_seconds == pytest.approx(found.wall_seconds - found.wait_seconds)
    assert found.fetch_seconds > 0
    assert (found.transform_seconds > 0) == ("transform" in options)
    assert (found.collate_seconds > 0) == (not isinstance(dataset, ArrayDataset))
    assert (found.flight_seconds > 0) == (found.source == "async")


def test_failed_items_and_batches_are_counted() -> None:
    def refuse(item: Any) -> Any:
        if item[0] in (3, 4, 21):
            raise ValueError("bad")
        return item

    loader = DataLoader(Rows(), batch_size=8, transform=refuse, on_error="skip")
    list(loader)
    assert (loader.stats().failed_items, loader.stats().failed_batches, loader.stats().items) == (3, 0, 37)
    raising = iter(DataLoader(Rows(), batch_size=8, transform=refuse))
    outcomes = [_next(raising) for _ in range(5)]
    assert [type(outcome) for outcome in outcomes].count(ValueError) == 2
    tally = raising._tally
    assert (tally.failed_items, tally.failed_batches, tally.batches) == (2, 2, 5)


def _next(batches: Any) -> Any:
    try:
        return next(batches)
    except ValueError as error:
        return error


class Time:
    """A clock that moves when somebody works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    from feedline.loader import batch, fetch

    found = Time()
    for module in (batch, fetch, iterator, plain, stats_module):
        monkeypatch.setattr(module, "perf_counter", found)
    return found


def test_each_stage_gets_its_own_seconds(time: Time) -> None:
    class Slow(Rows):
        def __getitem__(self, index: int) -> Any:
            time.pass_(1.0)
            return super().__getitem__(index)

    def transform(item: Any) -> Any:
        time.pass_(0.25)
        return item

    def collate(items: Any) -> Any:
        time.pass_(3.0)
        return np.stack(items)

    loader = DataLoader(Slow(), batch_size=8, transform=transform, collate_fn=collate)
    for _ in loader:
        time.pass_(5.0)
    found = loader.stats()
    assert (found.fetch_seconds, found.transform_seconds, found.collate_seconds) == (40.0, 10.0, 15.0)
    assert (found.wait_seconds, found.wall_seconds, found.step_seconds) == (65.0, 90.0, 25.0)
    assert found.first_wait_seconds == 13.0
    assert found.wait_fraction == pytest.approx(65 / 90)
    assert found.items_per_second == pytest.approx(40 / 90)


def test_the_short_cut_tells_the_same(time: Time) -> None:
    class Slow(Rows):
        def __getitem__(self, index: int) -> Any:
            time.pass_(1.0)
            return super().__getitem__(index)

    loader = DataLoader(Slow(), batch_size=8)
    for _ in loader:
        time.pass_(5.0)
    found = loader.stats()
    assert (found.fetch_seconds, found.wait_seconds, found.wall_seconds) == (40.0, 40.0, 65.0)


def test_a_loader_knows_whether_its_dataset_gives_whole_batches(tmp_path) -> None:
    save_ndf(tmp_path / "rows.ndf", np.zeros((8, 4), np.float32), np.arange(8, dtype=np.float32)[:, None])
    rows = NdfDataset(tmp_path / "rows.ndf")
    for dataset, gives_many in (
        (rows, True),
        (ConcatDataset([rows, rows]), True),
        (ArrayDataset(np.zeros(8)), True),
        (Rows(8), False),
        (ConcatDataset([Rows(8), rows]), False),
    ):
        assert DataLoader(dataset).stats().gives_many is gives_many
    rows.close()


@pytest.mark.parametrize("dataset", [Rows(4000), ArrayDataset(np.zeros((4000, 4)))], ids=["items", "arrays"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_step_counts_as_soon_as_the_next_batch_is_handed_out(
    dataset: Any, workers: int, time: Time
) -> None:
    # In mid-epoch, and where nobody had to wait since: that is when a training loop asks.
    with DataLoader(dataset, batch_size=8, num_workers=workers, prefetch_depth=8) as loader:
        batches = iter(loader)
        next(batches)
        for _ in range(3):
            time.pass_(2.0)
            next(batches)
        assert loader.stats().step_seconds == pytest.approx(6.0)
        assert loader.stats().wall_seconds == pytest.approx(6.0)


def test_time_between_two_epochs_is_nobodys(time: Time) -> None:
    loader = DataLoader(Rows(8), batch_size=8)
    list(loader)
    time.pass_(1000.0)
    list(loader)
    assert loader.stats().wall_seconds == 0.0


def test_what_an_iterator_has_not_settled_is_settled_by_the_next() -> None:
    tally = Tally()
    first, second = Clock(tally), Clock(tally)
    first.waited(1.0, 2.0)
    first.seen = 7.0
    assert tally.stats().wall_seconds == 6.0
    second.waited(20.0, 21.0)
    assert tally.stats().wall_seconds == 7.0
    second.seen = 22.0
    assert tally.stats().wall_seconds == 8.0
    assert tally.stats().epochs == 2


def test_next_into_counts_as_well() -> None:
    loader = DataLoader(ArrayDataset(np.arange(20.0)[:, None], np.arange(20)), batch_size=8)
    batches = iter(loader)
    x, y = np.empty((8, 1)), np.empty(8, np.int64)
    while batches.next_into(x, y):
        pass
    found = loader.stats()
    assert (found.batches, found.items) == (3, 20)
    assert 0 < found.fetch_seconds <= found.wall_seconds


def test_since_gives_an_interval_and_keeps_what_is_present() -> None:
    before = LoaderStats(items=10, batches=2, wall_seconds=1.0, num_workers=2)
    after = LoaderStats(items=70, batches=8, wall_seconds=3.0, num_workers=4, memory_bytes=5)
    recent = after.since(before)
    assert (recent.items, recent.batches, recent.wall_seconds) == (60, 6, 2.0)
    assert (recent.num_workers, recent.memory_bytes) == (4, 5)


def test_shares_of_nothing_are_not_invented() -> None:
    nothing = LoaderStats(num_workers=2)
    assert (nothing.gil_fraction, nothing.working_fraction, nothing.blocked_fraction) == (None, None, None)
    assert (nothing.items_per_second, nothing.wait_fraction, nothing.in_flight) == (0.0, 0.0, 0.0)


def test_idle_workers_do_not_count_as_blocked() -> None:
    found = LoaderStats(num_workers=4, looks=10, worker_looks=40, working_looks=20, asleep_looks=30)
    assert found.working_fraction == 0.5
    assert found.blocked_fraction == 0.5


def test_a_sentence_says_the_most_important() -> None:
    found = LoaderStats(items=3200, batches=100, wall_seconds=2.0, wait_seconds=0.5)
    assert str(found) == "3,200 items in 100 batches in 2.00 s (1,600 items/s); the consumer waited 25% of it"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros(4), 32),
        ((np.zeros(4), [b"abc", "de"]), 37),
        ({"x": np.zeros((2, 2), np.uint8), "y": 7}, 4),
        (SimpleNamespace(), 0),
    ],
)
def test_the_bytes_of_a_batch(value: Any, expected: int) -> None:
    assert nbytes_of(value) == expected
