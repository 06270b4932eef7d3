"""The drop-in's iterator: torch's limit on the wait for a batch, and torch's warning about streams longer than they say."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from feedline.loader.batch import Outcome, Task
from feedline.loader.execution.protocol import Session
from feedline.loader.iterator import DataLoaderIterator
from feedline.loader.ordering import Cursor
from feedline.loader.progress import Progress

__all__ = ["LengthWatch", "TorchIterator", "WaitLimit"]


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


class LengthWatch:
    """Hands batches on, and warns once more of them come than the length of their stream makes.

    Args:
        deliver: what is done to each batch.
        told_length: `len()` of a stream's loader, if somebody has asked for it.
        progress: where the consumer is.
    """

    def __init__(
        self, deliver: Callable[[Any], Any], told_length: Callable[[], int | None], progress: Progress
    ) -> None:
        self._deliver = deliver
        self._told_length = told_length
        self._progress = progress
        #: Where the consumer stood before the last batch, and how many there were with it. A batch whose hand-over a Ctrl-C
        #: has cut off comes again from the same place, and counts once: see Note [Ctrl-C] in feedline.loader.ordering.
        self._counted: tuple[Cursor | None, int] = (None, 0)

    def __call__(self, value: Any) -> Any:
        """Return what `deliver` makes of a batch."""
        cursor, count = self._counted
        if cursor != self._progress.cursor:
            count += 1
            self._counted = (self._progress.cursor, count)
        told = self._told_length()
        if told is not None and count == told + 1:
            warnings.warn(
                f"the stream's length makes {told} batches (len(loader)), but more are coming: its __len__ is too small",
                UserWarning,
                stacklevel=4,  # behind the two functions of the iterator is the consumer's loop
            )
        return self._deliver(value)


class TorchIterator(DataLoaderIterator):
    """Batches on their way to a training loop written for torch.

    Like its base it moves on as the last thing before a batch is returned, so nothing stands behind that.

    Args:
        deliver: what is done to each batch.
        told_length: `len()` of a stream's loader, if somebody has asked for it.
        progress: where the consumer is.
        parts, options: those of `DataLoaderIterator`.
    """

    def __init__(
        self,
        deliver: Callable[[Any], Any],
        told_length: Callable[[], int | None],
        progress: Progress,
        *parts: Any,
        **options: Any,
    ) -> None:
        super().__init__(progress, *parts, **options)
        self._deliver = LengthWatch(deliver, told_length, progress)

    def _wait(self, cursor: Cursor) -> Outcome | None:
        if isinstance(self._session, WaitLimit):
            self._session.begin()
        return super()._wait(cursor)
