"""What runs on a Ray cluster: an actor takes tasks, runs `BatchLoader.load`, and returns what came of it.

Note [threads of an actor]
    Tasks run one after the other on one thread; `CONTROL` is a thread beside it, on which an actor hears that a task is
    cancelled, and by whose answers its owner knows that it is alive, while a task runs. Words that both use are assigned
    in single steps.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.collate.buffers import BufferPool
from feedline.datasets.protocol import AsyncDataset
from feedline.loader.batch import BatchLoader, Outcome, Run
from feedline.loader.execution.awaited_items import AwaitedItems
from feedline.loader.execution.handoff import OUT_OF_BAND_BYTES, dump_back, load_out
from feedline.loader.execution.parcel import unpickle_loader
from feedline.loader.execution.portable import PortableError
from feedline.loader.execution.process_items import run_task
from feedline.loader.execution.returned import dump_outcomes, tell_unsendable
from feedline.loader.execution.watchdog import stacks_of_threads

__all__ = ["CONTROL", "LoaderActor", "Order", "Returned", "Scribe", "actor_name"]

#: The concurrency group of what is asked beside a task.
CONTROL = "control"
#: Cancelled tasks that an actor remembers.
MAX_CANCELLED = 64
#: Seconds that an actor waits for a note to be taken.
NOTE_SECONDS = 5.0

#: (whether all went well; outcomes, or a `PortableError`, pickled; large memory that goes with them).
Returned = tuple[bool, bytes, list[npt.NDArray[np.uint8]]]


def actor_name(number: int, pid: int | None, host: str | None) -> str:
    """Return how an actor is called in notes and messages."""
    return f"Ray actor {number}" + ("" if pid is None else f" (pid {pid} on {host})")


@dataclass(slots=True)
class Order:
    """What goes to an actor along with a pickled task.

    Attributes:
        ticket: names this try of the task.
        session: names the iterator.
        known: items that failed in earlier epochs, if this actor has not got them for `session` yet.
        careful: load item by item, and take these (as recorded) for timed out; `None` for the usual way.
    """

    ticket: int
    session: int
    known: Any
    careful: tuple[int | str, ...] | None


class LoaderActor:
    """One worker.

    Args:
        number: which of the loader's workers it is.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._name = actor_name(number, None, None)
        self._load: BatchLoader | None = None
        self._awaited: AwaitedItems | None = None
        self._known: tuple[int, Any] = (0, {})
        self._cancelled: dict[int, None] = {}
        self._at: tuple[int, int] = (0, 0)

    def open(self, parts: list[npt.NDArray[np.uint8]], places: list[str]) -> tuple[int, str, bytes | None]:
        """Unpickle what is to be run; return (process id, host, an error if that fails).

        Args:
            parts: as `pickle_loader` made them, read-only memory of the object store.
            places: where the program finds its modules; used here as far as they are on this machine, too.
        """
        import ray

        sys.path += [place for place in places if place not in sys.path and os.path.exists(place)]
        pid, host = os.getpid(), str(ray.util.get_node_ip_address())
        self._name = actor_name(self._number, pid, host)
        try:
            load = unpickle_loader(parts)
            load.enter_worker(self._number)
        except BaseException as error:  # user code of any kind runs in here
            return pid, host, pickle.dumps(PortableError.of(error))
        load.pool = BufferPool()
        if isinstance(load.items.dataset, AsyncDataset):
            self._awaited = AwaitedItems(load.items)
        self._load = load
        return pid, host, None

    def load(self, head: bytes, body: bytes, scribe: Any = None) -> Returned:
        """Run one task.

        Args:
            head: an `Order`, pickled: each argument of a remote call costs as much as a small batch.
            body: the task, pickled.
            scribe: a `Scribe` that is told of each item before it begins; `None` for a task that is not under suspicion.
        """
        order: Order = pickle.loads(head)
        ticket = order.ticket
        if order.known is not None:
            self._known = (order.session, order.known)
        self._at = (ticket, 0)
        try:
            return self._run(order, scribe, body)
        except Exception as error:  # the task can't be unpickled here
            return False, pickle.dumps(PortableError.of(error)), []
        finally:
            self._at = (0, 0)
            self._cancelled.pop(ticket, None)

    def _run(self, order: Order, scribe: Any, body: bytes) -> Returned:
        ticket = order.ticket

        def cancelled() -> bool:
            # Asked before each item.
            self._at = (ticket, self._at[1] + 1)
            if scribe is not None:
                _take_note(scribe, ticket, self._at[1])
            return ticket in self._cancelled

        if ticket in self._cancelled:
            return True, dump_back([]), []
        assert self._load is not None
        session, known = self._known
        run = Run(self._name, cancelled=cancelled, known=known if session == order.session else {})
        outcomes = run_task(
            self._load, self._awaited, load_out(body), run, order.careful, lambda: ticket in self._cancelled
        )
        try:
            return _packed(outcomes)
        except Exception as error:
            return _packed([tell_unsendable(outcome, error, self._name) for outcome in outcomes])

    def cancel(self, ticket: int) -> None:
        """Let task `ticket` stop after its item."""
        self._cancelled[ticket] = None
        while len(self._cancelled) > MAX_CANCELLED:
            del self._cancelled[next(iter(self._cancelled))]

    def look(self) -> tuple[int, int]:
        """Return (the task at work, 0 for none; how often its next item was begun)."""
        return self._at

    def stacks(self) -> str:
        """Return what the threads of this process do."""
        return f"{self._name}:\n{stacks_of_threads()}"

    def end(self) -> None:
        """Close what is open: threads, the event loop, the asynchronous dataset."""
        if self._load is not None:
            self._load.close()
        if self._awaited is not None:
            self._awaited.close()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()


class Scribe:
    """Remembers what an actor begins, when an actor that does it again may not live to tell."""

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}

    def note(self, ticket: int, steps: int) -> None:
        """Task `ticket` has begun its next item for the `steps`th time."""
        self._steps[ticket] = steps

    def last(self, ticket: int) -> int:
        """Return what was noted last of `ticket`, 0 if nothing was."""
        return self._steps.pop(ticket, 0)


def _take_note(scribe: Any, ticket: int, steps: int) -> None:
    import ray

    try:
        # Waited for: behind this line the process may be gone.
        ray.get(scribe.note.remote(ticket, steps), timeout=NOTE_SECONDS)
    except (ray.exceptions.RayError, TimeoutError):
        return  # then nobody will know which item it was; the batch matters more


def _packed(outcomes: list[Outcome]) -> Returned:
    """Return the outcomes as Ray takes them without a copy of its own: large memory as arrays, apart from the stream."""
    buffers: list[npt.NDArray[np.uint8]] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND_BYTES:
            return True
        buffers.append(np.frombuffer(raw, np.uint8))
        return False

    return True, dump_outcomes(outcomes, take), buffers
