"""`ProcessPool`: one thread that starts worker processes, gives them tasks, receives results, and replaces the dead.

Note [one thread]
    Everything about the workers belongs to the pool's thread, so there are no locks: other threads append orders to a
    deque and write a byte to a pipe. The thread never blocks on a worker: sockets do not block, and what they do not
    take is sent later. It knows no executor, session or loader, so these can be collected; their finalisers give orders.

Note [two tasks]
    A worker has one task at work and at most one behind it, which hides the way there and back. If the worker ends, only
    the task at work (the worker says which on its page) loses one of its tries.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import signal
import threading
import time
import weakref
from collections import deque
from itertools import count
from typing import Any

from feedline.datasets.protocol import AsyncDataset
from feedline.errors import WorkerDied
from feedline.loader import forks
from feedline.loader.batch import BatchLoader
from feedline.loader.execution.job import Job
from feedline.loader.execution.packing import pack_loader
from feedline.loader.execution.parcel import Parcel
from feedline.loader.execution.portable import PortableError
from feedline.loader.execution.process_seat import Seat
from feedline.loader.execution.second_tries import MAX_TRIES, SecondTries
from feedline.loader.execution.template_process import TemplateProcess
from feedline.loader.execution.threads import Line

__all__ = ["ProcessPool"]

logger = logging.getLogger("feedline")

#: Tasks in one worker: see Note [two tasks].
TASKS_PER_WORKER = 2
#: How many processes that workers come from may end before they are ready.
MAX_TEMPLATES = 2
#: Seconds that workers get to end their item, once they are told to; those of asynchronous datasets close it, too.
END_SECONDS = 1.0
END_ASYNC_SECONDS = 5.0
#: Seconds that all pools together get at interpreter exit.
EXIT_SECONDS = 1.8
#: How often hearts are looked at, when items have a time limit.
LOOK_SECONDS = 0.25
#: Seconds beyond the limit before a worker counts as stuck.
STUCK_GRACE_SECONDS = 1.0

_pools: weakref.WeakSet[ProcessPool] = weakref.WeakSet()


class ProcessPool:
    """Worker processes for one batch loader.

    Args:
        load: what they run.
        num_workers: how many.
        dump_stacks: let `dump_stacks` work; it takes a signal.
    """

    def __init__(self, load: BatchLoader, num_workers: int, dump_stacks: bool) -> None:
        self._load = load
        self._num_workers = num_workers
        items = load.items
        self._limit = items.timeout
        self._fetches_together = items.item_concurrency == 1 and callable(
            getattr(items.dataset, "__getitems__", None)
        )
        self._is_async = callable(getattr(items.dataset, "aclose", None))
        self._second_tries = SecondTries(self._limit, self._is_async)
        self._is_crowded = num_workers >= (os.cpu_count() or 1)
        self._dump_signal = getattr(signal, "SIGUSR1", None) if dump_stacks else None
        self._generation = forks.generation()
        self._lock = threading.Lock()
        self._orders: deque[tuple[str, Any]] = deque()
        self._wake: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._is_packed = False
        self._booting = threading.Event()
        self._closed = False
        # Of the thread from here on: see Note [one thread].
        self._parcel: Parcel | None = None
        self._template: TemplateProcess | None = None
        self._seats: list[Seat] = []
        self._jobs: deque[Job] = deque()
        self._failed_starts = 0
        self._failed_templates = 0
        self._tickets = 0
        self._end: float | None = None
        self._told: set[str] = set()

    # -- any thread

    def begin(self) -> None:
        """Start the process that workers come from, and send it what they run, if that has not been done.

        Raises:
            TypeError: something can't be pickled; the message names it.
            OSError: no process, or no descriptor, can be had.
            RuntimeError: the pool is closed, or there can be no more threads.
        """
        if not self._is_packed:
            with self._lock:
                if self._thread is None:
                    self._start()
                if not self._is_packed:
                    self._pack()

    def submit(self, job: Job) -> None:
        """Queue `job`, starting the pool first if need be; raises what `begin` raises."""
        self.begin()
        self._order("job", job)

    def _start(self) -> None:
        if self._closed:
            raise RuntimeError("the loader is closed")
        self._drop_orders()
        self._end = None
        self._booting = threading.Event()
        self._wake = os.pipe()
        for end in self._wake:
            os.set_blocking(end, False)
        thread = self._thread = threading.Thread(target=self._run, name="feedline-processes", daemon=True)
        _pools.add(self)
        try:
            thread.start()
        except BaseException:
            if thread.ident is None:
                wake, self._wake, self._thread = self._wake, None, None
                for end in wake:
                    os.close(end)
            raise
        # Pickling holds the GIL for long: the new process shall be on its way before that.
        self._booting.wait()

    def _pack(self) -> None:
        thread = self._thread
        assert thread is not None
        try:
            self._order("parcel", pack_loader(self._load, self._order))
        except BaseException:
            self._order("close", 0.0)
            thread.join()
            self._thread = None
            raise
        self._is_packed = True

    def _order(self, kind: str, what: Any) -> None:
        # Also called by finalisers: no lock, and nothing that waits.
        self._orders.append((kind, what))
        wake = self._wake
        if wake is not None and self._generation == forks.generation():
            try:
                os.write(wake[1], b"\0")
            except OSError:
                return  # full: it is awake; closed: it has ended

    def cancel(self, line: Line) -> None:
        """Drop the tasks of `line`; what is at work stops after its item."""
        line.cancel()
        self._order("cancel", line)

    def resize(self, num_workers: int) -> None:
        """Have so many workers from now on."""
        # Also before there is a thread to take orders.
        self._num_workers = num_workers
        self._order("resize", num_workers)

    def process_ids(self) -> list[int]:
        """Return the processes that run, as far as they are known yet."""
        return [seat.pid for seat in list(self._seats) if seat.pid is not None]

    def dump_stacks(self) -> None:
        """Have every worker write the stacks of its threads to stderr."""
        self._order("dump", None)

    def close(self, seconds: float | None = None) -> None:
        """End the workers; they get `seconds` for their item. Does not wait."""
        self._closed = True
        if seconds is None:
            seconds = END_ASYNC_SECONDS if self._is_async else END_SECONDS
        self._order("close", seconds)

    def join(self, seconds: float) -> None:
        """Wait until everything has ended, `seconds` at most."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, seconds))

    def forget(self) -> None:
        """Close what a forked child has of its parent's pool."""
        for seat in self._seats:
            seat.close()
        if self._template is not None:
            self._template.forget()
        if self._parcel is not None:
            self._parcel.close()
        if self._wake is not None:
            for end in self._wake:
                os.close(end)
            self._wake = None

    # -- the pool's thread

    def _run(self) -> None:
        # A Ctrl-C is the main thread's; processes that are started here do not hear of it until they ignore it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            try:
                self._template = self._start_template()
            finally:
                self._booting.set()
            while self._step():
                pass
        except Exception as error:  # a fault of ours: nobody may wait for ever because of it
            logger.exception("the thread that looks after worker processes failed")
            self._refuse_orders(error)
        finally:
            self._shut_down()

    def _start_template(self) -> TemplateProcess | None:
        """Start the process that workers come from; without one, every task that waits gets an error."""
        if self._failed_templates >= MAX_TEMPLATES:
            self._failed_templates -= 1
            self._fail_all(
                RuntimeError(
                    "worker processes can't be started: the process that they come from ends at once "
                    "(stderr tells why); use worker_type='thread' meanwhile"
                )
            )
            return None
        template = None
        try:
            template = TemplateProcess()
            if self._parcel is not None:
                template.equip(self._parcel, self._options())
        except OSError as error:
            if template is not None:
                template.close()
            self._fail_all(RuntimeError(f"no worker process can be started: {error}"))
            return None
        return template

    def _options(self) -> dict[str, Any]:
        return {
            "heartbeat": self._limit is not None,
            "dump_signal": self._dump_signal,
            "preload": [*self._load.preload, *_own_modules(self._load)],
        }

    def _step(self) -> bool:
        """Do one round; false when all is over."""
        self._obey()
        if self._end is not None and not self._seats:
            return False
        if self._end is None:
            self._fill_seats()
            self._assign()
            for seat in self._seats:
                seat.leave()
        self._poll()
        self._look_after()
        return True

    def _obey(self) -> None:
        while self._orders:
            kind, what = self._orders.popleft()
            if kind == "parcel":
                self._parcel = what
                if self._template is not None:
                    self._template.equip(what, self._options())
            elif kind == "texts":
                self._send_texts(what)
            elif kind == "pieces":
                if self._template is not None and self._template.has_lists:
                    self._template.order("pieces", *what)
            elif kind == "job":
                if not what.line.cancelled:
                    self._jobs.append(what)
            elif kind == "cancel":
                self._jobs = deque(job for job in self._jobs if job.line is not what)
                for seat in self._seats:
                    seat.cancel(what)
            elif kind == "resize":
                self._resize(what)
            elif kind == "dump":
                for seat in self._seats:
                    self._signal(seat, self._dump_signal)
            elif kind == "close":
                self._begin_end(what)

    def _send_texts(self, descriptor: int) -> None:
        if self._template is None or not self._template.is_alive:
            os.close(descriptor)
        else:
            self._template.read_texts(descriptor)

    def _resize(self, num_workers: int) -> None:
        """Let the last of the workers that are too many leave, or those stay that have not left yet."""
        self._num_workers = num_workers
        staying = [seat for seat in self._seats if not seat.is_leaving]
        for seat in staying[num_workers:]:
            seat.is_leaving = True

    def _begin_end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._end = end if self._end is None else min(end, self._end)
        self._jobs.clear()
        for seat in self._seats:
            seat.end()
            if not seat.is_ready:
                self._signal(seat, signal.SIGKILL)

    def _signal(self, seat: Seat, number: int | None) -> None:
        if self._template is not None and seat.pid is not None and number is not None:
            self._template.order("signal", seat.pid, number)

    def _fill_seats(self) -> None:
        """Have as many workers as tasks, up to `num_workers`; they stay."""
        wanted = len(self._jobs) + sum(len(seat.jobs) for seat in self._seats)
        if wanted and self._template is None:
            self._template = self._start_template()
        template = self._template
        if template is None or not template.is_alive or self._parcel is None:
            return
        if self._seats and self._is_crowded and not any(seat.is_ready for seat in self._seats):
            # With fewer processors than workers, the first one gets them to itself: the first batch waits for it.
            return
        taken = {seat.number for seat in self._seats}
        for number in count():
            staying = sum(not seat.is_leaving for seat in self._seats)
            if staying >= min(self._num_workers, wanted):
                if staying >= self._num_workers:
                    template.forget_lists()
                return
            if number not in taken:
                try:
                    self._seats.append(Seat(number, template))
                    if self._is_crowded and len(self._seats) == 1:
                        return
                except OSError as error:
                    if not self._seats:
                        self._fail_all(RuntimeError(f"no worker process can be started: {error}"))
                    return

    def _assign(self) -> None:
        while self._jobs:
            ready = [
                seat
                for seat in self._seats
                if seat.is_ready and not seat.is_leaving and len(seat.jobs) < TASKS_PER_WORKER
            ]
            if not ready:
                return
            seat = min(ready, key=lambda seat: len(seat.jobs))
            job = self._jobs.popleft()
            if job.line.cancelled:
                continue
            self._tickets += 1
            seat.give(job, self._tickets)

    def _poll(self) -> None:
        if self._template is not None and not self._template.is_alive:
            # An order that could not be sent told it: nothing will come that could be polled for.
            self._hear_template()
            return
        poll = select.poll()
        assert self._wake is not None
        poll.register(self._wake[0], select.POLLIN)
        if self._template is not None and self._template.is_alive:
            poll.register(self._template.descriptor, self._template.wanted_events())
        by_descriptor = {}
        for seat in self._seats:
            if seat.descriptor is not None:
                by_descriptor[seat.descriptor] = seat
                poll.register(seat.descriptor, seat.wanted_events())
        for descriptor, _ in poll.poll(self._patience()):
            if descriptor == self._wake[0]:
                _drain(descriptor)
            elif descriptor in by_descriptor:
                self._hear(by_descriptor[descriptor])
            elif self._template is not None:
                self._hear_template()

    def _patience(self) -> int | None:
        if self._end is not None:
            return max(0, min(250, int((self._end - time.monotonic()) * 1000) + 1))
        if self._limit is not None and any(seat.jobs for seat in self._seats):
            return int(LOOK_SECONDS * 1000)
        return None

    def _hear(self, seat: Seat) -> None:
        for result in seat.talk():
            if result.refusal is not None and "blocks" not in self._told:
                self._told.add("blocks")
                logger.warning("no shared memory for results (%s): they go through a pipe", result.refusal)
            if result.ticket == 0:
                if result.broken is None:
                    self._failed_starts = 0
                else:
                    self._break(seat, result.broken)
        self._take_back(seat)
        if seat.is_gone and self._end is None:
            # Its socket is closed. If it is not ending by itself, it is of no use all the same.
            self._signal(seat, signal.SIGKILL)

    def _take_back(self, seat: Seat) -> None:
        """Queue what the seat could not receive, to be computed again."""
        self._jobs.extendleft(seat.again)
        seat.again.clear()

    def _break(self, seat: Seat, broken: PortableError) -> None:
        """A worker can't unpickle its work: nor will another."""
        seat.is_broken = True
        error = broken.unpack(seat.name)
        report = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        report.add_note(f"feedline: {seat.name} could not unpickle the dataset and what goes with it")
        self._fail_all(report)

    def _hear_template(self) -> None:
        assert self._template is not None
        for news in self._template.talk():
            kind = news[0]
            if kind == "ready":
                self._failed_templates = 0
            elif kind == "started":
                for seat in self._seats:
                    if seat.number == news[1]:
                        seat.pid = news[2]
                        if self._end is not None:
                            self._signal(seat, signal.SIGKILL)
            elif kind == "failed":
                self._give_up(news[1], news[2])
            else:
                for seat in list(self._seats):
                    if seat.pid == news[1]:
                        self._bury(seat, news[2])
        if not self._template.is_alive:
            self._replace_template()

    def _give_up(self, number: int, why: str) -> None:
        """The system has no more processes to give: make do with those that are there."""
        for seat in list(self._seats):
            if seat.number == number:
                self._seats.remove(seat)
                seat.close()
        if self._seats:
            self._num_workers = len(self._seats)
            logger.warning("only %d worker processes can be started: %s", self._num_workers, why)
        else:
            self._fail_all(RuntimeError(f"no worker process can be started: {why}"))

    def _replace_template(self) -> None:
        """The template ended, and its workers with it."""
        for seat in list(self._seats):
            self._bury(seat, -signal.SIGKILL)
        assert self._template is not None
        self._template.close()
        self._template = None
        # Until one says that it is ready.
        self._failed_templates += 1

    def _bury(self, seat: Seat, code: int) -> None:
        """A worker has ended: what it sent before counts, what it had goes to another one."""
        seat.drain()
        self._take_back(seat)
        ticket, steps = seat.page.ticket, seat.page.steps
        self._seats.remove(seat)
        seat.close()
        if self._end is not None or seat.is_broken:
            return
        logger.info("%s ended (%s)", seat.name, _how(code))
        if not seat.is_ready and seat.pid is not None:
            self._failed_starts += 1
            if self._failed_starts >= MAX_TRIES:
                self._failed_starts = 0
                self._fail_all(
                    WorkerDied(
                        f"{seat.name} {_how(code)} while it was started, as {MAX_TRIES - 1} others before it",
                        type_name="WorkerDied",
                        exit_code=code,
                    )
                )
        allow, how = self._second_tries.allow, _how(code)
        again = [
            job
            for job in seat.jobs.values()
            # What it had not begun lost nothing by its end.
            if job.ticket != ticket or allow(job, seat, job.index_at(steps), how=how, exit_code=code)
        ]
        self._jobs.extendleft(reversed(again))

    def _look_after(self) -> None:
        now = time.monotonic()
        if self._end is not None:
            if now >= self._end:
                for seat in self._seats:
                    self._signal(seat, signal.SIGKILL)
            if now >= self._end + END_SECONDS:
                # Not even killed ones are reported: the template hangs, or is swamped. They end with it.
                self._close_seats()
            return
        if self._limit is None:
            return
        for seat in self._seats:
            patience = self._limit
            if self._fetches_together and seat.page.steps <= 1:
                patience *= max([job.rows for job in seat.jobs.values()], default=1)
            if seat.is_silent(now, patience + STUCK_GRACE_SECONDS):
                seat.is_stuck = True
                self._signal(seat, signal.SIGKILL)

    def _fail_all(self, error: Exception) -> None:
        """Nothing can be computed: every task that waits gets `error`."""
        for job in self._jobs:
            job.fail(error, None)
        self._jobs.clear()

    def _refuse_orders(self, cause: Exception) -> None:
        """Nothing can be computed any more: tasks fail, also those that come, until the pool is closed."""
        assert self._wake is not None
        for seat in self._seats:
            self._jobs.extend(seat.jobs.values())
        self._close_seats()
        poll = select.poll()
        poll.register(self._wake[0], select.POLLIN)
        while self._end is None:
            self._fail_all(RuntimeError(f"there are no worker processes: {type(cause).__name__}: {cause}"))
            poll.poll()
            _drain(self._wake[0])
            self._obey()

    def _drop_orders(self) -> None:
        """Forget what nobody will obey any more, and close what it has open."""
        while self._orders:
            kind, what = self._orders.popleft()
            if kind == "parcel":
                what.close()
            elif kind == "texts":
                os.close(what)

    def _close_seats(self) -> None:
        for seat in self._seats:
            seat.close()
        self._seats.clear()

    def _shut_down(self) -> None:
        self._close_seats()
        if self._template is not None:
            self._template.close()
            self._template = None
        self._drop_orders()
        if self._parcel is not None:
            self._parcel.close()
            self._parcel = None
        wake, self._wake = self._wake, None
        for end in wake or ():
            os.close(end)


def _own_modules(load: BatchLoader) -> set[str]:
    """Return the modules of this package that workers will need for `load`: users' own are imported by each worker."""
    items = load.items
    parts = (items.dataset, items.transform, load.collate_fn)
    names = {getattr(part, "__module__", None) or type(part).__module__ for part in parts}
    own = {name for name in names if name.partition(".")[0] == __name__.partition(".")[0]}
    if isinstance(items.dataset, AsyncDataset):
        own.add("feedline.loader.execution.awaited_items")
    return own


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (often the system, out of memory)" if name == "SIGKILL" else "")


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.forget()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _leave() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    pools = list(_pools)
    for pool in pools:
        pool.close(END_SECONDS)
    for pool in pools:
        pool.join(deadline - time.monotonic())
