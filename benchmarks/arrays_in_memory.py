"""Arrays in memory: X float32 (1,000,000 x 64) and y int64, shuffled, in batches of 256 and 4,096.

    python -m benchmarks.arrays_in_memory [--rounds N] [--only NAME]

The limit gathers batches along a permutation that is there already, into the same two arrays again and again. Every
system that shuffles makes a new permutation for each epoch, inside of its round.

What was found (two cores):

- The shuffle itself (`RandomState.shuffle` over MT19937: frozen for ever, and one step after another) takes 14 ns a row
  on a quick processor and 24 to 70 here: 12 of arithmetic, the rest for places that lie in no near cache. It can't be hidden, since
  it holds the GIL, nor be cut into slices, since the first place is settled last. "np.take(out=) and a permutation" is what is
  left of the limit with it; without it the loader is at 0.9 of the limit with one thread, and at 1.15 (batches of 256) to 1.35
  (of 4,096) with two.
- Small batches are gathered in groups of 4,096 rows and handed out as views: one `take` for sixteen batches of 256.
- Fresh memory costs more than the copy, through page faults: blocks come from the pool.
"""

from __future__ import annotations

import numpy as np

from benchmarks._contest import Contest, Round

N = 1_000_000
D = 64


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((N, D), dtype=np.float32), np.arange(N)


def limit(batch: int, draw: bool = False) -> Round:
    x, y = arrays()
    order = np.random.default_rng(1).permutation(N)
    state = np.random.RandomState(2)
    out_x, out_y = np.empty((batch, D), np.float32), np.empty(batch, np.int64)

    def run() -> float:
        if draw:
            state.shuffle(order)
        for start in range(0, N - batch + 1, batch):
            rows = order[start : start + batch]
            np.take(x, rows, axis=0, out=out_x, mode="clip")
            np.take(y, rows, axis=0, out=out_y, mode="clip")
        return N

    return run


def indexing(batch: int) -> Round:
    x, y = arrays()

    def run() -> float:
        order = np.random.permutation(N)
        for start in range(0, N, batch):
            rows = order[start : start + batch]
            x[rows], y[rows]
        return N

    return run


def feedline_loader(batch: int, num_workers: int, shuffle: bool = True) -> Round:
    import feedline

    loader = feedline.DataLoader(
        feedline.ArrayDataset(*arrays()), batch, shuffle=shuffle, num_workers=num_workers
    )

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def constant_memory(batch: int) -> Round:
    import feedline

    sampler = feedline.RandomSampler(0, memory="constant")
    loader = feedline.DataLoader(feedline.ArrayDataset(*arrays()), batch, sampler=sampler)

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def torch_batches(batch: int, num_workers: int) -> Round:
    import torch
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    x, y = arrays()
    dataset = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    sampler = BatchSampler(RandomSampler(dataset), batch, False)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=num_workers)

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def torch_items(batch: int, num_workers: int) -> Round:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    x, y = arrays()
    count = N // 10  # a tenth of the rows: it is slow
    dataset = TensorDataset(torch.from_numpy(x[:count]), torch.from_numpy(y[:count]))
    loader = DataLoader(dataset, batch, shuffle=True, num_workers=num_workers)

    def run() -> float:
        for _ in loader:
            pass
        return count

    return run


contest = Contest("benchmarks.arrays_in_memory", "million rows/s", 1e6)
for size in (256, 4096):
    group = f"batches of {size}"
    contest.add(f"limit: np.take(out=), {size}", lambda b=size: limit(b), group=group, is_limit=True)
    contest.add(f"np.take(out=) and a permutation, {size}", lambda b=size: limit(b, draw=True), group=group)
    contest.add(f"X[rows], {size}", lambda b=size: indexing(b), group=group)
    contest.add(f"feedline, {size}", lambda b=size: feedline_loader(b, 0), group=group)
    contest.add(
        f"feedline, in order, {size}", lambda b=size: feedline_loader(b, 0, shuffle=False), group=group
    )
    contest.add(f"feedline, 2 threads, {size}", lambda b=size: feedline_loader(b, 2), group=group)
    contest.add(f'feedline, memory="constant", {size}', lambda b=size: constant_memory(b), group=group)
    contest.add(
        f"torch, batch sampler as sampler, {size}",
        lambda b=size: torch_batches(b, 0),
        group=group,
        is_peer=True,
    )
    contest.add(
        f"torch, the same, 2 workers, {size}", lambda b=size: torch_batches(b, 2), group=group, is_peer=True
    )
    contest.add(f"torch, TensorDataset, {size}", lambda b=size: torch_items(b, 0), group=group, is_peer=True)

if __name__ == "__main__":
    contest.main()
