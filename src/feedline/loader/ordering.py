"""The window: outcomes that have come, and which of them is next.

Note [Ctrl-C]
    On the main thread a KeyboardInterrupt may come between any two bytecodes, also between a function's return and the
    assignment of what it returned. So nothing is ever popped: an outcome is looked at, then the cursor moves, then the
    outcome is removed; a task that was handed out twice gives an outcome that is already received, and is dropped.
    Whatever the moment, every batch comes once.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Cursor", "Window", "cursor_at"]


class _Numbered(Protocol):
    number: int


R = TypeVar("R", bound=_Numbered)


class Cursor(NamedTuple):
    """Which batches the consumer has received. Immutable: reading one from another thread is safe.

    Attributes:
        next: every batch before this one is received.
        ahead: numbers beyond `next` that are received as well (`in_order=False`).
    """

    next: int
    ahead: frozenset[int] = frozenset()

    def has(self, number: int) -> bool:
        """Tell whether batch `number` is received."""
        return number < self.next or number in self.ahead

    def after(self, number: int) -> Cursor:
        """Return the cursor when batch `number` is received, too."""
        if number != self.next:
            return Cursor(self.next, self.ahead | {number})
        following = number + 1
        ahead = self.ahead
        while following in ahead:
            following += 1
        return Cursor(following, frozenset(n for n in ahead if n > following) if ahead else ahead)


_NONE: frozenset[int] = frozenset()


def cursor_at(number: int) -> Cursor:
    """Return `Cursor(number)`, at half of its cost: this runs once for every batch."""
    return tuple.__new__(Cursor, (number, _NONE))


class Window(Generic[R]):
    """Outcomes by batch number. Workers put, one consumer peeks and removes.

    Concurrency: `put` may be called from any thread; it is one item assignment to a dict.
    """

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._outcomes: dict[int, R] = {}

    def put(self, outcome: R) -> None:
        """Add what came of a batch."""
        self._outcomes[outcome.number] = outcome

    def peek(self, cursor: Cursor) -> R | None:
        """Return the outcome that is to be delivered, if it is here; it stays until it is removed."""
        if self._in_order:
            return self._outcomes.get(cursor.next)
        # list() of a dict is one atomic step, the dict's order that in which the outcomes came.
        for number in list(self._outcomes):
            if cursor.has(number):
                self._outcomes.pop(number, None)
            else:
                return self._outcomes.get(number)
        return None

    def at(self, number: int) -> R | None:
        """Return what came of batch `number`, if it is here; it stays."""
        return self._outcomes.get(number)

    def remove(self, number: int) -> None:
        """Forget an outcome that the cursor has passed."""
        self._outcomes.pop(number, None)

    def __len__(self) -> int:
        return len(self._outcomes)
