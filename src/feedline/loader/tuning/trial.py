"""`measure`: what a loader gives in a few seconds."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from time import perf_counter, process_time
from typing import Any

import numpy as np

from feedline.loader.dataloader import DataLoader
from feedline.loader.lookout import memory_of
from feedline.loader.stats import LoaderStats
from feedline.loader.tuning.choices import Choice
from feedline.loader.verdict import judge

__all__ = ["Trial", "digest", "measure"]

#: Batches made ahead before the clock starts must not count; but they may take this share of the time at most.
WARM_UP = 0.25


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one choice of workers.

    Attributes:
        worker_type, num_workers: the choice.
        items_per_second: after the first batches; 0 where nothing came.
        first_batch_seconds: from `iter()` to the first batch, workers being started.
        cores_used: processor seconds per second, of this process and its worker processes.
        memory_bytes: proportional set size of this process and its worker processes, at the end; 0 where nobody tells.
        bottleneck, limit, advice: what `judge` says.
        first_batch: a checksum of its content: all choices must give the same.
        error: what ended it, in words; `None` if nothing did.
    """

    worker_type: str
    num_workers: int
    items_per_second: float = 0.0
    first_batch_seconds: float = 0.0
    cores_used: float = 0.0
    memory_bytes: int = 0
    bottleneck: str = "none"
    limit: str = "none"
    advice: str = ""
    first_batch: int | None = None
    error: str | None = None

    @property
    def choice(self) -> Choice:
        """The workers."""
        return Choice(self.worker_type, self.num_workers)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def measure(
    loader: DataLoader, choice: Choice, seconds: float, clock: Callable[[], float] = perf_counter
) -> Trial:
    """Iterate over `loader` with other workers for `seconds`, epoch after epoch if they are short.

    Args:
        loader: is left as it is; a copy of it is measured.
        choice: the workers.
        seconds: how long, from the first batch on.
        clock: tells the time, in seconds.

    Raises:
        Whatever the loader does.
    """
    with loader.with_options(num_workers=choice.num_workers, worker_type=choice.worker_type) as copy:
        batches = _endless(copy)
        start = clock()
        first = next(batches, None)
        ready = clock()
        if first is None:
            return Trial(*choice, error="it has no batches")
        window = choice.num_workers + loader.options.prefetch_depth if choice.num_workers else 0
        for _ in range(window):
            if clock() - ready >= WARM_UP * seconds:
                break
            next(batches)
        before, cpu, began = copy.stats(), process_time(), clock()
        for _ in batches:
            if clock() - ready >= seconds:
                break
        took = clock() - began
        recent = copy.stats().since(before)
        cpu_seconds = process_time() - cpu + (recent.cpu_seconds if choice.worker_type == "process" else 0.0)
        memory = memory_of(["/proc/self/stat", *_worker_places(copy, choice)])
        return _trial(choice, recent, took, ready - start, cpu_seconds, memory, digest(first))


def _trial(
    choice: Choice,
    recent: LoaderStats,
    took: float,
    first_batch_seconds: float,
    cpu_seconds: float,
    memory: int,
    checksum: int,
) -> Trial:
    verdict = judge(recent)
    return Trial(
        *choice,
        items_per_second=recent.items / took if took > 0 else 0.0,
        first_batch_seconds=first_batch_seconds,
        cores_used=cpu_seconds / took if took > 0 else 0.0,
        memory_bytes=memory,
        bottleneck=verdict.bottleneck,
        limit=verdict.limit,
        advice=verdict.advice,
        first_batch=checksum,
    )


def _endless(loader: DataLoader) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            return


def _worker_places(loader: DataLoader, choice: Choice) -> list[str]:
    return loader._executor().places() if choice.worker_type == "process" else []


def digest(value: Any) -> int:
    """Return a checksum of what is in a batch: equal for equal content.

    >>> digest({"x": np.arange(3), "y": [1, "a"]}) == digest({"x": np.arange(3), "y": [1, "a"]})
    True
    """
    return _digest(value, 0)


def _digest(value: Any, so_far: int) -> int:
    if isinstance(value, dict):
        for key, part in value.items():
            so_far = _digest(part, zlib.crc32(repr(key).encode(), so_far))
        return so_far
    if isinstance(value, (tuple, list)):
        for part in value:
            so_far = _digest(part, so_far)
        return zlib.crc32(f"{len(value)} parts".encode(), so_far)
    array = np.asarray(value) if hasattr(value, "__array__") else None
    if array is None or array.dtype.hasobject:
        return zlib.crc32(os.fsencode(repr(value)), so_far)
    head = f"{array.dtype} {array.shape}".encode()
    return zlib.crc32(np.ascontiguousarray(array).tobytes(), zlib.crc32(head, so_far))
