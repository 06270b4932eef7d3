"""Rows on disk: random batches out of an `.ndf` file, from the page cache and from the disk.

    python -m benchmarks.rows_on_disk [--quick] [--gib 4] [--row-bytes 1024] [--batch 256] [--rounds 5] [--folder DIR]

Every system runs in its own process, for as long as the comparison takes, and is told when to run a round: rounds
alternate, so that what else happens on the machine meets all alike. A warm round reads the same batches in every system;
before a cold one the file is dropped from the page cache (`POSIX_FADV_DONTNEED`), and the batches
are others, so that nobody finds what the one before him has read. Told are medians, the range, CPU
seconds, and the ratio to the limit of the same kind, which is the best that can be written by hand:

- read, warm: one `os.preadv` a row, straight into the batch.
- read, cold: `posix_fadvise(WILLNEED)` for every row of the next four batches, then the same.
- mapped: a memory map with `MADV_RANDOM`, and `np.take(..., out=)` of rows as bytes; cold with hints likewise.

Peers are optional: torch's `DataLoader` with two workers over a memory map, as people write it.

What was found (two cores, 1 KiB rows, batches of 256):

- Reading into a scratch block with buffers made once, and copying from there, is faster than `preadv` straight into
  the batch: two fresh memory views a row cost more than copying a row that lies in the cache. Splitting off labels is
  then free, where a scattered read into two buffers costs a fifth.
- `np.take` of a map as bytes is twice as fast as indexing the unaligned float64 view, and ten times as fast as reads.
- Hints cost more than half of a warm read each, so a few probes a batch (`RWF_NOWAIT`) decide whether they are given.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks._contest import write_json

HEADER_BYTES = 28
AHEAD = 4

Batches = list[np.ndarray]


def write_file(path: str, n: int, d: int) -> None:
    from feedline.ndf.writer import NdfWriter

    rng = np.random.default_rng(0)
    block = max(1, 2**24 // (8 * d))
    with NdfWriter(path, d) as writer:
        for start in range(0, n, block):
            writer.append(rng.random((min(block, n - start), d)))


def read_by_hand(path: str, n: int, d: int, ahead: int) -> Callable[[Batches], None]:
    fd = os.open(path, os.O_RDONLY)
    row_bytes = 8 * d

    def run(batches: Batches) -> None:
        out = np.empty((len(batches[0]), d))
        octets = memoryview(out).cast("B")
        for number, batch in enumerate(batches):
            if ahead:
                hint_ahead(fd, batches, number, ahead, row_bytes)
            for at, offset in enumerate((batch * row_bytes + HEADER_BYTES).tolist()):
                os.preadv(fd, [octets[at * row_bytes : (at + 1) * row_bytes]], offset)

    return run


def hint_ahead(fd: int, batches: Batches, number: int, ahead: int, row_bytes: int) -> None:
    for batch in batches[number + ahead : number + ahead + 1] if number else batches[1 : ahead + 1]:
        for offset in (batch * row_bytes + HEADER_BYTES).tolist():
            os.posix_fadvise(fd, offset, row_bytes, os.POSIX_FADV_WILLNEED)


def map_by_hand(path: str, n: int, d: int, ahead: int) -> Callable[[Batches], None]:
    fd = os.open(path, os.O_RDONLY)
    mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    rows = np.frombuffer(mapped, np.uint8, offset=HEADER_BYTES).reshape(n, 8 * d)

    def run(batches: Batches) -> None:
        out = np.empty((len(batches[0]), d))
        octets = out.view(np.uint8)
        for number, batch in enumerate(batches):
            if ahead:
                hint_ahead(fd, batches, number, ahead, 8 * d)
            np.take(rows, batch, axis=0, out=octets, mode="clip")

    return run


def take_rows(path: str, n: int, d: int, ahead: int, **options: object) -> Callable[[Batches], None]:
    from feedline.datasets.ndf import NdfDataset

    dataset = NdfDataset(path, **options)

    def run(batches: Batches) -> None:
        outs = [np.empty((len(batches[0]), *spec.shape), spec.dtype) for spec in dataset.row_specs]
        allocate = {spec.shape: out for spec, out in zip(dataset.row_specs, outs)}
        for number, batch in enumerate(batches):
            # As a loader does, cold or warm: it can't know.
            for later in batches[number + AHEAD : number + AHEAD + 1] if number else batches[1 : AHEAD + 1]:
                dataset.prefetch(later)
            dataset.take(batch, lambda shape, dtype: allocate[shape[1:]])

    return run


def take_without_hints(path: str, n: int, d: int, ahead: int) -> Callable[[Batches], None]:
    from feedline.datasets.ndf import NdfDataset

    dataset = NdfDataset(path)

    def run(batches: Batches) -> None:
        outs = [np.empty((len(batches[0]), *spec.shape), spec.dtype) for spec in dataset.row_specs]
        for batch in batches:
            dataset.take_into(batch, outs)

    return run


def load(path: str, n: int, d: int, ahead: int) -> Callable[[Batches], None]:
    import feedline

    dataset = feedline.NdfDataset(path)

    class Given:
        def __init__(self, indices: np.ndarray) -> None:
            self.indices = indices

        def order(self, length: int, epoch: int) -> np.ndarray:
            return self.indices

    def run(batches: Batches) -> None:
        sampler = Given(np.concatenate(batches))
        for _ in feedline.DataLoader(dataset, batch_size=len(batches[0]), sampler=sampler):
            pass

    return run


def torch_workers(path: str, n: int, d: int, ahead: int) -> Callable[[Batches], None]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Mapped(Dataset):
        def __init__(self) -> None:
            self.rows = np.memmap(path, np.float64, "r", HEADER_BYTES, (n, d))

        def __len__(self) -> int:
            return n

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.from_numpy(np.array(self.rows[index]))

    dataset = Mapped()

    def run(batches: Batches) -> None:
        for _ in DataLoader(dataset, batch_sampler=[batch.tolist() for batch in batches], num_workers=2):
            pass

    return run


# name: (limit that it is compared with, what makes a round)
SYSTEMS = {
    "hand: preadv": ("", lambda *a: read_by_hand(*a)),
    "hand: map + take": ("", lambda *a: map_by_hand(*a)),
    "feedline take": ("hand: preadv", lambda *a: take_rows(*a)),
    "feedline take, no hints": ("hand: preadv", lambda *a: take_without_hints(*a)),
    "feedline take, float32": ("hand: preadv", lambda *a: take_rows(*a, dtype="float32")),
    "feedline take, mmap": ("hand: map + take", lambda *a: take_rows(*a, mmap=True)),
    "feedline loader": ("hand: preadv", lambda *a: load(*a)),
    "torch, 2 workers, map": ("hand: preadv", lambda *a: torch_workers(*a)),
}
# What would only repeat another row.
WARM_ONLY = {"feedline take, float32", "feedline take, no hints"}


def serve(name: str, path: str, n: int, d: int, batch: int) -> None:
    """Run rounds as the lines on standard input ask for: `<warm|cold> <batches> <seed>`; answer seconds as JSON."""
    for line in sys.stdin:
        kind, count, seed = line.split()
        try:
            # Anew for each round, and gone after it: pages that somebody maps are not dropped from the cache.
            run = SYSTEMS[name][1](path, n, d, AHEAD if kind == "cold" else 0)
            rng = np.random.default_rng(int(seed))
            batches = [rng.integers(0, n, batch) for _ in range(int(count))]
            cpu, start = time.process_time(), time.perf_counter()
            run(batches)
            told = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
            del run
            gc.collect()
        except (ImportError, AttributeError) as error:
            told = {"missing": str(error)}
        print(json.dumps(told), flush=True)


@contextlib.contextmanager
def servers(names: list[str], arguments: list[str]) -> Iterator[dict[str, subprocess.Popen[str]]]:
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.rows_on_disk", "--serve", name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    }
    try:
        yield started
    finally:
        for process in started.values():
            process.stdin.close()
            process.wait(timeout=60)
            process.stdout.close()


def ask(process: subprocess.Popen[str], kind: str, count: int, seed: int) -> dict[str, float]:
    process.stdin.write(f"{kind} {count} {seed}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    return json.loads(line) if line else {"missing": f"ended with exit code {process.wait()}"}


def drop_from_cache(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def warm_up(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(2**24):
            pass


def compare(
    kind: str, path: str, systems: dict[str, subprocess.Popen[str]], rounds: int, count: int, batch: int
) -> dict[str, list[float]]:
    results: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    if kind == "warm":
        warm_up(path)
    for number in range(rounds + 1):
        for place, (name, process) in enumerate(systems.items()):
            if results[name] and "missing" in results[name][-1]:
                continue
            if kind == "cold":
                drop_from_cache(path)
            told = ask(process, kind, count, number if kind == "warm" else number * 100 + place)
            # The first round only warms up: imports, descriptors, page tables.
            if number or "missing" in told:
                results[name].append(told)
    print(f"\n{kind}: thousand rows/s (min to max), CPU seconds per million rows, ratio to its limit")
    rows = count * batch
    speeds = {
        name: [rows / told["seconds"] / 1e3 for told in tolds]
        for name, tolds in results.items()
        if "missing" not in tolds[-1]
    }
    for name, tolds in results.items():
        if name not in speeds:
            print(f"  {name:26} left out: {tolds[-1]['missing']}")
            continue
        limit = SYSTEMS[name][0]
        ratio = statistics.median(a / b for a, b in zip(speeds[name], speeds[limit])) if limit else 1.0
        cpu = statistics.median(told["cpu"] for told in tolds) / rows * 1e6
        low, high = min(speeds[name]), max(speeds[name])
        print(
            f"  {name:26} {statistics.median(speeds[name]):7.0f} ({low:.0f} to {high:.0f})  {cpu:6.2f}  {ratio:5.2f}"
        )
    return speeds


def as_group(kind: str, speeds: dict[str, list[float]]) -> dict[str, object]:
    """Return what was found as `benchmarks/plot.py` reads it."""
    systems = []
    for name, values in speeds.items():
        found = {"name": name, "is_limit": not SYSTEMS[name][0], "is_peer": "feedline" not in name}
        limit = speeds[SYSTEMS[name][0] or name]
        ratio = statistics.median(a / b for a, b in zip(values, limit))
        systems.append({**found, "values": values, "median": statistics.median(values), "ratio": ratio})
    return {"group": kind, "systems": systems}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=4.0, help="size of the file (default 4)")
    parser.add_argument("--row-bytes", type=int, default=1024, help="size of a row (default 1024)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", default=None, help="where the file is written (default: the temporary folder)"
    )
    parser.add_argument("--only", default="", help="systems whose name contains this, and their limits")
    parser.add_argument("--quick", action="store_true", help="a file of 256 MiB and few batches")
    parser.add_argument(
        "--json", default="", metavar="FILE", help="write the figures there, too (or a folder)"
    )
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, path, *sizes = options.serve
        serve(name, path, *map(int, sizes))
        return
    if options.quick:
        options.gib, options.rounds = min(options.gib, 0.25), min(options.rounds, 3)
    d = options.row_bytes // 8
    n = int(options.gib * 2**30) // options.row_bytes
    groups = []
    counts = {"warm": 100 if options.quick else 400, "cold": 20 if options.quick else 60}
    names = [name for name in SYSTEMS if options.only in name]
    names = [name for name in SYSTEMS if name in names or any(SYSTEMS[other][0] == name for other in names)]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = str(Path(folder) / "rows.ndf")
        write_file(path, n, d)
        print(
            f"{n:,} rows of {options.row_bytes} bytes ({n * options.row_bytes / 2**30:.2f} GiB), batches of {options.batch}"
        )
        for kind, count in counts.items():
            chosen = [name for name in names if kind == "warm" or name not in WARM_ONLY]
            with servers(chosen, [path, str(n), str(d), str(options.batch)]) as systems:
                speeds = compare(kind, path, systems, options.rounds, count, options.batch)
            groups.append(as_group(kind, speeds))
    if options.json:
        write_json(options.json, "rows_on_disk", "thousand rows/s", groups)


if __name__ == "__main__":
    main()
