"""The head start of the first worker thread: the first batch comes before those behind it are begun."""

from __future__ import annotations

import sys
import threading

import pytest

from feedline import DataLoader
from feedline.loader.execution import threads

pytestmark = pytest.mark.usefixtures("nothing_left")


class Watched:
    """Notes which items were begun; item 0 does what it is told."""

    def __init__(self, first=lambda: None):
        self.first = first
        self.begun = []

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.begun.append(index)
        if index == 0:
            self.first()
        return index


def batches(dataset, **options):
    with DataLoader(dataset, batch_size=2, num_workers=4, **options) as loader:
        return [batch.tolist() for epoch in range(2) for batch in loader]


EXPECTED = [[n, n + 1] for n in range(0, 12, 2)] * 2


def test_the_first_batch_is_made_before_any_other_is_begun(monkeypatch):
    monkeypatch.setattr(threads, "HEAD_START_SECONDS", 60.0)
    monkeypatch.setattr(threads, "_has_gil", lambda: True)
    dataset = Watched()
    assert batches(dataset) == EXPECTED
    assert dataset.begun[:2] == [0, 1]


@pytest.mark.parametrize("has_gil", [True, False])
def test_a_first_batch_that_takes_long_holds_nobody_up(has_gil, monkeypatch):
    monkeypatch.setattr(threads, "_has_gil", lambda: has_gil)
    if not has_gil:
        monkeypatch.setattr(threads, "HEAD_START_SECONDS", 600.0)
    others = threading.Event()

    class Waiting(Watched):
        def __getitem__(self, index):
            if index == 7:
                others.set()
            return super().__getitem__(index)

    # It can only come once others work beside it.
    assert batches(Waiting(lambda: others.wait(60))) == EXPECTED


def test_a_first_batch_that_fails_lets_the_others_begin(monkeypatch):
    monkeypatch.setattr(threads, "HEAD_START_SECONDS", 60.0)

    def fail():
        raise ValueError("no item")

    assert batches(Watched(fail), on_error="skip") == [[1], *EXPECTED[1:6], [1], *EXPECTED[1:6]]


def test_a_loader_that_is_left_at_once_ends_its_threads():
    with DataLoader(Watched(), batch_size=2, num_workers=4) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1]


def test_there_is_no_head_start_where_nothing_has_to_take_turns(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert not threads._has_gil()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert threads._has_gil()
