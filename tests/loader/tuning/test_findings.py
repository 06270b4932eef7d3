"""Which choice is the best, and what is said about it."""

from __future__ import annotations

from typing import Any

from feedline.loader.tuning.findings import best_of, findings
from feedline.loader.tuning.trial import Trial


def trial(kind: str, workers: int, rate: float, **others: Any) -> Trial:
    return Trial(kind, workers, items_per_second=rate, first_batch=7, **others)


SERIAL = trial("thread", 0, 100.0)
THREADS = trial("thread", 2, 110.0, limit="gil", bottleneck="transform")
PROCESSES = trial("process", 2, 190.0, limit="cpu", bottleneck="transform", advice="Make transform cheaper.")


def test_the_fastest_is_the_best() -> None:
    assert best_of([SERIAL, THREADS, PROCESSES]) == PROCESSES


def test_of_those_about_as_fast_the_simplest_is_the_best() -> None:
    more = trial("process", 4, 195.0)
    assert best_of([SERIAL, PROCESSES, more]) == PROCESSES
    same = trial("thread", 2, 186.0)
    assert best_of([PROCESSES, same]) == same


def test_it_says_what_to_use_what_it_brings_and_what_is_in_the_way() -> None:
    assert findings([SERIAL, THREADS, PROCESSES], now=THREADS) == [
        "Use num_workers=2, worker_type='process': 190 items/s, 1.7 times as many as now, 1.9 times as many as without "
        "workers.",
        "Threads bring less: they hold each other up by the GIL.",
        "Then transform is the slowest stage. Make transform cheaper.",
    ]


def test_it_says_when_nothing_is_to_be_changed() -> None:
    assert (
        findings([SERIAL, trial("thread", 1, 80.0)], now=SERIAL)[0]
        == "Use num_workers=0: 100 items/s, as you do now."
    )


def test_choices_that_failed_are_named_and_never_the_best() -> None:
    broken = Trial("process", 2, error="a lock can't be pickled")
    assert best_of([broken]) is None
    assert findings([broken]) == ["No choice of workers gave a batch: a lock can't be pickled."]
    assert findings([SERIAL, broken])[-1] == "2 processes: a lock can't be pickled."


def test_other_batches_are_told_as_what_they_are() -> None:
    odd = Trial("process", 2, items_per_second=1.0, first_batch=8)
    assert "draws from global random state" in findings([SERIAL, odd])[-1]
    assert best_of([]) is None
