"""Write what a loader does to TensorBoard while it trains: items/s, the share of waiting, seconds of each stage.

    python examples/tensorboard_monitor.py [folder]

With a folder, and `tensorboardX` or `torch` with `tensorboard` installed, event files are written there; look at them with
`tensorboard --logdir folder`. Without one, the same scalars go to `scalars.csv`, and nothing has to be installed.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from feedline import ArrayDataset, DataLoader, LoaderStats


class CsvWriter:
    """Has the one method of a TensorBoard writer that is needed here."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="")
        self._rows = csv.writer(self._file)
        self._rows.writerow(["step", "tag", "value"])

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._rows.writerow([step, tag, value])

    def __enter__(self) -> CsvWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def open_writer(folder: str | None) -> Any:
    if folder is None:
        return CsvWriter(Path("scalars.csv"))
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(folder)


class Scalars:
    """Writes what happened since the last call; the step is the number of batches."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._before = LoaderStats()

    def __call__(self, stats: LoaderStats) -> None:
        recent, self._before = stats.since(self._before), stats
        for tag, value in (
            ("items_per_second", recent.items_per_second),
            ("wait_fraction", recent.wait_fraction),
            ("fetch_seconds", recent.fetch_seconds),
            ("transform_seconds", recent.transform_seconds),
            ("collate_seconds", recent.collate_seconds),
            ("failed_items", stats.failed_items),
        ):
            self._writer.add_scalar(f"feedline/{tag}", value, stats.batches)


def main() -> None:
    rows = ArrayDataset(np.random.default_rng(0).random((20_000, 32)), np.arange(20_000))
    loader = DataLoader(rows, batch_size=100, shuffle=True, num_workers=2)
    with open_writer(sys.argv[1] if len(sys.argv) > 1 else None) as writer, loader:
        loader.on_stats(Scalars(writer), every=50)
        weights = np.zeros(32)
        for _ in range(2):
            for x, y in loader:
                weights += 1e-9 * x.T @ (y - x @ weights)
        print(loader.report())


if __name__ == "__main__":
    main()
