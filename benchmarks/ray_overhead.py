"""What it costs to get a batch from a Ray actor, against processes and threads: microseconds per batch.

    python -m benchmarks.ray_overhead [--rounds N] [--only NAME]

The items cost nothing, so what is left is the way: small batches (4 KiB) show the cost of a message, large ones
(38 MB) that of memory. The limit is Ray alone: one actor that returns such an array, two calls in flight, what comes
read without being copied.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from benchmarks._contest import Contest, Round

SIZES = {"small batches, 4 KiB": (512, 300), "large batches, 38 MB": (4_816_896, 12)}


class Ready:
    """One item is a whole batch, and always the same."""

    def __init__(self, group: str) -> None:
        width, self.length = SIZES[group]
        self.item = np.zeros(width)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> np.ndarray:
        return self.item


def alone(group: str) -> Round:
    import ray

    from feedline.loader.execution.cluster_connection import connect

    class Actor:
        def __init__(self) -> None:
            self.item = Ready(group).item

        def get(self) -> np.ndarray:
            return self.item

    connect()
    actor = ray.remote(Actor).remote()
    batches = len(Ready(group))

    def run() -> float:
        start = time.perf_counter()
        calls = deque(actor.get.remote() for _ in range(2))
        for number in range(batches):
            ray.get(calls.popleft())
            if number < batches - 2:
                calls.append(actor.get.remote())
        return (time.perf_counter() - start) / batches

    return run


def loader(group: str, **options: object) -> Round:
    import feedline

    made = feedline.DataLoader(Ready(group), 1, **options)

    def run() -> float:
        start = time.perf_counter()
        for _ in made:
            pass
        return (time.perf_counter() - start) / len(made)

    return run


contest = Contest("benchmarks.ray_overhead", "us per batch", 1e-6, higher_is_better=False)
for name in SIZES:
    contest.add(
        f"limit: Ray alone, one actor, {name}", lambda name=name: alone(name), group=name, is_limit=True
    )
    for kind, title in (("ray", "Ray actor"), ("process", "process"), ("thread", "thread")):
        contest.add(
            f"feedline, one {title}, {name}",
            lambda name=name, kind=kind: loader(name, num_workers=1, worker_type=kind),
            group=name,
        )
    contest.add(f"feedline, calling thread, {name}", lambda name=name: loader(name), group=name)

if __name__ == "__main__":
    contest.main()
