"""Batches on a GPU: how much of the copy `to_device` hides behind the step.

    python -m benchmarks.device [--rounds N]

Batches of 64 x 3 x 224 x 224 float32 (38 MB) from memory, and a step of matrix products. The limit takes one batch that
is on the device already, again and again: no loader could be quicker. Left out where there is no GPU.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks._contest import Contest, Round

BATCHES = 100
SHAPE = (64, 3, 224, 224)


def gpu() -> Any:
    import torch

    if not torch.cuda.is_available():
        raise ImportError("there is no GPU here")
    return torch


class Batches:
    """A ring of batches in memory, as a loader would hand them out."""

    def __init__(self) -> None:
        self.ring = [np.random.default_rng(k).random(SHAPE, dtype=np.float32) for k in range(4)]

    def __iter__(self) -> Any:
        return (self.ring[k % 4] for k in range(BATCHES))


def make_step(torch: Any, size: int) -> Any:
    weight = torch.randn(size, size, device="cuda")

    def step(batch: Any) -> Any:
        value = batch.flatten(1)[:, :size]
        for _ in range(20):
            value = torch.tanh(value @ weight)
        return value.sum()

    return step


def run_over(torch: Any, batches: Any, step: Any) -> float:
    total = torch.zeros((), device="cuda")
    for batch in batches:
        total += step(batch)
    torch.cuda.synchronize()
    return BATCHES


def limit(size: int) -> Round:
    torch = gpu()
    batch, step = torch.rand(SHAPE, device="cuda"), make_step(torch, size)
    return lambda: run_over(torch, (batch for _ in range(BATCHES)), step)


def feedline_ahead(size: int, ahead: int, pinned: bool) -> Round:
    torch = gpu()
    from feedline.torch import to_device

    source: Any = Batches()
    if pinned:
        source.ring = [torch.from_numpy(batch).pin_memory() for batch in source.ring]
    loader, step = to_device(source, "cuda", ahead=ahead), make_step(torch, size)
    return lambda: run_over(torch, loader, step)


def by_hand(size: int, pinned: bool) -> Round:
    torch = gpu()
    source, step = Batches(), make_step(torch, size)

    def copied(batch: Any) -> Any:
        tensor = torch.from_numpy(batch)
        return (tensor.pin_memory() if pinned else tensor).to("cuda", non_blocking=pinned)

    return lambda: run_over(torch, map(copied, source), step)


contest = Contest("benchmarks.device", "batches/s")
for columns in (2048, 8192):
    group = f"steps over {columns} columns"
    contest.add(
        f"limit: on the device already, {columns}",
        functools.partial(limit, columns),
        group=group,
        is_limit=True,
    )
    contest.add(f"batch.to('cuda'), {columns}", functools.partial(by_hand, columns, False), group=group)
    contest.add(
        f"pin_memory().to(non_blocking=True), {columns}",
        functools.partial(by_hand, columns, True),
        group=group,
    )
    for ahead in (0, 1, 2):
        contest.add(
            f"to_device, ahead={ahead}, {columns}",
            functools.partial(feedline_ahead, columns, ahead, False),
            group=group,
        )
    contest.add(
        f"to_device, pinned already, {columns}",
        functools.partial(feedline_ahead, columns, 1, True),
        group=group,
    )

if __name__ == "__main__":
    contest.main()
