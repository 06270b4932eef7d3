"""The window and the cursor: whatever the order in which outcomes come, each is delivered once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.loader.batch import Group, Task
from feedline.loader.ordering import Cursor, Window, cursor_at


@dataclass(frozen=True)
class Outcome:
    number: int


def drain(window, cursor):
    """Deliver what can be delivered now."""
    delivered = []
    while (outcome := window.peek(cursor)) is not None:
        delivered.append(outcome.number)
        cursor = cursor.after(outcome.number)
    return delivered, cursor


@given(st.permutations(range(12)), st.data())
def test_in_order_whatever_comes_first(numbers, data) -> None:
    window, cursor, delivered = Window(in_order=True), Cursor(0), []
    for number in numbers:
        window.put(Outcome(number))
        if data.draw(st.booleans()):
            more, cursor = drain(window, cursor)
            delivered += more
    more, cursor = drain(window, cursor)
    assert delivered + more == list(range(12))
    assert cursor == Cursor(12)
    window.drop_received(cursor)
    assert len(window) == 0


@given(st.permutations(range(12)), st.data())
def test_out_of_order_as_they_come(numbers, data) -> None:
    window, cursor, delivered = Window(in_order=False), Cursor(0), []
    for number in numbers:
        window.put(Outcome(number))
        if data.draw(st.booleans()):
            more, cursor = drain(window, cursor)
            delivered += more
            assert cursor.next == min(set(range(13)) - set(delivered))
            assert cursor.ahead == {n for n in delivered if n > cursor.next}
    more, cursor = drain(window, cursor)
    assert sorted(delivered + more) == list(range(12))
    assert delivered + more == numbers
    assert cursor == Cursor(12)
    assert len(window) == 0


@given(st.lists(st.integers(0, 8), max_size=30), st.booleans())
def test_outcomes_that_come_twice_are_delivered_once(numbers, in_order) -> None:
    window, cursor, delivered = Window(in_order), Cursor(0), []
    for number in numbers:
        window.put(Outcome(number))
        more, cursor = drain(window, cursor)
        delivered += more
    assert len(set(delivered)) == len(delivered)
    if in_order:
        assert delivered == list(range(len(delivered)))
    window.drop_received(cursor)
    assert not any(cursor.has(number) for number in range(cursor.next, 9) if window.at(number) is not None)


def test_a_cursor_tells_what_was_received() -> None:
    cursor = Cursor(3).after(5).after(7).after(4)
    assert cursor == Cursor(3, frozenset({4, 5, 7}))
    assert [number for number in range(10) if cursor.has(number)] == [0, 1, 2, 4, 5, 7]
    assert cursor.after(3) == Cursor(6, frozenset({7}))
    assert cursor.after(3).after(6) == Cursor(8)


def test_the_cheap_cursor_is_the_same() -> None:
    assert cursor_at(5) == Cursor(5)
    assert type(cursor_at(5)) is Cursor
    assert cursor_at(5).after(5) == Cursor(6)


def test_what_was_not_delivered_stays() -> None:
    window = Window(in_order=True)
    window.put(Outcome(4))
    for _ in range(3):
        assert window.peek(Cursor(4)) == Outcome(4)
    assert window.peek(Cursor(3)) is None
    # The next look forgets the one before.
    assert window.peek(Cursor(5)) is None
    assert window.peek(Cursor(4)) is None


def gathered(number, count):
    task = Task(number, 0, np.arange(2 * count), count=count, batch_size=2)
    return Group(task, np.arange(2 * count), 0.0, 1.0, 1.0, "worker thread 0")


@pytest.mark.parametrize("in_order", [True, False])
def test_a_group_is_delivered_batch_by_batch(in_order) -> None:
    window, cursor, delivered = Window(in_order), Cursor(0), []
    for first in (4, 0):
        window.put_group(gathered(first, 4))
    for _ in range(8):
        outcome = window.peek(cursor)
        assert outcome is window.peek(cursor)
        assert outcome.value.tolist() == outcome.indices.tolist()
        assert outcome.fetch_seconds == 0.25
        delivered.append((outcome.number, outcome.value.tolist()))
        cursor = cursor.after(outcome.number)
    expected = [(number, [number % 4 * 2, number % 4 * 2 + 1]) for number in range(8)]
    assert delivered == (expected if in_order else expected[4:] + expected[:4])
    window.drop_received(cursor)
    assert len(window) == 0


def test_a_batch_that_was_taken_out_of_a_group_is_kept_by_its_outcome_alone() -> None:
    window, group = Window(in_order=True), gathered(0, 3)
    window.put_group(group)
    first = window.peek(Cursor(0))
    assert first.value.tolist() == [0, 1]
    assert [value is None for value in group.values] == [True, False, False]


def test_who_waits_for_one_batch_need_not_hear_of_others() -> None:
    window = Window(in_order=True)
    assert window.is_awaited(7, 1)  # nobody has said what for
    window.await_batch(Cursor(5))
    assert [window.is_awaited(first, 2) for first in (2, 3, 4, 5, 6)] == [False, False, True, True, False]
    window = Window(in_order=False)
    window.await_batch(Cursor(5))
    assert window.is_awaited(9, 1)
