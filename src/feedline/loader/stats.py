"""What happened, in numbers."""

from __future__ import annotations

from feedline.loader.batch import Outcome

__all__ = ["Tally"]


class Tally:
    """Sums over the batches that a loader has delivered.

    Concurrency: several iterators of one loader may add at once; a sum may then miss one, which a statistic can bear.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.items = 0
        self.failed_batches = 0
        self.failed_items = 0
        self.fetch_seconds = 0.0
        self.transform_seconds = 0.0
        self.collate_seconds = 0.0
        self.wait_seconds = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one batch."""
        self.batches += 1
        self.items += len(outcome.indices)
        self.fetch_seconds += outcome.fetch_seconds
        self.transform_seconds += outcome.transform_seconds
        self.collate_seconds += outcome.collate_seconds
        if outcome.error is not None:
            self.failed_batches += 1
        if outcome.failures:
            self.failed_items += len(outcome.failures)

    def waited(self, seconds: float) -> None:
        """Count time that the consumer waited for a batch."""
        self.wait_seconds += seconds
