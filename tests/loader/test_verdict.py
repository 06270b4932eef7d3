"""The verdict on synthetic numbers: pure, so every cause can be told exactly."""

from __future__ import annotations

from typing import Any

import pytest

from feedline.loader.stats import LoaderStats
from feedline.loader.verdict import judge


def stats(**changes: Any) -> LoaderStats:
    """Ten seconds, half of them waited for; two threads that were busy all the time, on four cores."""
    numbers: dict[str, Any] = {
        "batches": 100,
        "items": 3200,
        "epochs": 1,
        "wall_seconds": 10.0,
        "wait_seconds": 5.0,
        "first_wait_seconds": 0.1,
        "step_seconds": 5.0,
        "fetch_seconds": 2.0,
        "transform_seconds": 17.0,
        "collate_seconds": 1.0,
        "cpu_seconds": 19.0,
        "looks": 100,
        "gil_looks": 5,
        "worker_looks": 200,
        "working_looks": 200,
        "asleep_looks": 4,
        "num_workers": 2,
        "cores": 4,
    }
    return LoaderStats(**{**numbers, **changes})


SLOW_FETCH = {"fetch_seconds": 18.0, "transform_seconds": 1.0, "collate_seconds": 1.0}
SLOW_COLLATE = {"fetch_seconds": 1.0, "transform_seconds": 1.0, "collate_seconds": 18.0}
ASLEEP = {"asleep_looks": 190, "cpu_seconds": 1.0}
SERIAL = {
    "num_workers": 0,
    "worker_looks": 7,
    "working_looks": 7,
    "looks": 7,
    "gil_looks": 0,
    "asleep_looks": 0.2,
}

CASES = [
    ({"batches": 0, "wall_seconds": 0.0}, "none", "none", "Iterate"),
    ({"wait_seconds": 0.3, "step_seconds": 9.7}, "step", "none", "training step"),
    ({**SLOW_FETCH, **ASLEEP}, "fetch", "waiting", "num_workers=4 (now 2)"),
    ({**ASLEEP}, "transform", "waiting", "num_workers=4"),
    ({**SLOW_FETCH, **ASLEEP, "worker_type": "process"}, "fetch", "waiting", "worker_type='thread'"),
    ({**SLOW_FETCH, **ASLEEP, "num_workers": 64}, "fetch", "waiting", "the other end is at its limit"),
    ({**SLOW_FETCH, "gil_looks": 97}, "fetch", "gil", "worker_type='process', num_workers=4"),
    ({"gil_looks": 97, "asleep_looks": 100}, "transform", "gil", "releases the GIL"),
    ({**SLOW_COLLATE, "gil_looks": 97}, "collate", "gil", "collate_fn that leaves the work to NumPy"),
    (
        {"gil_looks": 97, "num_workers": 1, "worker_looks": 100, "working_looks": 100},
        "transform",
        "gil",
        "process",
    ),
    ({"gil_looks": 97, "worker_type": "process"}, "transform", "workers", "num_workers=4 (now 2)"),
    ({"gil_looks": 97, "source": "async"}, "transform", "gil", "out of coroutines"),
    ({}, "transform", "workers", "num_workers=4 (now 2)"),
    ({**SLOW_COLLATE}, "collate", "workers", "num_workers=4"),
    ({"cores": 2}, "transform", "cpu", "make transform cheaper"),
    ({"cores": 2, "cpu_seconds": 6.0}, "transform", "cpu", "Other programs"),
    ({"working_looks": 60, "asleep_looks": 140}, "transform", "window", "prefetch_depth=4 (now 2)"),
    ({"working_looks": 60, "prefetch_depth": 16}, "transform", "window", "prefetch_depth=32 (now 16)"),
    ({"first_wait_seconds": 4.99, "epochs": 50}, "start", "none", "epochs longer"),
    ({"first_wait_seconds": 4.99}, "start", "none", "nothing to change"),
    ({**SLOW_FETCH, **ASLEEP, "source": "stream"}, "fetch", "reader", "one reader"),
    ({"batches": 100_000}, "transform", "handover", "num_workers=0"),
    ({"batches": 100_000, "gil_looks": 60, "asleep_looks": 190}, "transform", "handover", "batch_size"),
    ({"batches": 100_000, **ASLEEP}, "transform", "waiting", "num_workers"),
    (
        {**SLOW_FETCH, **ASLEEP, "source": "async", "item_concurrency": 8, "flight_seconds": 150.0},
        "fetch",
        "waiting",
        "15.0 items are in flight, and 16 may be: use item_concurrency=32 (now 8)",
    ),
    ({**SERIAL}, "transform", "workers", "use num_workers=4"),
    ({**SERIAL, **SLOW_FETCH, "asleep_looks": 6.5}, "fetch", "waiting", "threads suffice"),
    ({**SERIAL, "batches": 100_000}, "transform", "handover", "larger batch_size"),
    ({**SERIAL, **SLOW_FETCH, "source": "stream"}, "fetch", "workers", "num_workers=1"),
    ({**SERIAL, **SLOW_FETCH, "source": "async"}, "fetch", "waiting", "item_concurrency=8"),
    (
        {"worker_type": "ray", "worker_looks": 0, "working_looks": 0, "cores": 2},
        "transform",
        "workers",
        "num_workers=4",
    ),
]


@pytest.mark.parametrize(("changes", "bottleneck", "limit", "advice"), CASES)
def test_each_cause_is_named_with_what_to_change(
    changes: dict[str, Any], bottleneck: str, limit: str, advice: str
) -> None:
    verdict = judge(stats(**changes))
    assert (verdict.bottleneck, verdict.limit) == (bottleneck, limit)
    assert advice in verdict.advice


def test_who_has_whole_batches_already_is_not_advised_to_take_them() -> None:
    single = judge(stats(**SERIAL, batches=100_000))
    whole = judge(stats(**SERIAL, batches=100_000, gives_many=True))
    assert "use a larger batch_size, or a dataset that gives whole batches" in single.advice
    assert whole.limit == single.limit == "handover"
    assert whole.advice.endswith("use a larger batch_size.")


def test_advice_counts_on_as_many_workers_as_the_step_needs() -> None:
    # The step takes a tenth of the time: eight times as many workers, and not more in one go.
    verdict = judge(stats(**SLOW_FETCH, **ASLEEP, wait_seconds=9.0, step_seconds=1.0))
    assert "num_workers=16" in verdict.advice


def test_the_share_of_the_gil_is_told_where_it_is_the_cause() -> None:
    assert judge(stats(gil_looks=80)).gil_fraction == 0.8
    assert judge(stats(gil_looks=80, worker_type="process")).gil_fraction is None


def test_without_looks_processor_time_tells_of_the_gil() -> None:
    blind = {"looks": 0, "gil_looks": 0, "worker_looks": 0, "working_looks": 0, "asleep_looks": 0}
    one_core = judge(stats(**blind, cpu_seconds=10.0))
    assert (one_core.limit, one_core.gil_fraction) == ("gil", 1.0)
    assert judge(stats(**blind)).limit == "workers"
    assert judge(stats(**blind, cpu_seconds=1.0)).limit == "waiting"


def test_a_loaded_machine_is_no_reason_to_speak_of_waiting() -> None:
    # Workers got a fifth of the processor time that they wanted: they were not asleep, but in the queue for a core.
    assert judge(stats(cores=2, cpu_seconds=4.0)).limit == "cpu"
