"""Loaders around loaders, which work ahead of the consumer and keep the consumer's own position as the state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from feedline.errors import OptionError

__all__ = ["AheadIterator", "AheadLoader", "check_ahead"]

State = Callable[[], dict[str, Any]]


def check_ahead(ahead: Any) -> int:
    """Return `ahead`; an `OptionError` or `TypeError` if it is no number of batches."""
    if isinstance(ahead, bool) or not isinstance(ahead, int):
        raise TypeError(f"ahead must be an int, not {ahead!r}")
    if ahead < 0:
        raise OptionError(f"ahead must be at least 0, not {ahead}")
    return ahead


class AheadLoader:
    """A loader around another one: its length, epochs and attributes are the inner one's, its state the consumer's.

    Subclasses have `_begin() -> (prepare, receive)`, asked once for each iterator: `prepare(batch)` starts what is done
    to a batch, `receive(prepared)` gives what the consumer gets.
    """

    def __init__(self, loader: Any, ahead: int) -> None:
        self.loader = loader
        self.ahead = check_ahead(ahead)
        self._newest: AheadIterator | None = None

    def _begin(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        raise TypeError(f"{type(self).__name__} defines no _begin")

    def __iter__(self) -> AheadIterator:
        """Start the loader's next epoch, or go on where a loaded state stands."""
        prepare, receive = self._begin()
        self._newest = AheadIterator(iter(self.loader), self.ahead, prepare, receive)
        return self._newest

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from the newest iterator here."""
        if self._newest is not None:
            return self._newest.state_dict()
        state: dict[str, Any] = self.loader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` go on where `state` stands."""
        self.loader.load_state_dict(state)
        self._newest = None

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` run `epoch`."""
        self.loader.set_epoch(epoch)
        self._newest = None

    def __getattr__(self, name: str) -> Any:
        """Return the inner loader's attribute."""
        if name.startswith("_") or name == "loader":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.loader, name)


class _Waiting:
    """A batch that is prepared, or the error in its place, and the state behind it."""

    __slots__ = ("error", "prepared", "state")

    def __init__(self, prepared: Any, error: Exception | None, state: State) -> None:
        self.prepared = prepared
        self.error = error
        self.state = state


class AheadIterator:
    """The batches of one epoch, prepared ahead in the consumer's thread.

    Each `next()` first prepares as many batches as are to be ahead, then gives the oldest: what it started (a copy, a
    transfer) goes on while the consumer works. Goes on after an exception, which comes in its batch's place; `len()` is
    the number of batches left.
    """

    def __init__(
        self, inner: Any, ahead: int, prepare: Callable[[Any], Any], receive: Callable[[Any], Any]
    ) -> None:
        self._inner = inner
        self._ahead = ahead
        self._prepare = prepare
        self._receive = receive
        self._waiting: deque[_Waiting] = deque()
        self._ended = False
        self._state = _bookmark(inner)
        self._last: State | None = None

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch, or raise the error that belongs to it."""
        while not self._ended and len(self._waiting) <= self._ahead and not self._is_cut():
            self._pull()
        if not self._waiting:
            self._state = self._last or self._state
            raise StopIteration
        waiting = self._waiting.popleft()
        self._state = waiting.state
        if waiting.error is not None:
            try:
                raise waiting.error
            finally:
                del waiting  # the error's traceback holds this frame
        return self._receive(waiting.prepared)

    def _is_cut(self) -> bool:
        """Behind an error nothing is pulled before it is received."""
        return bool(self._waiting) and self._waiting[-1].error is not None

    def _pull(self) -> None:
        prepared, error = None, None
        try:
            batch = next(self._inner)
        except StopIteration:
            self._ended = True
            self._last = _bookmark(self._inner)
            return
        except Exception as found:
            error = found
        else:
            try:
                prepared = self._prepare(batch)
            except Exception as found:
                error = found
        self._waiting.append(_Waiting(prepared, error, _bookmark(self._inner)))

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from this iterator."""
        return self._state()

    def __len__(self) -> int:
        """Return how many batches are left, those that are prepared included."""
        return len(self._inner) + len(self._waiting)

    def close(self) -> None:
        """Drop what is in progress."""
        self._ended = True
        self._waiting.clear()
        close = getattr(self._inner, "close", None)
        if callable(close):
            close()


def _bookmark(iterator: Any) -> State:
    """Return what gives the iterator's state as it is now, whenever it is asked."""
    bookmark = getattr(iterator, "bookmark", None)
    if callable(bookmark):
        return bookmark()  # type: ignore[no-any-return]
    tell = getattr(iterator, "state_dict", None)
    if not callable(tell):
        return _no_state
    state = tell()
    return lambda: state


def _no_state() -> dict[str, Any]:
    raise TypeError("the iterators of this loader have no state_dict()")
