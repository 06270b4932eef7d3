"""`ActorPool`: one thread that starts Ray actors, gives them tasks, receives results, and replaces the dead.

Note [one thread]
    Everything about the actors belongs to the pool's thread, so there are no locks: other threads (users of the loader,
    finalisers, Ray's own) put events into one queue. The pool knows no executor, session or loader, so that these can be
    collected.

Note [suspicion]
    An actor has one task at work and at most one behind it, which hides the way there and back. When it dies, nobody can
    tell which of the two killed it: a result may be lost on its way. Both lose a try, and from then on each is computed
    alone on its actor, so the innocent one loses no other. What was begun in it is noted by a `Scribe`, since the actor's
    own memory goes with it.
"""

from __future__ import annotations

import atexit
import logging
import pickle
import re
import threading
import time
import weakref
from collections import deque
from queue import Empty, SimpleQueue
from typing import Any

from feedline.errors import WorkerDied
from feedline.loader.batch import BatchLoader
from feedline.loader.execution import cluster_connection
from feedline.loader.execution.cluster_crew import CONNECTION_SECONDS, Crew, is_suspect
from feedline.loader.execution.cluster_seat import ActorSeat
from feedline.loader.execution.job import Job
from feedline.loader.execution.packing import pickle_loader
from feedline.loader.execution.returned import exception_of, outcome_of
from feedline.loader.execution.second_tries import MAX_TRIES, SecondTries
from feedline.loader.execution.store_memory import StoreMemory
from feedline.loader.execution.threads import Line

__all__ = ["ActorPool"]

logger = logging.getLogger("feedline")

#: Seconds that actors get to end their item, once they are told to; those of asynchronous datasets close it, too.
END_SECONDS = 1.0
END_ASYNC_SECONDS = 5.0
#: Seconds that all pools together get at interpreter exit.
EXIT_SECONDS = 1.8
#: How often actors are asked whether they are alive, when items have a time limit.
LOOK_SECONDS = 0.25

_pools: weakref.WeakSet[ActorPool] = weakref.WeakSet()


