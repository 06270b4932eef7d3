"""Who is told of each batch that a consumer receives: `Observer`, and the callbacks of `DataLoader.on_stats`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from feedline.loader.batch import Outcome
from feedline.loader.stats import LoaderStats

__all__ = ["Monitor", "Observer", "StatsCallback"]

logger = logging.getLogger("feedline")

StatsCallback = Callable[[LoaderStats], object]


class Observer(Protocol):
    """Is told what one iterator does, in the consumer's thread, and only where somebody has asked for it.

    | method | called |
    | --- | --- |
    | `received(outcome)` | for each batch, before it is handed out; after a Ctrl-C perhaps twice for one |
    | `ended()` | when the iterator is at its end or closed; may be called several times |
    """

    def received(self, outcome: Outcome) -> None:
        """A batch is about to be handed out, or its error raised."""
        ...

    def ended(self) -> None:
        """Nothing more comes."""
        ...


class Monitor:
    """Calls back with numbers each `every` batches, and at the end of each epoch.

    An error in the callback is logged once, and the training goes on; the callback is called again next time.

    Args:
        callback: gets the numbers.
        every: batches between two calls.
        stats: returns the numbers.
    """

    def __init__(self, callback: StatsCallback, every: int, stats: Callable[[], LoaderStats]) -> None:
        self._callback = callback
        self._every = every
        self._stats = stats
        self._count = 0
        self._told = 0
        self._has_failed = False

    def received(self, outcome: Outcome) -> None:
        """Count a batch, and call back if it is time to."""
        self._count += 1
        if self._count - self._told >= self._every:
            self._tell()

    def ended(self) -> None:
        """Tell of the batches since the last call."""
        if self._count > self._told:
            self._tell()

    def _tell(self) -> None:
        self._told = self._count
        try:
            self._callback(self._stats())
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "a callback of on_stats() failed; further errors of it are not logged", exc_info=True
                )
