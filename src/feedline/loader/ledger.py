"""`Ledger`: keeps what failed, and ends a run with too many failures; and which of it is not tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from feedline.errors import TooManyFailures
from feedline.loader.batch import Outcome
from feedline.loader.failures import ErrorPolicy, Failure, decide

__all__ = ["Ledger", "known_failures"]


#: Failures at the end of the ledger among which one that may be there already is looked for.
RECENT = 1000


class Ledger:
    """Keeps what failed, and ends a run with too many failures."""

    def __init__(
        self, failures: list[Failure], max_failures: int | float | None, epoch_items: Callable[[int], int]
    ) -> None:
        self._failures = failures
        self._max = max_failures
        self._epoch_items = epoch_items

    def __call__(self, outcome: Outcome, epoch: int) -> None:
        """Record what failed in `outcome`; raises `TooManyFailures` from the last one if that is too much."""
        if not outcome.failures:
            return
        if not self._has(outcome.failures[0]):
            self._failures.extend(outcome.failures)
        if self._max is None:
            return
        count, allowed, told = self._counted(epoch)
        if count > allowed:
            last = outcome.failures[-1]
            raise TooManyFailures(
                f"{count} items failed, max_failures={told}; the last one was item "
                f"{last.index!r} of batch {last.batch}, epoch {last.epoch}: {last.error}"
            ) from outcome.cause

    def _has(self, failure: Failure) -> bool:
        # Recorded, and then a Ctrl-C came before the batch was delivered: see Note [Ctrl-C] in ordering. Others may have
        # recorded since, but not many.
        return any(recorded is failure for recorded in self._failures[-RECENT:])

    def _counted(self, epoch: int) -> tuple[int, float, str]:
        """Return how many items failed, how many may, and the limit in words: a fraction is of one epoch's items."""
        if not isinstance(self._max, float):
            assert self._max is not None
            return len(self._failures), self._max, str(self._max)
        count = sum(failure.epoch == epoch for failure in self._failures)
        return count, self._max * self._epoch_items(epoch), f"{self._max:g} of the epoch's items"


def known_failures(failures: Iterable[Failure], policy: ErrorPolicy, epoch: int) -> dict[int | str, Failure]:
    """Return the failures of epochs before `epoch` whose items are not to be tried again, by index.

    A callable policy is asked anew about each of them; where it says "raise", the item is tried again.
    """
    if policy == "raise":
        return {}
    return {
        failure.index: failure
        for failure in failures
        if failure.epoch < epoch and _is_left_out(policy, failure)
    }


def _is_left_out(policy: ErrorPolicy, failure: Failure) -> bool:
    try:
        return decide(policy, failure) != "raise"
    except Exception:  # out of the user's policy: tried again, the item's batch will tell
        return False
