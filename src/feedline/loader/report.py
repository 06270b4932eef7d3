"""What happened, in plain words: one screen for a terminal."""

from __future__ import annotations

from feedline.loader.stats import LoaderStats
from feedline.loader.verdict import BLOCKED, Verdict, blocked_share, judge

__all__ = ["report_text"]


def report_text(
    stats: LoaderStats,
    epoch_items: int | None = None,
    last_failure: str | None = None,
    note: str | None = None,
) -> str:
    """Return one screen about `stats`.

    Args:
        stats: what happened.
        epoch_items: how many items an epoch has, if that is known.
        last_failure: the last item's failure, in words.
        note: what else there is to say, such as what `num_workers="auto"` settled on.
    """
    verdict = judge(stats)
    if verdict.bottleneck == "none":
        return f"Nothing was loaded yet. {verdict.advice}"
    lines = [
        f"{stats}.",
        _resources(stats),
        _waiting(stats, verdict),
        _stages(stats, verdict),
        _free_data(stats, epoch_items),
        _failed(stats, last_failure),
        note,
        verdict.advice,
    ]
    return "\n".join(line for line in lines if line)


def _resources(stats: LoaderStats) -> str:
    rate = stats.size_bytes / stats.wall_seconds / 1e6
    text = f"About {_size(stats.size_bytes)} in batches ({rate:,.1f} MB/s)"
    if stats.source == "async":
        text += (
            f", {stats.in_flight:.1f} items in flight on average (item_concurrency={stats.item_concurrency})"
        )
    if not stats.num_workers:
        return f"{text}, no workers."
    kind = {"thread": "worker thread", "process": "worker process", "ray": "Ray actor"}.get(
        stats.worker_type, stats.worker_type
    )
    plural = "" if stats.num_workers == 1 else "es" if kind.endswith("s") else "s"
    text += f", {stats.num_workers} {kind}{plural}"
    if stats.memory_bytes:
        text += f" with {_size(stats.memory_bytes)} of memory between them"
    return f"{text}."


def _waiting(stats: LoaderStats, verdict: Verdict) -> str:
    text = f"Your step waits for data {stats.wait_fraction:.0%} of the time"
    if verdict.bottleneck == "start":
        times = "" if stats.epochs == 1 else f" {stats.epochs:,} times"
        text += f", nearly all of it{times} for the first batch of an epoch"
    return f"{text}."


def _stages(stats: LoaderStats, verdict: Verdict) -> str:
    total = stats.loading_seconds
    if total <= 0:
        return ""
    shares = ", ".join(
        f"{name} {seconds / total:.0%}"
        for name, seconds in (
            ("fetch", stats.fetch_seconds),
            ("transform", stats.transform_seconds),
            ("collate", stats.collate_seconds),
        )
    )
    text = f"Of the loading: {shares}."
    if verdict.bottleneck in ("step", "start"):
        return text
    text += f" {verdict.bottleneck.capitalize()} is the slowest stage"
    if verdict.limit == "gil" and verdict.gil_fraction is not None:
        text += f", and workers hold the GIL {verdict.gil_fraction:.0%} of the time"
    elif blocked_share(stats) >= BLOCKED and verdict.limit in ("waiting", "reader"):
        text += f", and waits {blocked_share(stats):.0%} of its time"
    return text + "."


def _free_data(stats: LoaderStats, epoch_items: int | None) -> str:
    if not epoch_items or not stats.items:
        return ""
    now = stats.wall_seconds / stats.items * epoch_items
    free = stats.step_seconds / stats.items * epoch_items
    return f"With free data an epoch would take {_seconds(free)} instead of {_seconds(now)}."


def _failed(stats: LoaderStats, last_failure: str | None) -> str:
    if not (stats.failed_items or stats.failed_batches):
        return ""
    parts = []
    if stats.failed_items:
        parts.append(f"{stats.failed_items:,} item{'' if stats.failed_items == 1 else 's'} failed")
    if stats.failed_batches:
        raised = f"{stats.failed_batches:,} batch{'' if stats.failed_batches == 1 else 'es'}"
        parts.append(f"{raised} raised an error")
    text = ", ".join(parts)
    if last_failure is not None:
        text += f"; the last was {last_failure}"
    return f"{text}{' (loader.failures has all)' if stats.failed_items else ''}."


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:,.1f} MB"


def _seconds(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:,.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"
