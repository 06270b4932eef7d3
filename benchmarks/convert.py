"""Converting a corpus: an `.npy` file of float64 (256 MiB, rows of 512 bytes) to one `.ndf` file, and to shards.

    python -m benchmarks.convert [--rounds N] [--only NAME]

The limit writes the same bytes, which lie in memory, with one `os.write` for each 4 MiB, and forces them to the disk: no
conversion can be done before that. It knows no checksums, and reads nothing. Files lie in a folder beside this one
(`FEEDLINE_BENCH_FOLDER` names another), since a temporary folder is often in memory; each round removes what it wrote.

What was found (two cores that were busy otherwise, a disk of 150 to 300 MiB/s):

- One file and four shards are at the limit (0.96 to 1.08 of it): what is written goes to the disk while more is written
  (`fdatasync` in a thread), where the limit first writes all, and then waits.
- A SHA-256 takes 0.2 CPU seconds of 0.4 for 256 MiB, in a thread beside the write; a CRC-32 of a single file's ranges a
  third of that. Before they ran beside each other, a conversion was at 0.7.
- Worker processes cost half a second each to start, and gain nothing here: the disk is the limit. They are for sources
  that have to be parsed, decoded or decompressed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import numpy as np

from benchmarks._contest import Contest, Round

ROWS = 2**19
WIDTH = 64
BYTES = ROWS * WIDTH * 8
BLOCK = 2**22


def folder() -> str:
    parent = os.environ.get(
        "FEEDLINE_BENCH_FOLDER", os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    )
    made = tempfile.mkdtemp(prefix=".bench-convert-", dir=parent)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def source() -> str:
    path = os.path.join(folder(), "rows.npy")
    np.save(path, np.random.default_rng(0).random((ROWS, WIDTH)))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return path


def limit() -> Round:
    data = memoryview(np.random.default_rng(0).random((ROWS, WIDTH))).cast("B")
    path = os.path.join(folder(), "rows")

    def run() -> float:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for start in range(0, BYTES, BLOCK):
            os.write(fd, data[start : start + BLOCK])
        os.fsync(fd)
        os.close(fd)
        os.unlink(path)
        return BYTES

    return run


def by_hand() -> Round:
    from feedline import NdfWriter

    path = source()
    target = path[:-4] + ".ndf"

    def run() -> float:
        x = np.load(path, mmap_mode="r")
        with NdfWriter(target, WIDTH) as writer:
            for start in range(0, ROWS, 8192):
                writer.append(x[start : start + 8192])
        os.unlink(target)
        return BYTES

    return run


def feedline_convert(name: str, workers: int, **options: int) -> Round:
    from feedline.convert import convert

    path = source()
    target = os.path.join(os.path.dirname(path), name)

    def run() -> float:
        convert(path, target, workers=workers, **options)
        if os.path.isdir(target):
            shutil.rmtree(target)
        else:
            os.unlink(target)
        return BYTES

    return run


contest = Contest("benchmarks.convert", "MiB/s", 2**20)
contest.add("limit: write the same bytes, fsync", limit, is_limit=True)
contest.add("a loop over a memory map, NdfWriter", by_hand)
contest.add("convert, one file", lambda: feedline_convert("rows.ndf", 1))
contest.add("convert, 4 shards", lambda: feedline_convert("shards", 1, num_shards=4))
contest.add("convert, 4 shards, 2 workers", lambda: feedline_convert("shards", 2, num_shards=4))

if __name__ == "__main__":
    contest.main()
