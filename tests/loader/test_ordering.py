"""The window and the cursor: whatever the order in which outcomes come, each is delivered once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

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
