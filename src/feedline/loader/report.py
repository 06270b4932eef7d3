"""What happened, in plain words: which side waits, which stage is the bottleneck, what to change.

Note [the GIL]
    Worker threads that hold the GIL run one after the other, however many there are. It shows in the processor time:
    workers that are busy all the time, and together use about one core, are held up by the GIL, where more cores are
    free; workers that use less wait for something else (a disk, a network, a lock). If workers keep `c` cores busy
    between them, the GIL was held about `1 / c` of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from feedline.loader.stats import LoaderStats, cores

__all__ = ["Verdict", "judge", "report_text"]

#: Below this share of waiting, data is not what a run waits for.
ENOUGH = 0.05
#: Workers that load for this share of the time have no time left.
BUSY = 0.7


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the numbers say.

    Attributes:
        bottleneck: `"step"` (the consumer), `"fetch"`, `"transform"`, `"collate"`, or `"none"` before anything ran.
        limit: why it is not faster: `"gil"`, `"waiting"` (on disk, network, locks), `"cpu"` (all cores are busy),
            `"workers"` (more of them would help), or `"none"`.
        gil_fraction: share of the time that workers held the GIL, where it can be told; else `None`.
        advice: what to change.
    """

    bottleneck: str
    limit: str
    gil_fraction: float | None
    advice: str


def judge(stats: LoaderStats) -> Verdict:
    """Return the verdict on `stats`. Determinism: depends on the numbers and this machine's cores alone."""
    if not stats.batches or stats.wall_seconds <= 0:
        return Verdict("none", "none", None, "Iterate over the loader first.")
    if stats.wait_fraction < ENOUGH:
        return Verdict("step", "none", None, "Loading keeps up: make the training step faster, if anything.")
    stage = _slowest(stats)
    if stats.num_workers == 0:
        advice = (
            "Everything runs in the calling thread: use num_workers=2 or more, so that batches are loaded while "
            "you train; then this report tells whether threads suffice."
        )
        return Verdict(stage, "workers", None, advice)
    used = stats.cpu_seconds / stats.wall_seconds
    busy = stats.loading_seconds / (stats.wall_seconds * stats.num_workers)
    if (
        stats.worker_type == "thread"
        and stats.num_workers > 1
        and cores() > 1
        and busy >= BUSY
        and 0.8 <= used <= 1.25
    ):
        return Verdict(stage, "gil", min(1.0, 1 / used), _gil_advice(stage))
    if used >= 0.9 * min(stats.num_workers, cores()):
        return _cpu_bound(stats, stage)
    if busy < BUSY:
        advice = "Workers are idle part of the time: a larger prefetch_depth lets them run further ahead."
        return Verdict(stage, "workers", None, advice)
    return Verdict(stage, "waiting", None, _waiting_advice(stats, stage))


def _slowest(stats: LoaderStats) -> str:
    seconds = {
        "fetch": stats.fetch_seconds,
        "transform": stats.transform_seconds,
        "collate": stats.collate_seconds,
    }
    return max(seconds, key=seconds.__getitem__)


def _gil_advice(stage: str) -> str:
    if stage == "collate":
        return "Use worker_type='process', or a collate_fn that leaves the work to NumPy."
    return "Use worker_type='process', or a step that releases the GIL (NumPy, OpenCV and decoders do)."


def _cpu_bound(stats: LoaderStats, stage: str) -> Verdict:
    if stats.num_workers < cores():
        advice = f"Workers use all the processor time that they can: use num_workers={cores()}, this machine's cores."
        return Verdict(stage, "workers", None, advice)
    advice = f"All {cores()} cores are busy: make {stage} cheaper, or do part of it once, ahead of training."
    return Verdict(stage, "cpu", None, advice)


def _waiting_advice(stats: LoaderStats, stage: str) -> str:
    what = (
        "items are waited for"
        if stage == "fetch"
        else f"{stage} waits for something (a lock, a device, a file)"
    )
    return (
        f"Processors are idle while {what}: use more workers (num_workers={2 * stats.num_workers}), or "
        f"item_concurrency=8, so that more is under way at once."
    )


def report_text(stats: LoaderStats, epoch_items: int | None) -> str:
    """Return one screen about `stats`; `epoch_items` is how many items an epoch has, if that is known."""
    verdict = judge(stats)
    if verdict.bottleneck == "none":
        return f"Nothing was loaded yet. {verdict.advice}"
    lines = [
        f"{stats}.",
        f"{_megabytes(stats)}, {stats.num_workers or 'no'} worker{'' if stats.num_workers == 1 else 's'}"
        f"{f' ({stats.worker_type})' if stats.num_workers else ''}.",
        f"Your step waits for data {stats.wait_fraction:.0%} of the time.",
        _stages(stats, verdict),
        _headroom_line(stats, epoch_items),
    ]
    if stats.failed_items:
        lines.append(f"{stats.failed_items:,} items failed: see loader.failures.")
    lines.append(verdict.advice)
    return "\n".join(line for line in lines if line)


def _megabytes(stats: LoaderStats) -> str:
    rate = stats.size_bytes / stats.wall_seconds / 1e6
    return f"About {stats.size_bytes / 1e6:,.1f} MB in batches ({rate:,.1f} MB/s)"


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
    if verdict.bottleneck == "step":
        return text
    text += f" {verdict.bottleneck.capitalize()} is the slowest stage"
    if verdict.gil_fraction is not None:
        text += f", and holds the GIL {verdict.gil_fraction:.0%} of the time"
    return text + "."


def _headroom_line(stats: LoaderStats, epoch_items: int | None) -> str:
    if not epoch_items or not stats.items:
        return ""
    now = stats.wall_seconds / stats.items * epoch_items
    free = stats.step_seconds / stats.items * epoch_items
    return f"With free data an epoch would take {_seconds(free)} instead of {_seconds(now)}."


def _seconds(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds >= 10
        else f"{seconds:.2g} s"
        if seconds >= 0.01
        else f"{seconds * 1e3:.2g} ms"
    )
