"""Small files: 10,000 of 4 KiB from the page cache, shuffled, batches of 64 as lists of bytes; files/s, thousands.

    python -m benchmarks.small_files [--rounds N] [--only NAME]

The limit is a plain loop of `open` and `read` in one thread: with files in the page cache most of the time is Python's and
the system call's, and threads add hand-overs of the GIL. "By hand" is what people write: an executor that maps a function
over all files, or over batches of them.

What was found (two cores): a job per file costs as much as the file, so a batch is one job; asking for the size first and
reading it in one call is a third faster than `open(path, "rb").read()`.
"""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks._contest import Contest, Round

COUNT = 10_000
SIZE = 4096
BATCH = 64


def make_files() -> list[str]:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    content = random.Random(0).randbytes(SIZE)
    paths = [folder / f"{number:05}" for number in range(COUNT)]
    for path in paths:
        path.write_bytes(content)
    return [str(path) for path in paths]


def shuffled(paths: list[str]) -> list[str]:
    return random.Random(1).sample(paths, len(paths))


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_all(paths: list[str]) -> list[bytes]:
    return [read(path) for path in paths]


def loop() -> Round:
    paths = shuffled(make_files())
    return lambda: float(sum(len(read(path)) == SIZE for path in paths))


def pool_of_files(threads: int) -> Round:
    paths = shuffled(make_files())
    pool = ThreadPoolExecutor(threads)
    return lambda: float(sum(len(item) == SIZE for item in pool.map(read, paths)))


def pool_of_batches(threads: int) -> Round:
    paths = shuffled(make_files())
    pool = ThreadPoolExecutor(threads)
    batches = [paths[start : start + BATCH] for start in range(0, COUNT, BATCH)]
    return lambda: float(sum(len(item) == SIZE for batch in pool.map(read_all, batches) for item in batch))


def feedline_loader(num_workers: int, **options: Any) -> Round:
    from feedline.datasets.files import FileDataset
    from feedline.loader.dataloader import DataLoader

    dataset = FileDataset(make_files())
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=num_workers, collate_fn=list, **options)
    return lambda: float(sum(len(item) == SIZE for batch in loader for item in batch))


def torch_loader(num_workers: int) -> Round:
    from torch.utils.data import DataLoader

    class Files:
        def __init__(self) -> None:
            self.paths = make_files()

        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> bytes:
            return read(self.paths[index])

    loader = DataLoader(
        Files(),  # type: ignore[arg-type]
        BATCH,
        shuffle=True,
        num_workers=num_workers,
        collate_fn=list,
        persistent_workers=num_workers > 0,
    )
    return lambda: float(sum(len(item) == SIZE for batch in loader for item in batch))


if __name__ == "__main__":
    contest = Contest("benchmarks.small_files", "thousand files/s", 1e3)
    contest.add("a loop of open and read", loop, is_limit=True)
    contest.add("by hand: 2 threads, a job per file", lambda: pool_of_files(2))
    contest.add("by hand: 8 threads, a job per file", lambda: pool_of_files(8))
    contest.add("by hand: 2 threads, a job per batch", lambda: pool_of_batches(2))
    contest.add("feedline, 0 workers", lambda: feedline_loader(0))
    contest.add("feedline, 2 workers", lambda: feedline_loader(2))
    contest.add("feedline, 2 workers, 8 items at once", lambda: feedline_loader(2, item_concurrency=8))
    contest.add("torch, 0 workers", lambda: torch_loader(0), is_peer=True)
    contest.add("torch, 2 workers", lambda: torch_loader(2), is_peer=True)
    contest.main()
