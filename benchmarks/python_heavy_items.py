"""Items that hold the GIL for about 200 microseconds: what worker processes are for. 16 floats each, batches of 64.

    python -m benchmarks.python_heavy_items [--rounds N] [--only NAME]

The limit is two processes that compute half of the items each and send nothing back.
"""

from __future__ import annotations

import multiprocessing

import numpy as np

from benchmarks._contest import Contest, Round

N = 6_400
BATCH = 64
WORKERS = 2
STEPS = 3_600


class HeavyItems:
    """Items that are pure Python for a while."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> np.ndarray:
        value = index
        for _ in range(STEPS):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        return np.full(16, value, np.float32)


def loop() -> Round:
    dataset = HeavyItems()

    def run() -> float:
        for start in range(0, N, BATCH):
            np.stack([dataset[index] for index in range(start, start + BATCH)])
        return N

    return run


def halves() -> Round:
    context = multiprocessing.get_context("fork")

    def work(pipe: multiprocessing.connection.Connection, first: int) -> None:
        dataset = HeavyItems()
        while pipe.recv():
            for start in range(first * BATCH, N, WORKERS * BATCH):
                np.stack([dataset[index] for index in range(start, start + BATCH)])
            pipe.send(True)

    pipes = []
    for number in range(WORKERS):
        ours, theirs = context.Pipe()
        context.Process(target=work, args=(theirs, number), daemon=True).start()
        pipes.append(ours)

    def run() -> float:
        for pipe in pipes:
            pipe.send(True)
        for pipe in pipes:
            pipe.recv()
        return N

    return run


def feedline_loader(**options: object) -> Round:
    import feedline

    loader = feedline.DataLoader(HeavyItems(), BATCH, **options)

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def torch_loader() -> Round:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        HeavyItems(), BATCH, num_workers=WORKERS, persistent_workers=True, collate_fn=np.stack, shuffle=True
    )

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def grain_loader() -> Round:
    import grain

    dataset = grain.MapDataset.source(HeavyItems()).shuffle(seed=0).batch(BATCH).to_iter_dataset()
    dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))

    def run() -> float:
        for _ in dataset:
            pass
        return N

    return run


contest = Contest("benchmarks.python_heavy_items", "items/s")
contest.add("limit: two processes, nothing sent", halves, is_limit=True)
contest.add("a loop with np.stack", loop)
contest.add(
    "feedline, 2 processes",
    lambda: feedline_loader(num_workers=WORKERS, worker_type="process", shuffle=True),
)
contest.add("feedline, 2 threads", lambda: feedline_loader(num_workers=WORKERS, shuffle=True))
contest.add("torch, 2 processes", torch_loader, is_peer=True)
contest.add("Grain, 2 processes", grain_loader, is_peer=True)

if __name__ == "__main__":
    contest.main()
