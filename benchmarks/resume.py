"""How long it takes until the next batch is there, after a resume at 90 % of an epoch; and how large the state is.

    python -m benchmarks.resume [--rounds N] [--only NAME]

A round makes a loader, loads the state and takes one batch. The limit of the full shuffle is drawing its permutation
again; that of `memory="constant"`, which has none to draw, is compared with it, too.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from benchmarks._contest import Contest, Round

BATCH = 64


class Numbers:
    """`n` items, none of them stored."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.n:
            raise IndexError(index)
        return index


def permutation(n: int) -> Round:
    def run() -> float:
        start = time.perf_counter()
        order = np.arange(n)
        np.random.RandomState(0).shuffle(order)
        return time.perf_counter() - start

    return run


def feedline_loader(n: int, memory: str = "full", num_workers: int = 0) -> Round:
    import feedline

    def make() -> Any:
        sampler = feedline.RandomSampler(0, memory=memory)
        return feedline.DataLoader(Numbers(n), BATCH, sampler=sampler, num_workers=num_workers)

    saved = make().state_dict()
    saved["batch"] = n * 9 // 10 // BATCH
    saved["position"] = saved["batch"] * BATCH
    text = json.dumps(saved)

    def run() -> float:
        start = time.perf_counter()
        loader = make()
        loader.load_state_dict(json.loads(text))
        next(iter(loader))
        return time.perf_counter() - start

    return run


def stateful_loader(n: int, num_workers: int) -> Round:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make() -> Any:
        return StatefulDataLoader(Numbers(n), BATCH, shuffle=True, num_workers=num_workers)

    loader = make()
    for number, _ in enumerate(loader, 1):
        if number == n * 9 // 10 // BATCH:
            break
    saved = loader.state_dict()

    def run() -> float:
        start = time.perf_counter()
        loader = make()
        loader.load_state_dict(saved)
        next(iter(loader))
        return time.perf_counter() - start

    return run


def grain_iterator(n: int) -> Round:
    import grain

    def make() -> Any:
        return iter(grain.MapDataset.source(Numbers(n)).shuffle(seed=0).batch(BATCH).to_iter_dataset())

    iterator = make()
    for _ in range(n * 9 // 10 // BATCH):
        next(iterator)
    saved = iterator.get_state()

    def run() -> float:
        start = time.perf_counter()
        iterator = make()
        iterator.set_state(saved)
        next(iterator)
        return time.perf_counter() - start

    return run


contest = Contest("benchmarks.resume", "milliseconds to the next batch", 1e-3, higher_is_better=False)
for count in (1_000, 100_000, 10_000_000):
    group = f"{count:,} items"
    contest.add(
        f"limit: one permutation, {count}", lambda n=count: permutation(n), group=group, is_limit=True
    )
    contest.add(f"feedline, {count}", lambda n=count: feedline_loader(n), group=group)
    contest.add(
        f"feedline, 2 threads, {count}", lambda n=count: feedline_loader(n, num_workers=2), group=group
    )
    contest.add(
        f'feedline, memory="constant", {count}', lambda n=count: feedline_loader(n, "constant"), group=group
    )
    if count <= 100_000:
        contest.add(f"Grain, {count}", lambda n=count: grain_iterator(n), group=group, is_peer=True)
        contest.add(
            f"StatefulDataLoader, {count}", lambda n=count: stateful_loader(n, 0), group=group, is_peer=True
        )
        contest.add(
            f"StatefulDataLoader, 2 workers, {count}",
            lambda n=count: stateful_loader(n, 2),
            group=group,
            is_peer=True,
        )
contest.add(
    'feedline, memory="constant", 10 billion',
    lambda: feedline_loader(10**10, "constant"),
    group="10,000,000,000 items",
)

if __name__ == "__main__":
    contest.main()
