"""`num_workers="auto"`: what it decides (in a model of a loader), and that it changes nothing but the speed."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from feedline import DataLoader, OptionError
from feedline.loader import auto
from feedline.loader.auto import AutoWidth, Decider
from feedline.loader.batch import Outcome
from feedline.loader.stats import LoaderStats
from loading import DEADLINE, AsyncSquares, Broken, CountingStream, Gate, Squares, results, same_results


class Model:
    """A loader in numbers: how fast it is with so many workers.

    Args:
        busy: seconds of processor time a batch.
        idle: seconds a batch that a worker waits.
        step: seconds that the consumer takes.
        cores: processors.
        gil: the processor time holds the GIL.
        other_end: batches a second that come at most, however many ask for them.
    """

    def __init__(
        self, busy: float, idle: float, step: float, cores: int = 4, gil: bool = False, other_end: float = 1e9
    ) -> None:
        self.busy, self.idle, self.step = busy, idle, step
        self.cores, self.gil, self.other_end = cores, gil, other_end

    def stats(self, width: int, seconds: float = 1.0) -> LoaderStats:
        able = min(width / (self.busy + self.idle), self.other_end)
        if self.busy:
            able = min(able, (1 if self.gil else self.cores) / self.busy)
        rate = min(able, 1 / self.step)
        waiting = 1 - rate * self.step
        batches = rate * seconds
        loading = min(width * seconds, batches * (self.busy + self.idle) if rate < able else width * seconds)
        asleep = width * self.idle / (self.busy + self.idle)
        return LoaderStats(
            batches=round(batches * 1000),
            items=round(batches * 32_000),
            wall_seconds=seconds,
            wait_seconds=waiting * seconds,
            step_seconds=(1 - waiting) * seconds,
            transform_seconds=loading,
            looks=20,
            gil_looks=20 if self.gil and rate == able else 0,
            worker_looks=20 * width,
            working_looks=20 * width,
            asleep_looks=round(20 * asleep),
            num_workers=width,
            cores=self.cores,
        )


def settle(model: Model, width: int = 2, most: int = 64, decisions: int = 40) -> Decider:
    decider = Decider(width, model.cores, most)
    for _ in range(decisions):
        decider.decide(model.stats(decider.width))
    return decider


def test_workers_that_wait_grow_until_the_consumer_waits_no_more() -> None:
    decider = settle(Model(busy=0.0, idle=0.1, step=0.01))
    assert 10 <= decider.width <= 16
    assert decider.reason == "loading keeps up"


def test_workers_that_compute_grow_up_to_the_cores() -> None:
    decider = settle(Model(busy=0.1, idle=0.0, step=0.001, cores=4))
    assert (decider.width, decider.reason) == (4, "there are 4 cores")


def test_workers_that_wait_are_bounded() -> None:
    decider = settle(Model(busy=0.0, idle=10.0, step=0.001), most=64)
    assert (decider.width, decider.reason) == (64, "64 is the most")


def test_growth_that_does_not_help_is_taken_back() -> None:
    decider = settle(Model(busy=0.0, idle=0.1, step=0.001, other_end=45.0), decisions=12)
    assert (decider.width, decider.reason) == (4, "8 are no faster")


def test_threads_that_hold_the_gil_do_not_grow() -> None:
    decider = settle(Model(busy=0.1, idle=0.0, step=0.001, gil=True))
    assert decider.width == 2
    assert "worker_type='process' would help" in decider.reason


def test_too_many_threads_that_hold_the_gil_become_two() -> None:
    assert settle(Model(busy=0.1, idle=0.0, step=0.001, gil=True), width=16).width == 2


def test_idle_workers_go() -> None:
    decider = settle(Model(busy=0.01, idle=0.0, step=0.1), width=16)
    assert decider.width == 2


def test_what_is_just_enough_stays() -> None:
    decider = settle(Model(busy=0.0, idle=0.1, step=0.05), width=3)
    assert decider.width == 3


def test_a_change_of_conditions_is_followed() -> None:
    decider = settle(Model(busy=0.01, idle=0.0, step=0.1), width=8)
    slow = Model(busy=0.0, idle=0.4, step=0.1)
    for _ in range(10):
        decider.decide(slow.stats(decider.width))
    assert decider.width >= 4


class Ticking:
    """A loader's numbers: ten items and a second for each batch, all of it waited for."""

    def __init__(self) -> None:
        self.batches = 0
        self.width = 2

    def __call__(self) -> LoaderStats:
        n = self.batches
        looks = {"looks": 20 * n, "worker_looks": 40 * n, "working_looks": 40 * n, "asleep_looks": 40 * n}
        return LoaderStats(
            batches=n,
            items=10 * n * self.width,
            wall_seconds=n,
            wait_seconds=n,
            fetch_seconds=2.0 * n,
            num_workers=self.width,
            cores=4,
            **looks,
        )


def test_it_decides_after_some_batches_and_tells_the_executor(caplog: pytest.LogCaptureFixture) -> None:
    ticking, widths = Ticking(), []
    width = AutoWidth(2, "thread", 4, ticking)

    def resize(wanted: int) -> None:
        widths.append(wanted)

    observer = width.attach(resize)
    # Two that were under way with another width, and then two for each worker.
    for _ in range(5):
        ticking.batches += 1
        observer.received(Outcome(0))
    assert widths == []
    ticking.batches += 1
    observer.received(Outcome(0))
    assert widths == [4]
    assert width.note == "num_workers='auto' is trying 4 workers: 2 were not enough."


