"""`Lookout`: what workers are at, seen by the consumer while it waits for them anyhow.

Note [looking]
    A consumer that waits for a batch wakes up about twenty times a second, at moments spread evenly over its waits, and
    looks: is the GIL held? How many workers have a batch in hand? Are they asleep? So nothing else has to run, a loop that
    does not wait pays nothing, and what is seen is what the consumer waits for.

    Whether the GIL is held shows in the number of times that the waking thread gave up its processor of its own accord:
    once for the wait itself; a second time only if somebody else held the GIL. How long it took tells nothing, where other
    programs take the processors: then every thread is late. For the same reason a worker counts as asleep by its state in
    the kernel: one that waits for a disk, for a lock or for the GIL sleeps; one that waits for a processor does not.

    Where the system tells no such things (it is not Linux), a thread that is late by half a switch interval counts as
    held up by the GIL, and nobody as asleep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from feedline.loader.execution.protocol import Session
from feedline.loader.stats import Tally
from feedline.loader.switches import voluntary_switches

__all__ = ["Lookout", "cores", "memory_of"]

#: Seconds between two looks; shorter for the first few, so that a short run can be judged, too.
INTERVAL_SECONDS = 0.05
FIRST_INTERVAL_SECONDS = 0.01
FIRST_LOOKS = 20
#: A look comes after a part of a usual wait, and after this many seconds at most.
MAX_PAUSE_SECONDS = 0.05
MIN_PAUSE_SECONDS = 0.0001
ROUNDING_SECONDS = 1e-6
#: Workers whose state is read in one look; they take turns.
WORKERS_PER_LOOK = 2
#: Seconds between two readings of the workers' memory.
MEMORY_SECONDS = 10.0
_GOLDEN = 0.6180339887498949


def _has_gil() -> bool:
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return True if is_enabled is None else bool(is_enabled())


class Lookout:
    """Looks what the workers of one loader do, while one iterator waits.

    Args:
        tally: gets the counts.
        places: returns the files in which the system tells of each worker.
        shares_gil: whether workers run in this process.
    """

    def __init__(self, tally: Tally, places: Callable[[], Sequence[str]], shares_gil: bool) -> None:
        self._tally = tally
        self._places = places
        self._shares_gil = shares_gil
        self._sees_gil = shares_gil and _has_gil()
        self._switches = voluntary_switches
        #: When the next look is due, by `perf_counter()`.
        self.due = 0.0
        self._phase = 0.5
        self._turn = 0
        self._memory_due = 0.0

    def look(self, session: Session, in_progress: float) -> None:
        """Wait a moment, and look if nothing has come by then; `in_progress` is how many tasks are in hand."""
        if not (self._shares_gil or self._tally.batches):
            # Processes are being started: what they do before the first batch says nothing about the batches.
            session.wait()
            return
        pause = self._pause()
        switches = None if self._switches is None else self._switches()
        start = perf_counter()
        session.wait(pause)
        late = perf_counter() - start - pause
        if late < -ROUNDING_SECONDS:
            return  # a batch has come; what its worker does in this moment is no fair sample
        is_held = False
        if self._sees_gil:
            if switches is None or self._switches is None:
                is_held = late > sys.getswitchinterval() / 2
            else:
                is_held = self._switches() - switches > 1
        self._count(is_held, in_progress)

    def _pause(self) -> float:
        tally = self._tally
        # The multiples of the golden ratio are spread evenly, however many there are, and need no random generator.
        self._phase = (self._phase + _GOLDEN) % 1.0
        usual = tally.wait_seconds / tally.waits if tally.waits else MIN_PAUSE_SECONDS * 20
        return max(MIN_PAUSE_SECONDS, self._phase * min(usual, MAX_PAUSE_SECONDS))

    def _count(self, is_held: bool, in_progress: float) -> None:
        tally = self._tally
        places = self._places()
        tally.looks += 1
        tally.gil_looks += is_held
        count = len(places)
        if count:
            tally.worker_looks += count
            tally.working_looks += min(max(0.0, in_progress), count)
            tally.asleep_looks += self._asleep(places) * count
        interval = FIRST_INTERVAL_SECONDS if tally.looks < FIRST_LOOKS else INTERVAL_SECONDS
        self.due = perf_counter() + interval

    def _asleep(self, places: Sequence[str]) -> float:
        """Return which share of the workers that have their turn are asleep."""
        chosen = min(WORKERS_PER_LOOK, len(places))
        asleep = 0
        for number in range(chosen):
            asleep += _is_asleep(places[(self._turn + number) % len(places)])
        self._turn += chosen
        return asleep / chosen

    def look_at_memory(self) -> None:
        """Note how much memory worker processes take; not too often, since the system has to walk through it."""
        now = perf_counter()
        if self._shares_gil or now < self._memory_due:
            return
        self._memory_due = now + MEMORY_SECONDS
        taken = memory_of(self._places())
        if taken:
            self._tally.memory_bytes = taken


def _is_asleep(place: str) -> bool:
    try:
        with open(place, "rb", buffering=0) as file:
            text = file.read(512)
    except OSError:
        return False  # it has ended, or the system has no such files
    # `pid (name) state ...`, where the name may have spaces and brackets.
    return text[text.rfind(b")") + 2 : text.rfind(b")") + 3] in (b"S", b"D")


def memory_of(places: Sequence[str]) -> int:
    """Return the bytes (proportional set size) of the processes whose `stat` files these are; 0 where nobody tells."""
    total = 0
    for place in places:
        try:
            with open(place.removesuffix("stat") + "smaps_rollup", "rb") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    return total


def cores() -> int:
    """Return how many processors this process may use."""
    count: Any = getattr(os, "process_cpu_count", None)
    if count is not None:
        return int(count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