class ActorPool:
    """Ray actors for one batch loader.

    Args:
        load: what they run.
        num_workers: how many.
    """

    def __init__(self, load: BatchLoader, num_workers: int) -> None:
        self._load = load
        self._width = num_workers
        items = load.items
        self._limit = items.timeout
        self._fetches_together = items.item_concurrency == 1 and callable(
            getattr(items.dataset, "__getitems__", None)
        )
        self._is_async = callable(getattr(items.dataset, "aclose", None))
        self._lock = threading.Lock()
        self._events: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._parts: list[Any] | None = None
        # Of the thread from here on: see Note [one thread].
        self._memory = StoreMemory(load.pool)
        self.crew = Crew(self._events.put)
        self._second_tries = SecondTries(self._limit, self._is_async)
        self._jobs: deque[Job] = deque()
        self._failed_starts = 0
        self._tickets = 0
        self._end: float | None = None

    # -- any thread

    def submit(self, job: Job) -> None:
        """Queue `job`, starting the pool first if need be.

        Raises:
            TypeError: something can't be pickled; the message names it.
            RuntimeError: the pool is closed.
        """
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._start()
        self._events.put(("job", job))

    def _start(self) -> None:
        if self._closed:
            raise RuntimeError("the loader is closed")
        self._parts = pickle_loader(self._load)
        thread = threading.Thread(target=self._run, name="feedline-ray", daemon=True)
        _pools.add(self)
        thread.start()
        self._thread = thread

    def cancel(self, line: Line) -> None:
        """Drop the tasks of `line`; what is at work stops after its item."""
        line.cancel()
        self._events.put(("cancel", line))

    def resize(self, width: int) -> None:
        """Have `width` actors; those that are too many end after their tasks."""
        self._events.put(("resize", width))

    def dump_stacks(self) -> None:
        """Have every actor tell the stacks of its threads, to the logger."""
        self._events.put(("dump",))

    def close(self, seconds: float | None = None) -> None:
        """End the actors; they get `seconds` for their item. Does not wait."""
        self._closed = True
        if seconds is None:
            seconds = END_ASYNC_SECONDS if self._is_async else END_SECONDS
        self._events.put(("close", seconds))

    def join(self, seconds: float) -> None:
        """Wait until everything has ended, `seconds` at most."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, seconds))

    # -- the pool's thread

    def _run(self) -> None:
        while True:
            try:
                while self._step():
                    pass
                return
            except (
                Exception
            ) as error:  # Ray fails under us, or a fault of ours: nobody may wait for ever because of it
                if self._end is not None:
                    return
                logger.debug("the thread that looks after Ray actors failed", exc_info=True)
                told = self._explain(error)
                self._begin_anew(told)
                self._fail_waiting(told)

    def _step(self) -> bool:
        """Do one round; false when all is over."""
        self._hear(self._patience())
        self._look_after()
        if self._end is not None:
            return bool(self.crew.seats)
        if self._jobs:
            self._connect()
            # As many actors as tasks, up to the width; they stay.
            self.crew.fill(min(self._width, len(self._jobs) + self.crew.jobs))
            self._assign()
        self.crew.let_go(self._width)
        return True

    def _patience(self) -> float | None:
        if self._end is not None:
            return max(0.0, min(LOOK_SECONDS, self._end - time.monotonic()))
        if not self._jobs and not self.crew.jobs:
            return None
        return CONNECTION_SECONDS if self._limit is None else LOOK_SECONDS

    def _hear(self, seconds: float | None) -> None:
        """Wait for an event, and obey all that are there."""
        try:
            event = self._events.get(timeout=seconds)
            while True:
                self._obey(*event)
                # What came may be large: it is not to live on here while the next is waited for.
                del event
                event = self._events.get_nowait()
        except Empty:
            return

    def _obey(self, kind: str, *what: Any) -> None:
        if kind == "job":
            if not what[0].line.cancelled:
                self._jobs.append(what[0])
        elif kind == "cancel":
            self._jobs = deque(job for job in self._jobs if job.line is not what[0])
            for seat in self.crew.seats:
                seat.cancel(what[0])
        elif kind == "resize":
            self._width = what[0]
        elif kind == "dump":
            for seat in self.crew.seats:
                seat.ask_for_stacks()
        elif kind == "close":
            self._begin_end(what[0])
        else:
            self._hear_seat(kind, *what)

    def _hear_seat(self, kind: str, seat: ActorSeat, ticket: int, future: Any) -> None:
        """Something has come from an actor, or it has ended."""
        if seat.is_gone:
            return
        error = future.exception()
        if kind == "ended":
            self.crew.dismiss(seat)
        elif error is not None:
            self._hear_error(seat, ticket, error)
        elif kind == "opened":
            self._opened(seat, *future.result())
        elif kind == "looked":
            seat.asked_at = None
            seat.steps = future.result()[1]
        elif kind == "stacks":
            logger.error("%s", future.result())
        else:
            self._take(seat, seat.jobs.pop(ticket), *future.result())

    # -- connecting and starting

    def _connect(self) -> None:
        if self.crew.connect():
            # Behind Ray's own handler, so that it runs before it.
            atexit.unregister(_leave)
            atexit.register(_leave)
            assert self._parts is not None
            self.crew.equip(self._parts)

    def _opened(self, seat: ActorSeat, pid: int, host: str, broken: bytes | None) -> None:
        seat.pid, seat.host = pid, host
        if broken is None:
            seat.is_ready = True
            self._failed_starts = 0
            return
        # It can't unpickle its work: nor will another.
        error = exception_of(pickle.loads(broken), seat.name)
        error.add_note(f"feedline: {seat.name} could not unpickle the dataset and what goes with it")
        self.crew.dismiss(seat)
        self._fail_waiting(error)

    def _assign(self) -> None:
        while self._jobs:
            seat = self.crew.find_room(self._jobs[0], self._width)
            if seat is None:
                return
            job = self._jobs.popleft()
            if job.line.cancelled:
                continue
            self._tickets += 1
            notes = is_suspect(job) and not self._is_async
            seat.give(job, self._tickets, self.crew.scribe() if notes else None)

    # -- results and deaths

    def _take(self, seat: ActorSeat, job: Job, is_whole: bool, body: bytes, buffers: list[Any]) -> None:
        if job.line.cancelled:
            return
        if not is_whole:
            job.fail(
                exception_of(pickle.loads(body), seat.name),
                f"its task could not be unpickled by {seat.name}",
            )
            return
        try:
            facts: list[dict[str, Any]] = pickle.loads(body, buffers=[self._memory.own(b) for b in buffers])
            outcomes = [outcome_of(fact, seat.name) for fact in facts]
        except BaseException as error:  # user code of any kind runs in here
            report = error if isinstance(error, Exception) else RuntimeError(repr(error))
            job.fail(report, f"it came from {seat.name} and could not be unpickled")
            return
        job.deliver(outcomes)

    def _hear_error(self, seat: ActorSeat, ticket: int, error: BaseException) -> None:
        import ray

        job = seat.jobs.get(ticket)
        if isinstance(error, ray.exceptions.RayActorError):
            self._bury(seat, _why(error))
        elif job is None:
            # An answer that can't come: of no use any more.
            seat.kill()
            self._bury(seat, _why(error))
        elif isinstance(error, ray.exceptions.RayTaskError):
            del seat.jobs[ticket]
            job.fail(RuntimeError(f"{seat.name} could not return the batch: {error}"), seat.name)
        else:
            # Its result is lost: the machine that it lay on is gone.
            del seat.jobs[ticket]
            self._judge(job, seat, _why(error), None)

    def _bury(self, seat: ActorSeat, why: str) -> None:
        """An actor has ended: what it had goes to others."""
        self.crew.remove(seat)
        if self._end is not None:
            return
        logger.info("%s ended (%s)", seat.name, why)
        if not seat.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_TRIES:
                self._failed_starts = 0
                text = f"{seat.name} ended while it was started, as {MAX_TRIES - 1} others before it: {why}"
                self._fail_waiting(WorkerDied(text, type_name="WorkerDied", exit_code=None))
        for ticket, job in reversed(seat.jobs.items()):
            self._judge(job, seat, why, self.crew.last_begun(ticket, job))
        seat.jobs.clear()

    def _judge(self, job: Job, seat: ActorSeat, why: str, index: Any) -> None:
        """Queue `job` to be computed again, or end it with an error."""
        if job.line.cancelled:
            return
        if self._second_tries.allow(job, seat, index, how="ended", why=f" ({why})"):
            self._jobs.appendleft(job)

    # -- looking after them

    def _look_after(self) -> None:
        now = time.monotonic()
        if self._end is not None:
            if now >= self._end or not cluster_connection.is_connected():
                for seat in list(self.crew.seats):
                    self.crew.dismiss(seat)
            return
        if self.crew.is_cut_off(now):
            self._begin_anew(_shut_down())
        self.crew.place(now)
        if self._limit is not None:
            for seat in self.crew.find_stuck(now, self._limit, fetches_together=self._fetches_together):
                seat.is_stuck = True
                seat.kill()
                self._bury(seat, "it let nothing else run")

    def _begin_end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        first = self._end is None
        self._end = end if self._end is None else min(end, self._end)
        self._jobs.clear()
        if first:
            self.crew.end()

    def _fail_waiting(self, error: Exception) -> None:
        """Nothing can be computed: every task that waits gets `error`."""
        for job in self._jobs:
            job.fail(error, None)
        self._jobs.clear()

    def _explain(self, error: Exception) -> Exception:
        """Return what is to be told of `error`: without the Ray that knew them, objects fail in ways of their own."""
        return _shut_down() if self.crew.is_cut_off(time.monotonic(), at_once=True) else error

    def _begin_anew(self, error: Exception) -> None:
        """All actors are lost, and what they had gets `error`; the next task has others, of a new connection if need be."""
        for job, worker in self.crew.abandon():
            job.fail(error, worker)


def _shut_down() -> RuntimeError:
    return RuntimeError("Ray was shut down while it computed the batch")


def _why(error: BaseException) -> str:
    """Return the one sentence of Ray's report that tells what happened."""
    if "creation task" in str(error):
        # A traceback stands behind it: that feedline is not installed over there, most likely.
        return f"it could not be made: {str(error).strip().splitlines()[-1]}"
    text = " ".join(str(error).split())
    found = re.search(r"(Worker exit type: .*?|The actor is dead because .*?)\.(?: |$)", text)
    return found[1] if found else f"{type(error).__name__}: {text}"[:300]


def _leave() -> None:
    """At exit, before Ray's own end: close what datasets have open, cancel what is at work."""
    deadline = time.monotonic() + EXIT_SECONDS
    pools = list(_pools)
    for pool in pools:
        pool.close(END_SECONDS)
    for pool in pools:
        pool.join(deadline - time.monotonic())
