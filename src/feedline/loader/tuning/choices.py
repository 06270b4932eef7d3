"""Which kinds and numbers of workers are worth a try. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Choice", "choices", "usual_numbers"]


class Choice(NamedTuple):
    """Workers to try.

    Attributes:
        worker_type: `"thread"` or whichever kind; without workers it means nothing, and is `"thread"`.
        num_workers: how many.
    """

    worker_type: str
    num_workers: int

    def __str__(self) -> str:
        if not self.num_workers:
            return "no workers"
        kind = {"thread": "thread", "process": "process"}.get(self.worker_type, f"{self.worker_type} worker")
        return (
            f"{self.num_workers} {kind}{'' if self.num_workers == 1 else 'es' if kind.endswith('s') else 's'}"
        )


def usual_numbers(cores: int) -> list[int]:
    """Return no workers, powers of two up to twice the cores, and the cores.

    >>> usual_numbers(2), usual_numbers(6)
    ([0, 1, 2, 4], [0, 1, 2, 4, 6, 8])
    """
    numbers = {0, cores}
    power = 1
    while power <= 2 * cores:
        numbers.add(power)
        power *= 2
    return sorted(numbers)


def choices(kinds: Sequence[str], numbers: Iterable[int], now: Choice | None = None) -> list[Choice]:
    """Return what to try, in order, each once: `now` first, then no workers, then each kind by its number of workers.

    >>> [str(choice) for choice in choices(["thread", "process"], [0, 2], Choice("thread", 2))]
    ['2 threads', 'no workers', '2 processes']
    """
    found = [] if now is None else [now]
    counts = sorted(set(numbers))
    if 0 in counts:
        found.append(Choice("thread", 0))
    found += [Choice(kind, count) for kind in kinds for count in counts if count]
    return list(dict.fromkeys(found))
