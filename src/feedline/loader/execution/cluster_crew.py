"""`Crew`: the Ray actors of one pool, from the connection that they need to their end.

It knows what an actor has in hand, and nothing of what becomes of that: see `cluster_pool`, whose thread all of this belongs to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from feedline.loader.execution import cluster_connection
from feedline.loader.execution.cluster_seat import ActorSeat, Tell, start_scribe
from feedline.loader.execution.job import Job

__all__ = ["Crew", "is_suspect"]

logger = logging.getLogger("feedline")

#: Tasks in one actor: see Note [suspicion] in `cluster_pool`.
TASKS_PER_ACTOR = 2
#: How often it is looked whether Ray is still there, while something is waited for.
CONNECTION_SECONDS = 1.0
#: Seconds beyond the limit before an actor counts as stuck: its answers come over a network.
STUCK_GRACE_SECONDS = 2.0
#: Seconds that the first actor waits for a free processor before it does without one of its own.
PLACE_SECONDS = 10.0
#: Seconds that the scribe gets to answer.
SCRIBE_SECONDS = 5.0


class Crew:
    """The actors, those that are starting included.

    Args:
        tell: hears of everything that comes from them; called on threads of Ray's.

    Attributes:
        seats: theirs, in the order in which they were started.
    """

    def __init__(self, tell: Tell) -> None:
        self.seats: list[ActorSeat] = []
        self._tell = tell
        self._connection: str | None = None
        self._parcel: Any = None
        self._scribe: Any = None
        self._looked_at = 0.0

    # -- the connection

    def connect(self) -> bool:
        """Join Ray, or start it, unless that is done; tell whether it had to be."""
        if self._connection is not None:
            return False
        self._connection = cluster_connection.connect()
        return True

    def equip(self, parts: Sequence[Any]) -> None:
        """Store what actors run where all of them find it."""
        import ray

        self._parcel = ray.put([_as_array(part) for part in parts])

    def is_cut_off(self, now: float, *, at_once: bool = False) -> bool:
        """Tell whether Ray was shut down since, or is another one by now.

        Whether there is one is asked each time; which one, unless `at_once`, once a second at most.
        """
        if self._connection is None:
            return False
        # To send something without a Ray would start one, with all that it prints.
        if not cluster_connection.is_connected():
            return True
        # The question costs more than a small batch. After a while without work it is asked before anything is sent.
        if now - self._looked_at < CONNECTION_SECONDS and not at_once:
            return False
        self._looked_at = now
        return cluster_connection.connection() != self._connection

    def abandon(self) -> list[tuple[Job, str]]:
        """All actors are lost: return what they had, and whose it was. The next ones are of a new connection."""
        lost = [(job, seat.name) for seat in self.seats for job in seat.jobs.values()]
        for seat in self.seats:
            seat.is_gone = True
        self.seats.clear()
        self._connection = self._parcel = self._scribe = None
        return lost

    # -- who is there

    @property
    def jobs(self) -> int:
        """How many tasks actors have in hand."""
        return sum(len(seat.jobs) for seat in self.seats)

    def fill(self, wanted: int) -> None:
        """Start actors until there are `wanted`."""
        taken = {seat.number for seat in self.seats}
        for number in count():
            if len(self.seats) >= wanted:
                return
            if number not in taken:
                self._start(number, claims_cpu=True)

    def _start(self, number: int, *, claims_cpu: bool) -> None:
        now = time.monotonic()
        self.seats.append(ActorSeat(number, self._parcel, self._tell, now, claims_cpu=claims_cpu))

    def place(self, now: float) -> None:
        """Where all processors are taken, one actor does without: whoever holds them may be waiting for its batches."""
        if not self.seats or any(seat.is_ready or not seat.claims_cpu for seat in self.seats):
            return
        seat = self.seats[0]
        if now - seat.since > PLACE_SECONDS:
            logger.warning(
                "no Ray actor has got a free processor for %g s: one does without, the others wait for more",
                PLACE_SECONDS,
            )
            self.dismiss(seat)
            self._start(seat.number, claims_cpu=False)

    def find_room(self, job: Job, width: int) -> ActorSeat | None:
        """Return who takes `job` best, of the first `width`; `None` if all have enough."""
        most = 1 if is_suspect(job) else TASKS_PER_ACTOR
        # Those beyond the width get nothing more.
        ready = [seat for seat in self.seats[:width] if seat.is_ready and _has_room(seat, most)]
        return min(ready, key=lambda seat: len(seat.jobs), default=None)

    def find_stuck(self, now: float, limit: float, *, fetches_together: bool) -> list[ActorSeat]:
        """Return the actors that have not answered within `limit` an item, and ask the others whether they are alive."""
        stuck = []
        for seat in self.seats:
            if not seat.is_ready or not seat.jobs:
                continue
            patience = limit
            if fetches_together and seat.steps <= 1:
                patience *= max(job.rows for job in seat.jobs.values())
            if seat.asked_at is not None and now - seat.asked_at > patience + STUCK_GRACE_SECONDS:
                stuck.append(seat)
            else:
                seat.ask(now)
        return stuck

    # -- what they have begun

    def scribe(self) -> Any:
        """Return who notes what is begun."""
        if self._scribe is None:
            self._scribe = start_scribe()
        return self._scribe

    def last_begun(self, ticket: int, job: Job) -> Any:
        """Return the item that was begun last, if that was noted."""
        import ray

        if self._scribe is None or not is_suspect(job):
            return None
        try:
            return job.index_at(ray.get(self._scribe.last.remote(ticket), timeout=SCRIBE_SECONDS))
        except (ray.exceptions.RayError, TimeoutError):
            self._scribe = None
            return None

    # -- their end

    def remove(self, seat: ActorSeat) -> None:
        """An actor has ended."""
        seat.is_gone = True
        self.seats.remove(seat)

    def dismiss(self, seat: ActorSeat) -> None:
        """End an actor whose work is done."""
        self.remove(seat)
        if cluster_connection.is_connected():
            seat.kill()

    def let_go(self, width: int) -> None:
        """End actors beyond `width`, once they have nothing in hand."""
        surplus = len(self.seats) - width
        for seat in [seat for seat in reversed(self.seats) if not seat.jobs][: max(0, surplus)]:
            self.dismiss(seat)

    def end(self) -> None:
        """Let the actors stop after their item, and close what they have open; those that are starting end at once."""
        if not cluster_connection.is_connected():
            return
        for seat in list(self.seats):
            if seat.is_ready:
                seat.end()
            else:
                self.dismiss(seat)
        if self._scribe is not None:
            import ray

            ray.kill(self._scribe)
            self._scribe = None


def is_suspect(job: Job) -> bool:
    """Tell whether `job` may have ended an actor: it is computed alone from then on."""
    return job.tries > 0 or job.careful is not None


def _has_room(seat: ActorSeat, most: int) -> bool:
    return len(seat.jobs) < most and not any(map(is_suspect, seat.jobs.values()))


def _as_array(part: Any) -> Any:
    """Return memory as Ray shares it without a copy for each actor."""
    import numpy as np

    return np.frombuffer(part, np.uint8)
