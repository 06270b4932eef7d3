"""The drop-in's iterator: torch's limit on the wait for a batch, and torch's warning about streams longer than they say."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from feedline.loader.batch import Task
from feedline.loader.delivery import DeliveringIterator
from feedline.loader.execution.protocol import Session

__all__ = ["TorchIterator", "WaitLimit"]


class WaitLimit:
    """A session whose `wait` gives up when one batch is waited for longer than `seconds`.

    Raises:
        RuntimeError: as torch's loader; asking again goes on waiting for the same batch.
    """

    def __init__(self, session: Session, seconds: float) -> None:
        self._session = session
        self._seconds = seconds
        self._since: float | None = None
        self.outcomes = session.outcomes

    def begin(self) -> None:
        """The wait for another batch begins."""
        self._since = None

    def submit(self, task: Task) -> None:
        """Hand on."""
        self._session.submit(task)

    def wait(self, seconds: float | None = None) -> None:
        """Wait, no longer than the limit leaves."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        left = self._since + self._seconds - now
        if left <= 0:
            raise RuntimeError(f"DataLoader timed out after {self._seconds:g} seconds")
        self._session.wait(left if seconds is None else min(left, seconds))

    def notify(self) -> None:
        """Hand on."""
        self._session.notify()

    def cancel(self) -> None:
        """Hand on."""
        self._session.cancel()


class TorchIterator(DeliveringIterator):
    """Batches on their way to a training loop written for torch.

    Args:
        deliver: what is done to each batch.
        told_length: `len()` of a stream's loader, if somebody has asked for it.
    """

    def __init__(
        self,
        deliver: Callable[[Any], Any],
        told_length: Callable[[], int | None],
        *parts: Any,
        **options: Any,
    ) -> None:
        super().__init__(deliver, *parts, **options)
        self._told_length = told_length
        self._yielded = 0

    def __next__(self) -> Any:
        """Return the next batch, or raise the error that belongs to it."""
        if isinstance(self._session, WaitLimit):
            self._session.begin()
        value = super().__next__()
        self._yielded += 1
        told = self._told_length()
        if told is not None and self._yielded == told + 1:
            warnings.warn(
                f"the stream's length makes {told} batches (len(loader)), but more are coming: its __len__ is too small",
                UserWarning,
                stacklevel=2,
            )
        return value
