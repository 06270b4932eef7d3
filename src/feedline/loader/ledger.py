"""`Ledger`: keeps what failed, and ends a run with too many failures."""

from __future__ import annotations

from collections.abc import Callable

from feedline.errors import TooManyFailures
from feedline.loader.batch import Outcome
from feedline.loader.failures import Failure

__all__ = ["Ledger"]


class Ledger:
    """Keeps what failed, and ends a run with too many failures."""

    def __init__(
        self, failures: list[Failure], max_failures: int | float | None, epoch_items: Callable[[], int]
    ) -> None:
        self._failures = failures
        self._max = max_failures
        self._epoch_items = epoch_items

    def __call__(self, outcome: Outcome, epoch: int) -> None:
        """Record what failed in `outcome`; raises `TooManyFailures` from the last one if that is too much."""
        if not outcome.failures:
            return
        self._failures.extend(outcome.failures)
        if self._max is None:
            return
        allowed = self._max * self._epoch_items() if isinstance(self._max, float) else self._max
        if len(self._failures) > allowed:
            last = self._failures[-1]
            told = f"{self._max:g} of the items" if isinstance(self._max, float) else str(self._max)
            raise TooManyFailures(
                f"{len(self._failures)} items failed, max_failures={told}; the last one was item "
                f"{last.index!r} of batch {last.batch}, epoch {last.epoch}: {last.error}"
            ) from outcome.cause
