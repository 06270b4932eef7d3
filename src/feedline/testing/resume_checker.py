"""Does a loader go on exactly where it stood? Saves the state before every batch, restores each, compares what follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from feedline.testing.dataset_contract import same

__all__ = ["Event", "check_resume", "events_of"]


@dataclass(frozen=True)
class Event:
    """What one `next()` gave: a batch with its indices, or an error.

    Attributes:
        indices: of the rows that are there; `None` for an error.
        batch: the batch; for an error its type and arguments.
    """

    indices: tuple[Any, ...] | None
    batch: Any

    def equals(self, other: Event) -> bool:
        """Tell whether both are the same, bit for bit."""
        return self.indices == other.indices and same(self.batch, other.batch)


def events_of(iterator: Iterator[Any]) -> Iterator[Event]:
    """Yield what an iterator made by `iter_with_indices()` gives, its errors included."""
    while True:
        try:
            indices, batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            yield Event(None, (type(error).__qualname__, error.args))
        else:
            yield Event(tuple(indices), batch)


def check_resume(
    make_loader: Callable[[], Any],
    epochs: int = 2,
    *,
    make_resumed: Callable[[], Any] | None = None,
    in_order: bool = True,
    every: int = 1,
) -> int:
    """Raise an `AssertionError` unless every state of a run continues as the unbroken run did.

    One run of `epochs` epochs is made, its state taken before every batch, behind the last one, and after the end of
    every epoch, as JSON text. Each state is then loaded into a fresh loader, which must give the rest of its epoch and all
    later ones: the same batches, the same indices, the same errors.

    Args:
        make_loader: returns a new loader, the same each time.
        epochs: how many epochs are run; one more is compared after the last state.
        make_resumed: returns the loaders that states are loaded into, where these shall be others (another number or kind
            of workers, say); default: `make_loader`.
        in_order: `False` compares the batches of an epoch without regard to their order.
        every: take each `every`-th state only.

    Returns:
        How many states were checked.

    >>> from feedline import DataLoader
    >>> check_resume(lambda: DataLoader(range(7), batch_size=3, shuffle=True), epochs=2)
    10
    """
    loader = make_loader()
    states: list[tuple[str, int, int]] = []
    unbroken = [_recorded(loader, epoch, states) for epoch in range(epochs)]
    unbroken.append(list(events_of(loader.iter_with_indices())))
    _close(loader)
    checked = 0
    for text, epoch, received in states[::every]:
        expected = [unbroken[epoch][received:], *unbroken[epoch + 1 :]]
        if not expected[0]:
            del expected[0]
        _check_one((make_resumed or make_loader)(), text, expected, f"{received} of epoch {epoch}", in_order)
        checked += 1
    return checked


def _recorded(loader: Any, epoch: int, states: list[tuple[str, int, int]]) -> list[Event]:
    """Run one epoch; keep the state before every `next()` and after the end."""
    events: list[Event] = []
    iterator = loader.iter_with_indices()
    walk = events_of(iterator)
    while True:
        state = json.dumps(loader.state_dict())
        own = json.dumps(iterator.state_dict())
        assert own == state, f"the states of loader and newest iterator differ:\n{state}\n{own}"
        states.append((state, epoch, len(events)))
        event = next(walk, None)
        if event is None:
            states.append((json.dumps(loader.state_dict()), epoch, len(events)))
            return events
        events.append(event)


def _check_one(loader: Any, text: str, expected: list[list[Event]], where: str, in_order: bool) -> None:
    loader.load_state_dict(json.loads(text))
    again = json.dumps(loader.state_dict())
    for place, events in enumerate(expected):
        found = list(events_of(loader.iter_with_indices()))
        difference = _difference(events, found, in_order)
        assert difference is None, (
            f"resumed after batch {where}, {place} epochs later: {difference}\n  the state was {text}\n"
            f"  and is right after loading {again}"
        )
    _close(loader)


def _difference(expected: list[Event], found: list[Event], in_order: bool) -> str | None:
    if not in_order:
        expected, found = _sorted(expected), _sorted(found)
    for number, (one, other) in enumerate(zip(expected, found)):
        if not one.equals(other):
            return f"batch {number} is {other}, the unbroken run had {one}"
    if len(expected) != len(found):
        return f"{len(found)} batches came, the unbroken run had {len(expected)}"
    return None


def _sorted(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.indices is None, repr(event.indices), repr(event.batch)))


def _close(loader: Any) -> None:
    close = getattr(loader, "close", None)
    if close is not None:
        close()
