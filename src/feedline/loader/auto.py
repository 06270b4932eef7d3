"""`num_workers="auto"`: `Decider` says how many workers there should be (pure), `AutoWidth` asks it as batches come.

The number changes nothing about the batches or their order. It grows while the consumer
waits and more workers make it faster, and shrinks while workers are idle.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable

from feedline.loader.batch import Outcome
from feedline.loader.stats import LoaderStats
from feedline.loader.verdict import (
    BLOCKED,
    BUSY,
    GIL_BOUND,
    MOST_WORKERS,
    blocked_share,
    gil_share,
    working_share,
)

__all__ = ["AutoWidth", "Decider", "weak_method"]

logger = logging.getLogger("feedline")

#: Below this share of waiting there is nothing to gain; above the other one there is.
ENOUGH = 0.02
TOO_MUCH = 0.05
#: Of what more workers could give at best, they must give this share to stay.
MIN_GAIN = 0.25
#: Threads beyond the second go if the GIL is held for this share of the time, in so many looks.
GIL_SATURATED = 0.9
SURE_LOOKS = 15
#: Decisions for which one that was of no use is not tried again.
PATIENCE = 20
#: Idle workers go when this many decisions in a row have found them so.
IDLE_DECISIONS = 3
#: Seconds and batches for each worker between two decisions.
SECONDS = 0.5
BATCHES_PER_WORKER = 2
#: Worker processes for each core, where they wait for something.
PROCESSES_PER_CORE = 4


class Decider:
    """Says how many workers there should be, from what happened since it was last asked.

    Args:
        width: how many there are at the start.
        cores: how many can compute at once.
        most: how many there may be of those that wait.

    Attributes:
        width: how many there should be.
        reason: why no more and no fewer.
    """

    def __init__(self, width: int, cores: int, most: int) -> None:
        self.width = width
        self.reason = "it has just begun"
        self._cores = cores
        self._most = most
        self._tried: tuple[int, float] | None = None
        self._hold = 0
        self._idle = 0

    @property
    def is_trying(self) -> bool:
        """Whether it is not known yet if the last growth helps."""
        return self._tried is not None

    def decide(self, recent: LoaderStats) -> int:
        """Return the width from now on; `recent` is what happened with the present one."""
        if self._tried is not None and not self._has_helped(recent):
            return self.width
        if recent.wait_fraction <= TOO_MUCH:
            self._keep_up(recent)
        else:
            self._idle = 0
            if self._hold:
                self._hold -= 1
            else:
                self._grow(recent)
        return self.width

    def _has_helped(self, recent: LoaderStats) -> bool:
        """Go back if the last growth did not make it faster; a consumer that does not wait any more is answer enough."""
        assert self._tried is not None
        (before, rate), self._tried = self._tried, None
        best = self.width / before - 1
        if recent.wait_fraction <= TOO_MUCH or recent.items_per_second >= rate * (1 + MIN_GAIN * best):
            return True
        self.reason = f"{self.width} are no faster"
        self.width = before
        self._hold = PATIENCE
        return False

    def _keep_up(self, recent: LoaderStats) -> None:
        self.reason = "loading keeps up"
        used = recent.loading_seconds / recent.wall_seconds if recent.wall_seconds else self.width
        # One to spare: batches do not all cost the same.
        wanted = max(1, math.ceil(used) + 1)
        if wanted >= self.width or recent.wait_fraction > ENOUGH:
            self._idle = 0
            return
        self._idle += 1
        if self._idle >= IDLE_DECISIONS:
            self._idle = 0
            self.width = wanted

    def _grow(self, recent: LoaderStats) -> None:
        gil = gil_share(recent)
        if gil is not None and gil >= GIL_BOUND:
            self.reason = f"they hold the GIL {gil:.0%} of the time: worker_type='process' would help, more threads can't"
            if gil >= GIL_SATURATED and recent.looks >= SURE_LOOKS:
                self.width = min(self.width, 2)
            return
        if working_share(recent) < BUSY:
            self.reason = "some of them are idle: a larger prefetch_depth would help, more workers can't"
            return
        if blocked_share(recent) >= BLOCKED:
            wanted, self.reason = min(2 * self.width, self._most), f"{self._most} is the most"
        else:
            wanted, self.reason = min(self.width + 1, self._cores), f"there are {self._cores} cores"
        if wanted > self.width:
            self._tried = (self.width, recent.items_per_second)
            self.width = wanted
            self.reason = f"{self._tried[0]} were not enough"


class AutoWidth:
    """Asks the decider as batches come, and has the executor follow. One for a loader; lives through its epochs.

    Args:
        width: workers at the start.
        worker_type: which kind.
        cores: processors that there are.
        stats: returns the loader's numbers.
    """

    def __init__(self, width: int, worker_type: str, cores: int, stats: Callable[[], LoaderStats]) -> None:
        most = MOST_WORKERS if worker_type == "thread" else max(4, PROCESSES_PER_CORE * cores)
        self._decider = Decider(width, cores, most)
        self._stats = stats
        self._before: LoaderStats | None = None
        self._count = 0
        self._told: int | None = None
        self._resize: Callable[[int], None] | None = None

    @property
    def width(self) -> int:
        """How many workers there are."""
        return self._decider.width

    @property
    def note(self) -> str:
        """What it settled on, in words."""
        number = f"{self.width} worker{'' if self.width == 1 else 's'}"
        verb = "is trying" if self._decider.is_trying else "settled on"
        return f"num_workers='auto' {verb} {number}: {self._decider.reason}."

    def attach(self, resize: Callable[[int], None]) -> AutoWidth:
        """Let a new iterator follow from now on; return an observer for it."""
        self._resize = resize
        self._begin()
        return self

    def _begin(self) -> None:
        """Batches that were under way with another width are not counted."""
        self._before = None
        self._count = -self.width

    def received(self, outcome: Outcome) -> None:
        """Count a batch, and decide if there is enough to go by."""
        self._count += 1
        if self._count < 0:
            return
        if self._before is None:
            self._before = self._stats()
            self._count = 0
            return
        if self._count < BATCHES_PER_WORKER * self.width or self._count % self.width:
            return
        now = self._stats()
        recent = now.since(self._before)
        if recent.wall_seconds >= SECONDS:
            self._decide(recent, now)

    def _decide(self, recent: LoaderStats, now: LoaderStats) -> None:
        before = self.width
        width = self._decider.decide(recent)
        if width != before:
            if self._resize is not None:
                self._resize(width)
            self._begin()
            return
        self._before, self._count = now, 0
        if width != self._told and not self._decider.is_trying:
            self._told = width
            logger.info("%s", self.note)

    def ended(self) -> None:
        """Nothing is to be done at the end of an epoch: the workers stay."""


def weak_method(method: Callable[[int], None]) -> Callable[[int], None]:
    """Return what calls `method` as long as its object lives: an iterator must not be kept by what watches it."""
    reference = weakref.WeakMethod(method)

    def call(width: int) -> None:
        found = reference()
        if found is not None:
            found(width)

    return call
