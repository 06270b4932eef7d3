"""The window: outcomes that have come, and which of them is next.

Note [Ctrl-C]
    On the main thread a KeyboardInterrupt may come at any call and at any turn of a loop; CPython looks for signals
    there, and neither at loads and stores of attributes nor at `return`. So the move of the cursor is the last thing
    before a batch is returned (or its error raised), with no call behind it: before it, the batch is still here for the
    next call; behind it, a `for` loop has it. Whatever comes before may run twice for one batch: nothing is popped, an
    outcome stays in the window until the next call; a failure is recorded once, since it is looked for first; a task
    that was handed out twice gives an outcome that is already received, and is dropped.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Cursor", "Window", "cursor_at"]


class _Numbered(Protocol):
    number: int


class _Group(Protocol):
    number: int

    @property
    def values(self) -> Sized: ...

    def single(self, number: int) -> Any: ...

    def forget(self, number: int) -> None: ...


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

    Attributes:
        awaited: the batch that the consumer waits for; `None` while any will do.

    Concurrency: `put` and `put_group` may be called from any thread; each batch is one item assignment to a dict.
    """

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._outcomes: dict[int, Any] = {}
        self.awaited: int | None = None

    def put(self, outcome: R) -> None:
        """Add what came of a batch."""
        self._outcomes[outcome.number] = outcome

    def put_group(self, group: _Group) -> None:
        """Add what came of several: the group stands in the place of each of its batches."""
        first = group.number
        self._outcomes.update(dict.fromkeys(range(first, first + len(group.values)), group))

    def await_batch(self, cursor: Cursor) -> None:
        """Say what is waited for. Who looks into the window *after* this, and waits then, misses no outcome."""
        self.awaited = cursor.next if self._in_order else None

    def is_awaited(self, first: int, count: int) -> bool:
        """Tell whether the consumer has to hear of so many batches, from `first` on, which have come."""
        awaited = self.awaited
        return awaited is None or first <= awaited < first + count

    def peek(self, cursor: Cursor) -> R | None:
        """Return the outcome that is to be delivered, if it is here; it stays until it is removed."""
        if self._in_order:
            self._outcomes.pop(cursor.next - 1, None)
            return self._single(cursor.next)
        # list() of a dict is one atomic step, the dict's order that in which the outcomes came.
        for number in list(self._outcomes):
            if cursor.has(number):
                self._outcomes.pop(number, None)
            else:
                return self._single(number)
        return None

    def _single(self, number: int) -> R | None:
        found: Any = self._outcomes.get(number)
        if not hasattr(found, "single"):
            outcome: R | None = found
            return outcome
        # Kept as its own from here on: whoever looks again finds the same object.
        single: R = found.single(number)
        self._outcomes[number] = single
        found.forget(number)
        return single

    def at(self, number: int) -> Any:
        """Return what came of batch `number`, or of its group, if it is here; it stays.

        The one before it goes: it is received.
        """
        self._outcomes.pop(number - 1, None)
        return self._outcomes.get(number)

    def drop_received(self, cursor: Cursor) -> None:
        """Forget what the cursor has passed: outcomes of tasks that were handed out twice."""
        for number in list(self._outcomes):
            if cursor.has(number):
                self._outcomes.pop(number, None)

    def __len__(self) -> int:
        return len(self._outcomes)
