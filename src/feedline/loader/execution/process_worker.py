"""What runs in a worker process: it takes tasks from its socket, runs `BatchLoader.load`, and sends what came of it."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import struct
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.datasets.protocol import AsyncDataset
from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.loader.execution.channel import MAX_DESCRIPTORS, receive, send
from feedline.loader.execution.control import ControlPage
from feedline.loader.execution.handoff import OUT_OF_BAND_BYTES, load_out
from feedline.loader.execution.parcel import Parcel, load_parcel
from feedline.loader.execution.portable import PortableError
from feedline.loader.execution.process_items import run_task
from feedline.loader.execution.returned import dump_outcomes, tell_unsendable
from feedline.loader.execution.shared_memory import ALIGNMENT_BYTES, MIN_BYTES, WorkerMemory

if TYPE_CHECKING:
    from feedline.loader.execution.awaited_items import AwaitedItems

__all__ = ["Assignment", "Result", "join_parts", "serve", "split_parts"]

HEARTBEAT_SECONDS = 0.2
_LENGTH = struct.Struct("<Q")


@dataclass(slots=True)
class Assignment:
    """What goes to a worker along with a pickled task.

    Attributes:
        ticket: names this try of the task.
        session: names the iterator.
        known: items that failed in earlier epochs, if this worker has not got them for `session` yet.
        careful: load item by item, and take these (as recorded) for timed out; `None` for the usual way.
        in_plain: send nothing in new blocks: the owner could not map them.
        returned: blocks that the consumer sees no more.
        unmapped: blocks that are of no use to it: it could not map them, or shares them with a forked child.
    """

    ticket: int
    session: int
    known: Any
    careful: tuple[int | str, ...] | None
    in_plain: bool
    returned: list[int]
    unmapped: list[int]


@dataclass(slots=True)
class Result:
    """What a worker says; the outcomes themselves are pickled behind it.

    Attributes:
        ticket: whose outcomes these are; 0 with the first message.
        buffers: (block, offset, length) of each buffer; block -1 for bytes that follow in the message.
        news: (block, capacity) of blocks whose descriptors come along.
        dropped: blocks that are gone.
        refusal: why there was no block, when that is news.
        broken: why the task can't be done; with ticket 0, why the worker can't work at all.
    """

    ticket: int
    buffers: list[tuple[int, int, int]] = field(default_factory=list)
    news: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    refusal: str | None = None
    broken: PortableError | None = None


def join_parts(head: Any, body: bytes) -> list[bytes]:
    """Return `head`, pickled, and `body` as the parts of a message."""
    pickled = pickle.dumps(head, protocol=5)
    return [_LENGTH.pack(len(pickled)) + pickled + _LENGTH.pack(len(body)), body]


def split_parts(message: bytearray) -> tuple[Any, memoryview, memoryview]:
    """Return (head, body, what follows) of a message."""
    view = memoryview(message)
    (length,) = _LENGTH.unpack_from(view)
    start = _LENGTH.size + length
    (size,) = _LENGTH.unpack_from(view, start)
    head = pickle.loads(view[_LENGTH.size : start])
    start += _LENGTH.size
    return head, view[start : start + size], view[start + size :]


def serve(number: int, channel: socket.socket, page: ControlPage, parcel: Parcel, heartbeat: bool) -> None:
    """Work until the socket is closed by the other end."""
    if heartbeat:
        threading.Thread(target=_beat, args=(page,), name="feedline-heartbeat", daemon=True).start()
    name = f"worker process {number} (pid {os.getpid()})"
    # Millions of new objects are no garbage, and need not be looked at again.
    gc.disable()
    try:
        load = load_parcel(parcel)
        load.enter_worker(number)
    except BaseException as error:
        broken = PortableError.of(error)
        send(channel, join_parts(Result(0, broken=broken), b""))
        return
    gc.freeze()
    gc.enable()
    parcel.close()
    worker = _Worker(name, channel, page, load)
    send(channel, join_parts(Result(0), b""))
    try:
        worker.work()
    finally:
        worker.close()


def _beat(page: ControlPage) -> None:
    never = threading.Event()
    while True:
        page.beat()
        never.wait(HEARTBEAT_SECONDS)


class _Worker:
    def __init__(self, name: str, channel: socket.socket, page: ControlPage, load: BatchLoader) -> None:
        self._name = name
        self._channel = channel
        self._page = page
        self._load = load
        self._memory = WorkerMemory()
        load.pool = self._memory  # type: ignore[assignment]
        self._known: tuple[int, Any] = (0, {})
        self._awaited: AwaitedItems | None = None
        if isinstance(load.items.dataset, AsyncDataset):
            from feedline.loader.execution.awaited_items import AwaitedItems

            self._awaited = AwaitedItems(load.items)

    def work(self) -> None:
        while True:
            try:
                message, _ = receive(self._channel)
            except EOFError:
                return
            assignment, body, _ = split_parts(message)
            self._memory.give_back(assignment.returned, assignment.unmapped)
            self._page.begin(assignment.ticket)
            if assignment.known is not None:
                self._known = (assignment.session, assignment.known)
            try:
                outcomes = self._outcomes(assignment, body)
            except Exception as error:  # the task can't be unpickled here
                send(
                    self._channel, join_parts(Result(assignment.ticket, broken=PortableError.of(error)), b"")
                )
            else:
                self._send(assignment, outcomes)
                del outcomes
            # Before the next task comes: what dies in between is not to blame for this one.
            self._page.begin(0)
            # Nothing of the last batch may live on here while the next task is waited for.
            del message, body, assignment

    def _outcomes(self, assignment: Assignment, body: memoryview) -> list[Outcome]:
        ticket, page = assignment.ticket, self._page
        if page.is_cancelled(ticket):
            return []

        def cancelled() -> bool:
            # Asked before each item.
            page.step()
            return page.is_cancelled(ticket)

        session, known = self._known
        run = Run(self._name, cancelled=cancelled, known=known if session == assignment.session else {})
        task: Task = load_out(body)
        return run_task(
            self._load, self._awaited, task, run, assignment.careful, lambda: page.is_cancelled(ticket)
        )

    def _send(self, assignment: Assignment, outcomes: list[Outcome]) -> None:
        """Send the outcomes; one that can't be pickled is told as an error."""
        try:
            parts, descriptors = self._pack(assignment, outcomes)
        except Exception as error:
            told = [tell_unsendable(outcome, error, self._name) for outcome in outcomes]
            parts, descriptors = self._pack(assignment, told)
        try:
            send(self._channel, parts, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _pack(self, assignment: Assignment, outcomes: list[Outcome]) -> tuple[list[bytes], list[int]]:
        spread = _Spread(self._memory, assignment.in_plain)
        body = dump_outcomes(outcomes, spread.take)
        raw = spread.settle()
        news, descriptors, dropped = self._memory.take_news(spread.used)
        refusal, self._memory.refusal = self._memory.refusal, None
        head = Result(
            assignment.ticket, spread.buffers, news, dropped, None if refusal is None else str(refusal)
        )
        return [*join_parts(head, body), *raw], descriptors

    def close(self) -> None:
        self._load.close()
        if self._awaited is not None:
            self._awaited.close()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()


class _Spread:
    """Where the buffers of one message go: blocks that hold them already, one block for the others, or the pipe."""

    def __init__(self, memory: WorkerMemory, in_plain: bool) -> None:
        self._memory = memory
        self._in_plain = in_plain
        self.buffers: list[tuple[int, int, int]] = []
        self.used: set[int] = set()
        self._loose: list[tuple[int, memoryview]] = []

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND_BYTES:
            return True
        address = np.frombuffer(raw, np.uint8).__array_interface__["data"][0]
        block = None if self._in_plain else self._memory.find(address)
        if block is None or len(self.used) >= MAX_DESCRIPTORS - 1:
            self._loose.append((len(self.buffers), raw))
            self.buffers.append((-1, 0, raw.nbytes))
        else:
            self.used.add(block.number)
            self.buffers.append((block.number, address - block.address, raw.nbytes))
        return False

    def settle(self) -> list[Any]:
        """Copy what lies elsewhere into a block; return what has to follow in the message, for want of one."""
        total = sum(_aligned(raw.nbytes) for _, raw in self._loose)
        loan = None if self._in_plain or total < MIN_BYTES else self._memory.borrow(total)
        if loan is None:
            return [raw for _, raw in self._loose]
        block = self._memory.find(loan.__array_interface__["data"][0])
        assert block is not None
        offset = 0
        for place, raw in self._loose:
            loan[offset : offset + raw.nbytes] = np.frombuffer(raw, np.uint8)
            self.buffers[place] = (block.number, offset, raw.nbytes)
            offset += _aligned(raw.nbytes)
        self.used.add(block.number)
        return []


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