def test_it_says_what_it_settled_on(caplog: pytest.LogCaptureFixture) -> None:
    ticking = Ticking()
    width = AutoWidth(2, "process", 1, ticking)
    observer = width.attach(lambda wanted: None)
    with caplog.at_level(logging.INFO, "feedline"):
        for _ in range(200):
            ticking.batches += 1
            observer.received(Outcome(0))
    assert [record.getMessage() for record in caplog.records][-1].startswith("num_workers='auto' settled on")


DATASETS = [
    pytest.param(Squares(60), {}, id="items"),
    pytest.param(Broken(60), {}, id="errors"),
    pytest.param(Broken(60), {"on_error": "substitute"}, id="substitutes"),
    pytest.param(AsyncSquares(60), {"item_concurrency": 3}, id="event loop"),
    pytest.param(CountingStream(60), {}, id="stream"),
    pytest.param(Squares(60), {"worker_type": "process"}, id="processes"),
]


def restless(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the number of workers change with every other batch."""
    widths: list[int] = []
    wanted = itertools.cycle([1, 5, 3, 8, 2])

    def decide(self: Decider, recent: LoaderStats) -> int:
        self.width = next(wanted)
        widths.append(self.width)
        return self.width

    monkeypatch.setattr(Decider, "decide", decide)
    monkeypatch.setattr(auto, "SECONDS", 0.0)
    monkeypatch.setattr(auto, "BATCHES_PER_WORKER", 0)
    monkeypatch.setattr(AutoWidth, "_begin", lambda self: setattr(self, "_count", 0))
    return widths


@pytest.mark.parametrize(("dataset", "options"), DATASETS)
def test_the_number_of_workers_never_changes_batches_or_order(
    dataset: Any, options: Any, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    shuffle = {} if isinstance(dataset, CountingStream) else {"shuffle": True, "seed": 3}
    plain = {name: value for name, value in options.items() if name != "worker_type"}
    with DataLoader(dataset, batch_size=2, **shuffle, **plain) as loader:
        expected = [results(loader.iter_with_indices()) for _ in range(2)]
    widths = restless(monkeypatch)
    with DataLoader(dataset, batch_size=2, num_workers="auto", **shuffle, **options) as loader:
        for epoch in range(2):
            same_results(results(loader.iter_with_indices()), expected[epoch])
    assert len(set(widths)) > 2


def test_a_state_resumes_whatever_the_width_was(monkeypatch: pytest.MonkeyPatch) -> None:
    restless(monkeypatch)
    expected = [batch["index"].tolist() for batch in DataLoader(Squares(60), 4, shuffle=True, seed=1)]
    with DataLoader(Squares(60), 4, shuffle=True, seed=1, num_workers="auto") as loader:
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        state = loader.state_dict()
    with DataLoader(Squares(60), 4, shuffle=True, seed=1, num_workers="auto") as other:
        other.load_state_dict(state)
        assert [batch["index"].tolist() for batch in other] == expected[6:]


def test_a_plain_state_loads_into_an_automatic_loader_and_back() -> None:
    state = DataLoader(Squares(60), 4, num_workers="auto").state_dict()
    DataLoader(Squares(60), 4, num_workers=3).load_state_dict(state)


@pytest.mark.parametrize("worker_type", ["thread", "process"])
def test_workers_come_and_go(worker_type: str, nothing_left: None) -> None:
    order = itertools.cycle(range(60))
    with DataLoader(
        Squares(60), 2, sampler=order, num_workers=2, worker_type=worker_type, prefetch_depth=8
    ) as loader:
        batches = iter(loader)
        executor = loader._executor()
        for width in (5, 1, 3):
            executor.resize(width)
            end = time.monotonic() + DEADLINE
            while len(executor.places()) != width:
                assert time.monotonic() < end, f"{len(executor.places())} workers, not {width}"
                next(batches)


def test_a_wider_executor_computes_more_at_once() -> None:
    gate = Gate()

    class Gated(Squares):
        def __getitem__(self, index: Any) -> Any:
            gate.enter()
            return super().__getitem__(index)

    with DataLoader(Gated(64), 1, num_workers=1, prefetch_depth=5) as loader:
        batches = iter(loader)
        consumer = threading.Thread(target=next, args=(batches,))
        loader._executor().resize(4)
        consumer.start()
        gate.wait_for(4)
        gate.open()
        consumer.join(DEADLINE)
    assert gate.most == 4


def test_the_window_follows_the_width() -> None:
    with DataLoader(Squares(64), 2, num_workers="auto", prefetch_depth=3) as loader:
        batches = iter(loader)
        assert batches._pace.window == 5
        assert loader.telling.auto is not None
        loader.telling.auto._resize(7)  # type: ignore[misc]
        assert batches._pace.window == 10
        assert len(list(batches)) == 32


def test_the_next_epoch_begins_with_the_workers_of_the_last() -> None:
    with DataLoader(Squares(64), 2, num_workers="auto") as loader:
        list(loader)
        loader.telling.auto._decider.width = 6  # type: ignore[union-attr]
        assert iter(loader)._pace.window == 8
        assert loader.stats().num_workers == 6


def test_an_iterator_that_is_dropped_is_gone_at_once() -> None:
    loader = DataLoader(Squares(64), 2, num_workers="auto")
    batches = iter(loader)
    next(batches)
    gc.disable()
    try:
        reference = weakref.ref(batches)
        del batches
        assert reference() is None
    finally:
        gc.enable()
        loader.close()


@pytest.mark.parametrize("value", ["Auto", "", "2"])
def test_other_words_are_refused(value: str) -> None:
    with pytest.raises(OptionError, match="num_workers must be an int of at least 0, or 'auto'"):
        DataLoader([1], num_workers=value)


def test_the_report_says_what_it_is_at() -> None:
    with DataLoader(np.arange(64), 2, num_workers="auto") as loader:
        list(loader)
        assert "num_workers='auto' settled on 2 workers" in loader.report()
