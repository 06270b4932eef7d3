"""`Seat`: the owner's side of one worker process. When the process ends, its seat goes with it, and a new one is made."""

from __future__ import annotations

import os
import pickle
import select
import socket
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.loader.execution.channel import Inbox, Outbox
from feedline.loader.execution.control import ControlPage
from feedline.loader.execution.job import Job
from feedline.loader.execution.process_worker import Assignment, Result, join_parts, split_parts
from feedline.loader.execution.returned import exception_of, outcome_of
from feedline.loader.execution.shared_memory import Block, forks_begun
from feedline.loader.execution.template_process import TemplateProcess
from feedline.loader.execution.threads import Line

__all__ = ["Seat"]


class Seat:
    """One worker process, from its start on.

    Attributes:
        number: the worker's.
        pid: its process, once it is told.
        jobs: what it has, by ticket, in order.
        again: what it has done, but could not be received; the pool takes these out.
        is_ready: it has unpickled what it runs.
        is_gone: its socket is closed.
        is_stuck: it was killed for that.
        is_broken: it has said that it can't work.
        is_leaving: it gets nothing more, and ends after what it has.

    Raises:
        OSError: no descriptor, or no memory, can be had.
    """

    def __init__(self, number: int, template: TemplateProcess) -> None:
        self.number = number
        self.pid: int | None = None
        self.jobs: dict[int, Job] = {}
        self.again: list[Job] = []
        self.is_ready = self.is_gone = self.is_stuck = self.is_broken = self.is_leaving = False
        self._has_left = False
        self.page = ControlPage()
        assert self.page.descriptor is not None
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            os.close(self.page.descriptor)
            raise
        ours.setblocking(False)
        self._channel = ours
        self._inbox = Inbox(ours)
        self._outbox = Outbox(ours)
        self._blocks: dict[int, Block] = {}
        self._lent_at: dict[int, int] = {}
        self._returned: list[int] = []
        self._unmapped: list[int] = []
        self._session = 0
        self._heart = (0, 0.0)
        template.spawn(number, [theirs.detach(), self.page.descriptor])

    @property
    def name(self) -> str:
        """How it is called in notes and messages."""
        return f"worker process {self.number} (pid {self.pid})"

    @property
    def descriptor(self) -> int | None:
        """What to poll, if anything."""
        return None if self.is_gone else self._channel.fileno()

    def wanted_events(self) -> int:
        """Return what to poll for."""
        return select.POLLIN | (0 if self._outbox.is_empty else select.POLLOUT)

    def give(self, job: Job, ticket: int) -> None:
        """Send a job."""
        job.ticket = ticket
        self.jobs[ticket] = job
        known = job.known if job.known and self._session != job.session else None
        if known is not None:
            self._session = job.session
            known = dict(known)
        self._collect()
        head = Assignment(
            ticket, job.session, known, job.careful, job.in_plain, self._returned, self._unmapped
        )
        self._returned, self._unmapped = [], []
        self._outbox.put(join_parts(head, job.body))
        self._flush()

    def _collect(self) -> None:
        """Note which blocks the consumer sees no more."""
        for number, block in list(self._blocks.items()):
            if not block.sent or block.is_lent:
                continue
            block.sent = False
            if self._lent_at[number] == forks_begun():
                self._returned.append(number)
            else:
                # A child that was forked meanwhile may see it still.
                del self._blocks[number]
                self._unmapped.append(number)

    def _flush(self) -> None:
        try:
            self._outbox.flush()
        except OSError:
            self.is_gone = True
            self._outbox.drop()

    def talk(self) -> list[Result]:
        """Send and receive what can be, and deliver what has come; return the heads of the messages."""
        self._flush()
        heads: list[Result] = []
        before = -1
        while len(heads) != before and not self._inbox.ended:
            before = len(heads)
            self._inbox.read()
            while self._inbox.messages:
                heads.append(self._take(*self._inbox.messages.popleft()))
        if self._inbox.ended:
            self.is_gone = True
        return heads

    def drain(self) -> None:
        """Deliver what the worker sent before it ended."""
        if not self._inbox.ended:
            self.talk()

    def _take(self, message: bytearray, descriptors: list[int]) -> Result:
        head, body, rest = split_parts(message)
        assert isinstance(head, Result)
        for number in head.dropped:
            self._blocks.pop(number, None)
        is_whole = self._map(head, descriptors)
        if head.ticket == 0:
            self.is_ready = head.broken is None
            return head
        job = self.jobs.pop(head.ticket)
        if not is_whole:
            job.in_plain = True
            self._refuse(head, job)
        elif head.broken is not None:
            job.fail(
                exception_of(head.broken, self.name),
                f"its task could not be unpickled by {self.name}",
            )
        else:
            buffers = self._buffers(head, rest)
            if not job.line.cancelled:
                self._deliver(job, body, buffers)
        return head

    def _map(self, head: Result, descriptors: list[int]) -> bool:
        """Map new blocks; false if one could not be: out of descriptors, or of room."""
        mapped = 0
        for (number, capacity), descriptor in zip(head.news, descriptors):
            try:
                self._blocks[number] = Block(number, descriptor, capacity)
                mapped += 1
            except (OSError, ValueError):
                self._unmapped.append(number)
            finally:
                os.close(descriptor)
        for number, _ in head.news[len(descriptors) :]:
            self._unmapped.append(number)
        return mapped == len(head.news)

    def _refuse(self, head: Result, job: Job) -> None:
        """Give the blocks of a message back unseen; the job is to be computed again."""
        for number in {number for number, _, _ in head.buffers}:
            if number in self._blocks:
                self._returned.append(number)
        self.again.append(job)

    def _buffers(self, head: Result, rest: memoryview) -> list[Any]:
        """Return the memory of each buffer: views of blocks, or of the message."""
        loans: dict[int, npt.NDArray[np.uint8]] = {}
        buffers: list[Any] = []
        start = 0
        for number, offset, length in head.buffers:
            if number < 0:
                buffers.append(rest[start : start + length])
                start += length
                continue
            if number not in loans:
                block = self._blocks[number]
                block.sent = True
                self._lent_at[number] = forks_begun()
                loans[number] = block.lend()
            buffers.append(np.ndarray(length, np.uint8, loans[number], offset))
        return buffers

    def _deliver(self, job: Job, body: memoryview, buffers: list[Any]) -> None:
        try:
            facts: list[dict[str, Any]] = pickle.loads(body, buffers=buffers)
            outcomes = [outcome_of(fact, self.name) for fact in facts]
        except BaseException as error:  # user code of any kind runs in here
            report = error if isinstance(error, Exception) else RuntimeError(repr(error))
            job.fail(report, f"it came from {self.name} and could not be unpickled")
            return
        job.deliver(outcomes)

    def cancel(self, line: Line) -> None:
        """Let the worker stop what it does for `line` after its item."""
        for ticket, job in self.jobs.items():
            if job.line is line:
                self.page.cancel(ticket)

    def end(self) -> None:
        """Let the worker end after its item."""
        for ticket in self.jobs:
            self.page.cancel(ticket)
        self._outbox.drop()
        if not self.is_gone:
            try:
                self._channel.shutdown(socket.SHUT_WR)
            except OSError:
                self.is_gone = True

    def leave(self) -> None:
        """Let the worker end, if it is to leave and has nothing in hand."""
        if self.is_leaving and self.is_ready and not self.jobs and not self._has_left:
            self._has_left = True
            self.end()

    def is_silent(self, now: float, seconds: float) -> bool:
        """Tell whether the worker has a task at work and nothing in it has got to run for `seconds`."""
        beats = self.page.heart
        if not self.is_ready or self.is_stuck or not self.page.ticket or beats != self._heart[0]:
            self._heart = (beats, now)
            return False
        return now - self._heart[1] > seconds

    def close(self) -> None:
        """Close the socket; blocks live as long as the consumer sees them."""
        self._outbox.drop()
        self._inbox.close()
        self._channel.close()
        self.is_gone = True
