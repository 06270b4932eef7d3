"""`Job`: a task on its way through worker processes, with what is remembered of its tries."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from feedline.loader.batch import Outcome, Task
from feedline.loader.execution.protocol import Known
from feedline.loader.execution.threads import Line
from feedline.loader.failures import attach_note, recorded_index

__all__ = ["Job"]


class Job:
    """One task of one session.

    Args:
        line: the session's; it gets the outcomes.
        session: the session's number.
        task: what is to be loaded; its items, if it has some, are in `body` only.
        body: the task, pickled.

    Attributes:
        ticket: names the present try.
        tries: how many workers have ended with it.
        careful: items that are known to hang, if it is computed item by item; else `None`.
        in_plain: its result may not lie in new blocks.
    """

    __slots__ = ("_task", "body", "careful", "in_plain", "line", "session", "ticket", "tries")

    def __init__(self, line: Line, session: int, task: Task, body: bytes) -> None:
        self.line = line
        self.session = session
        self._task = Task(task.number, task.epoch, task.indices, count=task.count)
        self.body = body
        self.ticket = 0
        self.tries = 0
        self.careful: tuple[int | str, ...] | None = None
        self.in_plain = False

    @property
    def known(self) -> Known:
        """What failed before the session's epoch."""
        return self.line.known

    @property
    def rows(self) -> int:
        """How many items it has."""
        return len(self._task.indices)

    def index_at(self, steps: int) -> Any:
        """Return the item that was begun last, if that can be told from `steps` of its worker's page."""
        # One step for the batch, then one before each item.
        position = steps - 2
        if self._task.count != 1 or not 0 <= position < self.rows:
            return None
        indices: Sequence[Any] = self._task.indices  # type: ignore[assignment]
        index = indices[position]
        return index.item() if isinstance(index, np.generic) else index

    def add_stuck(self, index: Any) -> bool:
        """Remember that `index` hangs; false if that was known."""
        recorded = recorded_index(index)
        known = self.careful or ()
        if recorded in known:
            return False
        self.careful = (*known, recorded)
        return True

    def deliver(self, outcomes: list[Outcome]) -> None:
        """Hand the outcomes to the session."""
        line = self.line
        if line.cancelled:
            return
        for outcome in outcomes:
            line.outcomes.put(outcome)
        line.wake.put(None)

    def fail(self, error: Exception, where: str | None) -> None:
        """End with `error`, a copy for each batch; `where` is told in a note."""
        first, count = self._task.number, self._task.count
        outcomes = []
        for number in range(first, first + count):
            own = _copied(error)
            if where is not None:
                attach_note(own, f"batch {number} of epoch {self._task.epoch}, {where}")
            outcomes.append(Outcome(number, error=own))
        self.deliver(outcomes)


def _copied(error: Exception) -> Exception:
    """Return an error of its own for one batch: notes and tracebacks gather in the object."""
    try:
        own = copy.copy(error)
    except Exception:  # its class can't be made from its arguments
        return error
    own.__cause__ = error.__cause__
    own.__suppress_context__ = error.__suppress_context__
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        own.__notes__ = list(notes)
    return own
