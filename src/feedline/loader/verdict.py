"""`judge`: which side waits, which stage is the bottleneck, why it is not faster, what to change. Pure.

Note [the GIL]
    Worker threads that hold the GIL run one after the other, however many there are. What tells is how often it was held
    while the consumer waited: see Note [looking] in lookout. Where nobody has looked (short waits, or a system that does not
    tell), processor time has to do: threads that are busy all the time, and use about one core between them, hold each other
    up. That guess fails where other programs take the processors.
"""

from __future__ import annotations

from dataclasses import dataclass

from feedline.loader.stats import LoaderStats

__all__ = ["Verdict", "blocked_share", "gil_share", "judge", "working_share"]

#: Below this share of waiting, data is not what a run waits for.
ENOUGH = 0.05
#: So many looks say something.
MIN_LOOKS = 5
#: While the consumer waits, this share of the workers must have work, or the window is too narrow.
BUSY = 0.6
#: The GIL is what holds workers up if it is held for this share of the time.
GIL_BOUND = 0.75
#: Items that wait for a disk or a network leave it free for longer than this.
GIL_IN_USE = 0.4
#: Workers that wait for this share of their time wait more than they work.
BLOCKED = 0.5
#: Seconds that a batch must take to be loaded for a hand-over from a worker to be worth its cost.
CHEAP_SECONDS = 0.0005
#: More workers are not advised, whatever the numbers say.
MOST_WORKERS = 64
MOST_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the numbers say.

    Attributes:
        bottleneck: `"step"` (the consumer), `"fetch"`, `"transform"`, `"collate"`, `"start"` (the first batch of an
            epoch), or `"none"` before anything ran.
        limit: why it is not faster: `"gil"`; `"waiting"` (on disk, network, locks); `"reader"` (a stream is read by one);
            `"cpu"` (all cores are busy); `"workers"` (more of them would help); `"window"` (workers are idle: too few
            batches may be under way); `"handover"` (batches cost less than handing them over); or `"none"`.
        gil_fraction: share of the time that the GIL was held, where that can be told and matters; else `None`.
        advice: what to change.
    """

    bottleneck: str
    limit: str
    gil_fraction: float | None
    advice: str


def gil_share(stats: LoaderStats) -> float | None:
    """Return the share of the time that workers held the GIL; `None` if they are processes or nobody can tell."""
    if stats.worker_type != "thread" or not stats.num_workers:
        return None
    if stats.looks >= MIN_LOOKS:
        return stats.gil_fraction
    if stats.num_workers < 2 or stats.cores < 2 or stats.wall_seconds <= 0:
        return None
    used = stats.cpu_seconds / stats.wall_seconds
    busy = stats.loading_seconds / (stats.wall_seconds * stats.num_workers)
    return min(1.0, 1 / used) if busy >= BUSY and 0.8 <= used <= 1.25 else 0.0


def blocked_share(stats: LoaderStats) -> float:
    """Return the share of their time that workers waited for something other than a processor."""
    enough = MIN_LOOKS if stats.num_workers else 1
    if stats.looks >= enough and stats.blocked_fraction is not None:
        return stats.blocked_fraction
    return max(0.0, 1 - stats.cpu_seconds / stats.loading_seconds) if stats.loading_seconds else 0.0


def working_share(stats: LoaderStats) -> float:
    """Return the share of the workers that had a batch in hand while the consumer waited."""
    if stats.looks >= MIN_LOOKS and stats.working_fraction is not None:
        return stats.working_fraction
    return min(1.0, stats.loading_seconds / (stats.wall_seconds * max(1, stats.num_workers)))


def judge(stats: LoaderStats) -> Verdict:
    """Return the verdict on `stats`. Determinism: depends on these numbers alone."""
    if not stats.batches or stats.wall_seconds <= 0:
        return Verdict("none", "none", None, "Iterate over the loader first.")
    if stats.wait_fraction < ENOUGH:
        return Verdict("step", "none", None, "Loading keeps up: make the training step faster, if anything.")
    stage = _slowest(stats)
    if stats.num_workers == 0:
        return _in_the_calling_thread(stats, stage)
    if _is_start(stats):
        return Verdict("start", "none", None, _start_advice(stats))
    blocked = blocked_share(stats)
    gil = gil_share(stats)
    # Workers that mostly wait for each other, the queue and the GIL seem blocked as well.
    is_cheap = stats.loading_seconds / stats.batches < CHEAP_SECONDS
    in_stages = stats.loading_seconds / (stats.wall_seconds * stats.num_workers)
    if is_cheap and (blocked < BLOCKED or in_stages < BUSY or (gil is not None and gil >= GIL_IN_USE)):
        return Verdict(stage, "handover", None, _handover_advice(stats))
    if working_share(stats) < BUSY:
        return Verdict(stage, "window", None, _window_advice(stats))
    if gil is not None and gil >= GIL_BOUND:
        return Verdict(stage, "gil", gil, _gil_advice(stats, stage))
    if stage == "fetch" and stats.source == "stream":
        return Verdict(stage, "reader", None, _reader_advice())
    if blocked >= BLOCKED:
        return Verdict(stage, "waiting", None, _waiting_advice(stats, stage))
    return _cpu_bound(stats, stage, gil)


def _slowest(stats: LoaderStats) -> str:
    seconds = {
        "fetch": stats.fetch_seconds,
        "transform": stats.transform_seconds,
        "collate": stats.collate_seconds,
    }
    return max(seconds, key=seconds.__getitem__)


def _is_start(stats: LoaderStats) -> bool:
    """Tell whether nearly all of the waiting was for first batches, and behind these loading keeps up."""
    waited = stats.wait_seconds - stats.first_wait_seconds
    wall = stats.wall_seconds - stats.first_wait_seconds
    return stats.batches > stats.epochs and wall > 0 and waited / wall < ENOUGH


def _start_advice(stats: LoaderStats) -> str:
    if stats.epochs > 1:
        return (
            "Behind the first batch of an epoch loading keeps up: make epochs longer (a sampler with more draws), "
            "or batches smaller; keep one loader for all epochs, so that its workers live on."
        )
    return "Behind the first batch loading keeps up: nothing to change for a longer run."


def _in_the_calling_thread(stats: LoaderStats, stage: str) -> Verdict:
    if stats.source == "async":
        return _async_waiting(stats, stage)
    if stage == "fetch" and stats.source == "stream":
        advice = "Use num_workers=1, so that the stream is read while you train."
        return Verdict(stage, "workers", None, advice)
    if blocked_share(stats) >= BLOCKED:
        wanted = _wanted(stats, 1)
        advice = (
            f"Everything runs in the calling thread, and it waits most of the time: use num_workers={wanted}; threads "
            f"suffice for waiting."
        )
        return Verdict(stage, "waiting", None, advice)
    if stats.loading_seconds / stats.batches < CHEAP_SECONDS:
        other = (
            "" if stats.gives_many else ", or a dataset that gives whole batches (ArrayDataset, __getitems__)"
        )
        advice = (
            f"Everything runs in the calling thread, and a batch costs less than handing it over from a worker: use a "
            f"larger batch_size{other}."
        )
        return Verdict(stage, "handover", None, advice)
    advice = (
        f"Everything runs in the calling thread: use num_workers={max(2, stats.cores)}, so that batches are loaded while "
        f"you train; then this report tells whether threads suffice."
    )
    return Verdict(stage, "workers", None, advice)


def _handover_advice(stats: LoaderStats) -> str:
    cost = stats.loading_seconds / stats.batches
    return (
        f"A batch takes {cost * 1e6:.0f} microseconds to load; handing it over from a worker costs as much: use "
        f"num_workers=0, or a larger batch_size."
    )


def _window_advice(stats: LoaderStats) -> str:
    wider = max(2 * stats.prefetch_depth, stats.num_workers, 4)
    return (
        f"Workers are idle while you wait: too few batches may be under way. Use prefetch_depth={wider} (now "
        f"{stats.prefetch_depth}), a larger prefetch_bytes= where you set one, or in_order=False, so that one slow batch "
        f"does not hold up the others."
    )


def _gil_advice(stats: LoaderStats, stage: str) -> str:
    workers = max(2, stats.cores)
    if stats.source == "async":
        return (
            f"Use worker_type='process', num_workers={workers}, each with an event loop of its own, or leave CPU work out "
            f"of coroutines."
        )
    instead = {
        "fetch": "fetch with code that releases the GIL (NumPy and file reads do)",
        "transform": "use a step that releases the GIL (NumPy, OpenCV and image decoders do)",
        "collate": "use a collate_fn that leaves the work to NumPy",
    }[stage]
    return f"More threads can't help. Use worker_type='process', num_workers={workers}, or {instead}."


def _reader_advice() -> str:
    return (
        "A stream is read in order by one reader, whatever the number of workers: read larger pieces, leave parsing to "
        "transform=, or use a dataset with random access."
    )


def _waiting_advice(stats: LoaderStats, stage: str) -> str:
    if stats.source == "async" and stage == "fetch":
        return _async_waiting(stats, stage).advice
    what = (
        "items are waited for"
        if stage == "fetch"
        else f"{stage} waits for something (a lock, a device, a file)"
    )
    wanted = _wanted(stats, stats.num_workers)
    if stats.worker_type == "process":
        return (
            f"Processors are idle while {what}: use worker_type='thread', num_workers={wanted}; threads suffice for "
            f"waiting, and cost no memory."
        )
    if stats.num_workers >= MOST_WORKERS:
        return f"Processors are idle while {what}, with {stats.num_workers} workers: the other end is at its limit."
    return f"Processors are idle while {what}: use num_workers={wanted} (now {stats.num_workers})."


def _async_waiting(stats: LoaderStats, stage: str) -> Verdict:
    allowed = stats.item_concurrency * max(1, stats.num_workers)
    wanted = min(MOST_IN_FLIGHT, max(8, 4 * stats.item_concurrency))
    if stats.item_concurrency >= MOST_IN_FLIGHT or wanted <= stats.item_concurrency:
        advice = f"{allowed} items may be in flight already: the other end, or the network, is at its limit."
    else:
        advice = (
            f"On average {stats.in_flight:.1f} items are in flight, and {allowed} may be: use item_concurrency={wanted} "
            f"(now {stats.item_concurrency})."
        )
    return Verdict(stage, "waiting", None, advice)


def _wanted(stats: LoaderStats, now: int) -> int:
    """Return how many workers would load as fast as the step takes batches, at least twice as many as there are."""
    faster = stats.wall_seconds / stats.step_seconds if stats.step_seconds > 0 else 4.0
    return min(MOST_WORKERS, max(2 * now, round(now * min(8.0, faster))))


def _cpu_bound(stats: LoaderStats, stage: str, gil: float | None) -> Verdict:
    if stats.worker_type != "ray" and stats.num_workers < stats.cores:
        advice = (
            f"Workers use all the processor time that they can: use num_workers={stats.cores} (now {stats.num_workers}), "
            f"as many as there are cores."
        )
        return Verdict(stage, "workers", gil, advice)
    if stats.worker_type == "ray":
        more = 2 * stats.num_workers
        advice = f"Actors are busy: use num_workers={more} (now {stats.num_workers}), if the cluster has processors for them."
        return Verdict(stage, "workers", gil, advice)
    advice = (
        f"All {stats.cores} cores are wanted by {stats.num_workers} workers: make {stage} cheaper, or do part of it once, "
        f"ahead of training."
    )
    if (
        stats.loading_seconds
        and stats.cpu_seconds < 0.6 * stats.loading_seconds * stats.cores / stats.num_workers
    ):
        advice += " Other programs, or your step, take part of the cores."
    return Verdict(stage, "cpu", gil, advice)
