"""What one item costs: a Python dataset that returns 16 floats, batches of 64.

    python -m benchmarks.cost_per_item [--rounds N] [--only NAME]

What was found (two cores): of the 620 ns that an item takes in a loop with `np.stack`, the stack takes 490; joining equal,
contiguous arrays as bytes takes 60. Between the loop and the consumer a batch costs about 2 microseconds in the
calling thread, where nothing has to be decided on the way, and about 15 through a worker thread: threads pay for items
that release the GIL, not for these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._contest import Contest, Round

N = 200_000
BATCH = 64


class Rows:
    """Items that cost next to nothing."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).random((N, 16), dtype=np.float32)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> np.ndarray:
        return self.rows[index]


def loop(join: Any) -> Round:
    dataset = Rows()

    def run() -> float:
        for start in range(0, N, BATCH):
            batch = [dataset[index] for index in range(start, min(start + BATCH, N))]
            if join is not None:
                join(batch)
        return N

    return run


def join_bytes(batch: list[np.ndarray]) -> np.ndarray:
    return np.frombuffer(bytearray(b"").join(batch), np.float32).reshape(len(batch), -1)


def feedline_loader(**options: Any) -> Round:
    import feedline

    loader = feedline.DataLoader(Rows(), BATCH, **options)

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def torch_loader(**options: Any) -> Round:
    from torch.utils.data import DataLoader

    loader = DataLoader(Rows(), BATCH, **options)

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def grain_loader() -> Round:
    import grain

    dataset = grain.MapDataset.source(Rows()).batch(BATCH)

    def run() -> float:
        for _ in dataset:
            pass
        return N

    return run


contest = Contest("benchmarks.cost_per_item", "thousand items/s", 1e3)
contest.add("a loop, without collating", lambda: loop(None))
contest.add("a loop, joined as bytes", lambda: loop(join_bytes))
contest.add("limit: a loop with np.stack", lambda: loop(np.stack), is_limit=True)
contest.add("feedline, default_collate", lambda: feedline_loader())
contest.add("feedline, np.stack", lambda: feedline_loader(collate_fn=np.stack))
contest.add("feedline, shuffled", lambda: feedline_loader(shuffle=True))
contest.add("feedline, with a transform", lambda: feedline_loader(transform=lambda item: item))
contest.add("feedline, 2 threads", lambda: feedline_loader(num_workers=2))
contest.add("torch, np.stack", lambda: torch_loader(collate_fn=np.stack), is_peer=True)
contest.add("torch, default collate", lambda: torch_loader(), is_peer=True)
contest.add(
    "torch, 2 workers, np.stack", lambda: torch_loader(collate_fn=np.stack, num_workers=2), is_peer=True
)
contest.add("Grain", grain_loader, is_peer=True)

if __name__ == "__main__":
    contest.main()
