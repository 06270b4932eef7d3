"""How far the consumer of one epoch is. Shared by an iterator and its loader, and outlives the iterator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feedline.loader.ordering import Cursor
from feedline.loader.plan import Plan
from feedline.loader.source import Source

__all__ = ["Position", "Progress"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where an epoch goes on.

    Attributes:
        epoch: which epoch.
        units: units of the global order that are received.
        batch: number of this rank's next batch.
        ahead: batches beyond `batch` that are received, too.
        stream: how a stream with a state of its own is set there.
    """

    epoch: int
    units: int = 0
    batch: int = 0
    ahead: frozenset[int] = frozenset()
    stream: Mapping[str, Any] | None = None


class Progress:
    """Counts received batches.

    Concurrency: one consumer advances it; `position()` may be called from any thread, since what it reads is immutable
    and replaced in one assignment.
    """

    def __init__(self, source: Source, plan: Plan, start: Position) -> None:
        self._source = source
        self._plan: Plan | None = plan
        self._start = start
        self._settled: Position | None = None
        #: The consumer has seen the end.
        self.ended = False
        self.cursor = Cursor(start.batch, start.ahead)

    @property
    def epoch(self) -> int:
        """The epoch that is iterated."""
        return self._start.epoch

    def position(self) -> Position:
        """Return where a run would go on: in this epoch, or at the start of the next one if nothing is left of it."""
        plan, settled = self._plan, self._settled
        if plan is None and settled is not None:
            return settled
        assert plan is not None
        start = self._start
        while True:
            cursor = self.cursor
            try:
                units = start.units + plan.items_before(cursor.next) * self._source.stride
                if self.ended or self._is_finished(plan, cursor, units):
                    return Position(start.epoch + 1)
                stream_state = getattr(plan, "stream_state", None)
                stream = None if stream_state is None else stream_state(cursor.next)
            except LookupError:
                # A stream's plan forgets places that the consumer has passed: it has gone on meanwhile.
                if cursor is self.cursor:
                    raise
                continue
            return Position(start.epoch, units, cursor.next, cursor.ahead, stream)

    def _is_finished(self, plan: Plan, cursor: Cursor, units: int) -> bool:
        end = plan.end()
        if end is None or cursor.next < end:
            return False
        # This rank has nothing left; with tail="exact" another one may still have a batch.
        return self._source.stride == 1 or not self._source.longest_left(self._start.epoch, units)

    def settle(self) -> None:
        """Keep the position only: the plan's order may be large, and a stream's may have a thread that reads."""
        plan = self._plan
        if plan is not None:
            self._settled = self.position()
            close = getattr(plan, "close", None)
            if close is not None:
                close()
            self._plan = None
