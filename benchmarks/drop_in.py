"""feedline's drop-in against torch's own loader, on the same datasets with the same arguments.

    python -m benchmarks.drop_in [--rounds N] [--only NAME]

- arrays: a `TensorDataset` of 1,000,000 x 64 float32 and int64 labels, shuffled; as everybody writes it, and with a batch
  sampler passed as `sampler`
- items: a Python dataset that returns 16 floats, batches of 64
- heavy items: a Python dataset that holds the GIL for 200 microseconds an item, batches of 32, 2 workers
- images: JPEGs decoded by Pillow and cropped, batches of 64 (where Pillow and simplejpeg are installed)

The limit of each group is torch's own loader: what stands below 1.00 is slower than what it takes the place of. A
round with workers begins with workers that are there already (`persistent_workers=True`), and ends with its last batch.
"""

from __future__ import annotations

import functools
import io
import time
from typing import Any

import numpy as np

from benchmarks._contest import Contest, Round

N = 1_000_000
D = 64


def table(n: int) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(
        torch.from_numpy(np.random.default_rng(0).random((n, D), dtype=np.float32)), torch.arange(n)
    )


class Rows:
    """Items that cost next to nothing."""

    def __init__(self, n: int = 100_000) -> None:
        self.rows = np.random.default_rng(0).random((n, 16), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.rows[index]


class Heavy:
    """Items that hold the GIL for 200 microseconds."""

    def __init__(self, n: int = 10_000) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> np.ndarray:
        end = time.perf_counter() + 200e-6
        while time.perf_counter() < end:
            pass
        return np.full(16, index, np.float32)


class Images:
    """JPEGs in memory, decoded by Pillow as the usual recipe does it."""

    def __init__(self, n: int = 400) -> None:
        from PIL import Image

        rng = np.random.default_rng(0)
        self.files = []
        for _ in range(16):
            small = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            picture = Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
            memory = io.BytesIO()
            picture.save(memory, "JPEG", quality=90)
            self.files.append(memory.getvalue())
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        import torch
        from PIL import Image

        picture = Image.open(io.BytesIO(self.files[index % 16])).convert("RGB")
        picture = picture.resize((224, 224), Image.Resampling.BILINEAR, box=(20, 20, 320, 320))
        tensor = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float().div_(255)
        return tensor, index


def loader(kind: str, make_dataset: Any, **options: Any) -> Round:
    import torch

    import feedline.torch

    dataset = make_dataset()
    loaders = {"torch": torch.utils.data.DataLoader, "feedline": feedline.torch.DataLoader}
    if options.pop("batches_as_sampler", False):
        from torch.utils.data import BatchSampler, RandomSampler

        options |= {
            "sampler": BatchSampler(RandomSampler(dataset), options["batch_size"], False),
            "batch_size": None,
        }
    if options.get("num_workers") and options.get("worker_type") != "thread":
        options["persistent_workers"] = True
    loading = loaders[kind](dataset, **options)

    def run() -> float:
        for _ in loading:
            pass
        return len(dataset)

    return run


contest = Contest("benchmarks.drop_in", "thousand items/s", 1e3, rounds=3)


def compare(group: str, make_dataset: Any, *, threads: bool = False, **options: Any) -> None:
    """Add torch's loader, feedline's drop-in, and its threads."""
    contest.add(
        f"torch: {group}",
        functools.partial(loader, "torch", make_dataset, **options),
        group=group,
        is_limit=True,
    )
    contest.add(
        f"feedline: {group}", functools.partial(loader, "feedline", make_dataset, **options), group=group
    )
    if threads:
        contest.add(
            f"feedline, threads: {group}",
            functools.partial(loader, "feedline", make_dataset, worker_type="thread", **options),
            group=group,
        )


few = functools.partial(table, 100_000)
for size in (256, 4096):
    compare(f"arrays, batches of {size}", few, batch_size=size, shuffle=True)
    compare(
        f"arrays, batch sampler, {size}",
        functools.partial(table, N),
        batch_size=size,
        batches_as_sampler=True,
    )
compare("arrays, 2 workers", few, threads=True, batch_size=256, shuffle=True, num_workers=2)
compare("items", Rows, batch_size=64)
compare("items, np.stack", Rows, batch_size=64, collate_fn=np.stack)
compare("items, 2 workers", Rows, threads=True, batch_size=64, num_workers=2)
compare("heavy items, 2 workers", Heavy, batch_size=32, num_workers=2)
compare("images", Images, batch_size=64)
compare("images, 2 workers", Images, threads=True, batch_size=64, num_workers=2)

if __name__ == "__main__":
    contest.main()
