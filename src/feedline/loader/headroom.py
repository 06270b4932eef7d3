"""`headroom`: how fast would training be if data were free?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

from feedline.errors import OptionError

__all__ = ["Headroom", "headroom"]

#: Batches that are kept to be stepped over again.
KEPT = 4


@dataclass(frozen=True, slots=True)
class Headroom:
    """What `headroom` found.

    Attributes:
        batches: that were measured of each kind.
        step_seconds_per_batch: the step alone, over batches that are there already.
        total_seconds_per_batch: loading and stepping, as a training loop does.
        speedup: how many times faster training would be with free data; 1 means that data costs nothing.
    """

    batches: int
    step_seconds_per_batch: float
    total_seconds_per_batch: float
    speedup: float

    def __str__(self) -> str:
        share = 1 - 1 / self.speedup
        return (
            f"With free data training would be {self.speedup:.2f} times as fast: a batch takes "
            f"{self.total_seconds_per_batch * 1e3:.3g} ms, of which the step needs "
            f"{self.step_seconds_per_batch * 1e3:.3g} ms (data {share:.0%})"
        )


def headroom(
    loader: Iterable[Any], step: Callable[[Any], Any], batches: int = 32, warm_up: int = 2
) -> Headroom:
    """Measure `step` with batches that `loader` loads, and with batches that are there.

    Args:
        loader: is iterated once, for `warm_up + batches` batches at most, and then stands where it stood.
        step: what training does with a batch; on an accelerator it must wait for its result, or only the launch is
            measured.
        batches: how many are measured.
        warm_up: how many run before, unmeasured.

    Raises:
        OptionError: `batches` is not positive, or the loader has no batch beyond the warm-up.

    >>> from feedline import DataLoader, headroom
    >>> headroom(DataLoader(list(range(100)), batch_size=2), step=sum, batches=10).batches
    10
    """
    if batches < 1 or warm_up < 0:
        raise OptionError(f"batches must be at least 1 and warm_up at least 0, not {batches} and {warm_up}")
    with _unmoved(loader):
        count, total, kept = _train(iter(loader), step, batches, warm_up)
    if not count:
        raise OptionError(f"the loader has too few batches: {warm_up + 1} are needed at least")
    start = perf_counter()
    for number in range(count):
        step(kept[number % len(kept)])
    alone = perf_counter() - start
    # What loading costs can't be negative; noise can.
    total = max(total, alone)
    speedup = total / alone if alone else float("inf")
    return Headroom(count, alone / count, total / count, speedup if total else 1.0)


def _train(
    iterator: Any, step: Callable[[Any], Any], batches: int, warm_up: int
) -> tuple[int, float, list[Any]]:
    """Return how many batches were stepped over, in how many seconds, and some of them."""
    kept: list[Any] = []
    try:
        for batch in islice(iterator, warm_up):
            step(batch)
        start, count = perf_counter(), 0
        for batch in islice(iterator, batches):
            step(batch)
            count += 1
            # A handful is enough to step over again, and all of them might not fit.
            if len(kept) < KEPT:
                kept.append(batch)
        return count, perf_counter() - start, kept
    finally:
        close = getattr(iterator, "close", None)
        if callable(close):
            close()


@contextmanager
def _unmoved(loader: Any) -> Iterator[None]:
    """Leave the loader where it stands: what is measured here must not be missing from the training."""
    if not (hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
        yield
        return
    state = loader.state_dict()
    try:
        yield
    finally:
        loader.load_state_dict(state)
