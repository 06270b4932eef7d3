"""One fetch with its attempts, as a generator that says what to do next; whoever drives it does it.

A generator yields steps, is sent their results, and returns the item or raises its `FetchError`. It never sleeps, opens
or awaits anything, so the rules of retrying are written once, for threads and event loops alike, and are tested without
either. `drive` runs one in a thread, `adrive` on an event loop; what a step means is up to the function that they are
given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from feedline.datasets.fetching.retry import Retry
from feedline.errors import FetchError

__all__ = ["Failure", "Steps", "Wait", "adrive", "drive", "with_retries"]

T = TypeVar("T")

_UNKNOWN = object()

#: Yields steps, is sent what came of them, returns the result.
Steps: TypeAlias = Generator[Any, Any, T]


@dataclass(frozen=True)
class Wait:
    """A step: let so many seconds pass."""

    seconds: float


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        kind: as `FetchError.kind`.
        message: what happened, without secrets and without the location.
        passing: True if another attempt may succeed.
        status: the HTTP status, where there was one.
        retry_after: seconds that the server asked to wait.
    """

    kind: str
    message: str
    passing: bool = False
    status: int | None = None
    retry_after: float | None = None


def with_retries(
    attempt: Callable[[], Steps[T | Failure]], retry: Retry, index: Any, show: Callable[[], str]
) -> Steps[T]:
    """Make attempts until one succeeds, fails for good, or the retries are used up; yields `Wait` between them.

    `show()` gives the location for the message; it is asked only after a failure.

    Raises:
        FetchError: the last failure, with the number of attempts made.
    """
    number = 0
    while True:
        outcome = yield from attempt()
        if not isinstance(outcome, Failure):
            return outcome
        if not outcome.passing or number == retry.max_retries:
            raise _error(outcome, number + 1, index, show())
        yield Wait(retry.wait_asked(number, outcome.retry_after))
        number += 1


def _error(failure: Failure, attempts: int, index: Any, location: str) -> FetchError:
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return FetchError(
        f"item {index}: {location}: {failure.message} ({tries})",
        kind=failure.kind,
        index=index,
        location=location,
        attempts=attempts,
        status=failure.status,
    )


def drive(steps: Steps[T], perform: Callable[[Any], Any]) -> T:
    """Run `steps` in this thread; `perform(step)` does one and returns what came of it."""
    outcome: Any = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        outcome = perform(step)


async def adrive(steps: Steps[T], perform: Callable[[Any], Awaitable[Any]], first: tuple[Any, ...] = ()) -> T:
    """Run `steps` on the running event loop; `await perform(step)` does one and returns what came of it.

    What came of the `first` steps is known already: they are not done again.
    """
    known = iter(first)
    outcome: Any = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        outcome = next(known, _UNKNOWN)
        if outcome is _UNKNOWN:
            outcome = await perform(step)
