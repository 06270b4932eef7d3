"""Let Prometheus watch a training: a loader's numbers as a file in its text format, replaced every so many batches.

    python examples/prometheus_monitor.py [feedline.prom]

The node exporter reads such files (`--collector.textfile.directory`), so a training needs no port of its own. A good alert is
`rate(feedline_wait_seconds_total[5m]) / rate(feedline_wall_seconds_total[5m]) > 0.2`: the step waits for data.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from feedline import ArrayDataset, DataLoader, LoaderStats

#: Name, kind and meaning of what is told; a counter's name ends with `_total`.
METRICS = (
    ("items", "counter", "Items that the training loop received."),
    ("batches", "counter", "Batches that the training loop received."),
    ("failed_items", "counter", "Items that could not be had."),
    ("wall_seconds", "counter", "Seconds of iterating."),
    ("wait_seconds", "counter", "Of these, seconds in which the training loop waited for data."),
    ("fetch_seconds", "counter", "Seconds of fetching, of all workers."),
    ("transform_seconds", "counter", "Seconds of transforming, of all workers."),
    ("collate_seconds", "counter", "Seconds of collating, of all workers."),
    ("memory_bytes", "gauge", "Memory of worker processes."),
    ("num_workers", "gauge", "Workers."),
)


def exposition(stats: LoaderStats, job: str) -> str:
    """Return `stats` in Prometheus' text format."""
    lines = []
    for name, kind, meaning in METRICS:
        full = f"feedline_{name}{'_total' if kind == 'counter' else ''}"
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
        lines.append(f'{full}{{job="{job}"}} {getattr(stats, name)}')
    return "\n".join(lines) + "\n"


class PrometheusFile:
    """Replaces the file in one step, so that nobody reads half of one."""

    def __init__(self, path: Path, job: str) -> None:
        self._path = path
        self._job = job

    def __call__(self, stats: LoaderStats) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(exposition(stats, self._job))
        partial.replace(self._path)


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "feedline.prom")
    rows = ArrayDataset(np.random.default_rng(0).random((20_000, 32)), np.arange(20_000))
    with DataLoader(rows, batch_size=100, shuffle=True, num_workers=2) as loader:
        loader.on_stats(PrometheusFile(path, job="train"), every=50)
        weights = np.zeros(32)
        for x, y in loader:
            weights += 1e-9 * x.T @ (y - x @ weights)
    print(path.read_text())


if __name__ == "__main__":
    main()
