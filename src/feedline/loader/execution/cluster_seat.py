"""`ActorSeat`: the owner's side of one Ray actor. When the actor ends, its seat goes with it, and a new one is made."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from feedline.loader.execution.cluster_actor import CONTROL, LoaderActor, Order, Scribe, actor_name
from feedline.loader.execution.job import Job
from feedline.loader.execution.threads import Line

__all__ = ["ActorSeat", "start_scribe"]

#: Takes (kind, seat, ticket, future) when something has come from an actor; called on a thread of Ray's.
Tell = Callable[[tuple[str, Any, int, Any]], None]


class ActorSeat:
    """One actor, from its start on.

    Args:
        number: the worker's.
        parts: reference of what it runs.
        tell: hears of everything that comes.
        claims_cpu: whether it waits for a free processor; it is shared once the actor is there.

    Attributes:
        pid, host: its process, once that is told.
        jobs: what it has, by ticket, in order.
        is_ready: it has unpickled what it runs.
        is_gone: it has ended, or is not used any more.
        is_stuck: it was ended for that.
        asked_at: when it was asked whether it is alive, if it has not answered yet.
        since: when it was started.
    """

    def __init__(self, number: int, parts: Any, tell: Tell, now: float, *, claims_cpu: bool) -> None:
        import ray

        self.number = number
        self.pid: int | None = None
        self.host: str | None = None
        self.jobs: dict[int, Job] = {}
        self.is_ready = self.is_gone = self.is_stuck = False
        self.asked_at: float | None = None
        self.steps = 0
        self.since = now
        self.claims_cpu = claims_cpu
        self._tell = tell
        self._session = 0
        self._known_session = 0
        remote = ray.remote(concurrency_groups={CONTROL: 1})(LoaderActor)
        places = [os.path.abspath(place) for place in sys.path]
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        if not claims_cpu:
            options["num_cpus"] = 0
        self._actor = remote.options(**options).remote(number)
        self._load = self._actor.load
        self._hear("opened", 0, self._actor.open.remote(parts, places))

    @property
    def name(self) -> str:
        """How it is called in notes and messages."""
        return actor_name(self.number, self.pid, self.host)

    def _hear(self, kind: str, ticket: int, reference: Any) -> None:
        tell = self._tell
        reference.future().add_done_callback(lambda future: tell((kind, self, ticket, future)))

    def give(self, job: Job, ticket: int, scribe: Any) -> None:
        """Send a job."""
        job.ticket = ticket
        self.jobs[ticket] = job
        known = None
        if job.known and self._known_session != job.session:
            self._known_session = job.session
            known = dict(job.known)
        head = pickle.dumps(Order(ticket, job.session, known, job.careful), protocol=5)
        arguments = (head, job.body) if scribe is None else (head, job.body, scribe)
        self._hear("came", ticket, self._load.remote(*arguments))

    def cancel(self, line: Line) -> None:
        """Let the actor stop what it does for `line` after its item."""
        for ticket, job in self.jobs.items():
            if job.line is line:
                self._control("cancel", ticket)

    def ask(self, now: float) -> None:
        """Ask whether it is alive, if it is not being asked already."""
        if self.asked_at is None:
            self.asked_at = now
            self._hear("looked", 0, self._control("look"))

    def ask_for_stacks(self) -> None:
        """Ask what its threads do."""
        self._hear("stacks", 0, self._control("stacks"))

    def _control(self, method: str, *arguments: Any) -> Any:
        return getattr(self._actor, method).options(concurrency_group=CONTROL).remote(*arguments)

    def end(self) -> None:
        """Let the actor stop after its item, and close what it has open."""
        for ticket in self.jobs:
            self._control("cancel", ticket)
        self._hear("ended", 0, self._actor.end.remote())

    def kill(self) -> None:
        """End the actor at once."""
        import ray

        self.is_gone = True
        ray.kill(self._actor)


def start_scribe() -> Any:
    """Return a new `Scribe` on the cluster."""
    import ray

    return ray.remote(num_cpus=0)(Scribe).remote()
