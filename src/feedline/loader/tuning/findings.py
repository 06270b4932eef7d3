"""What a comparison of workers says, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from feedline.loader.tuning.trial import Trial

__all__ = ["best_of", "findings"]

#: Within this share of the fastest, fewer workers are the better choice.
CLOSE = 0.95
#: Simple before heavy: what costs less memory and starts sooner.
_WEIGHT = {"thread": 0, "process": 1, "ray": 2}


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the simplest of those that are about as fast as the fastest; `None` if all failed."""
    alive = [trial for trial in trials if trial.error is None and trial.items_per_second > 0]
    if not alive:
        return None
    fastest = max(trial.items_per_second for trial in alive)
    close = [trial for trial in alive if trial.items_per_second >= CLOSE * fastest]
    return min(close, key=lambda trial: (trial.num_workers, _WEIGHT.get(trial.worker_type, 9)))


def findings(trials: Sequence[Trial], now: Trial | None = None) -> list[str]:
    """Return sentences: what to use, what it brings, and what stands in the way of more.

    Args:
        trials: all that were measured.
        now: the one with the loader's own options.
    """
    best = best_of(trials)
    if best is None:
        told = next((trial.error for trial in trials if trial.error), "nothing was measured")
        return [f"No choice of workers gave a batch: {told}."]
    lines = [_use(best, trials, now)]
    lines += _why_not_more(best, trials)
    lines += _not_the_same(trials)
    lines += [f"{trial.choice}: {trial.error}." for trial in trials if trial.error]
    return lines


def _use(best: Trial, trials: Sequence[Trial], now: Trial | None) -> str:
    text = f"Use num_workers={best.num_workers}"
    if best.num_workers:
        text += f", worker_type={best.worker_type!r}"
    text += f": {best.items_per_second:,.0f} items/s"
    serial = next((trial for trial in trials if not trial.num_workers and not trial.error), None)
    for other, name in ((now, "now"), (serial, "without workers")):
        if other is not None and other.choice != best.choice and other.items_per_second > 0:
            text += f", {best.items_per_second / other.items_per_second:.1f} times as many as {name}"
    if now is not None and now.choice == best.choice:
        text += ", as you do now"
    return text + "."


def _why_not_more(best: Trial, trials: Sequence[Trial]) -> list[str]:
    lines = []
    threads = [
        trial for trial in trials if trial.worker_type == "thread" and trial.num_workers and not trial.error
    ]
    if best.worker_type != "thread" and any(trial.limit == "gil" for trial in threads):
        lines.append("Threads bring less: they hold each other up by the GIL.")
    if best.bottleneck in ("fetch", "transform", "collate"):
        lines.append(f"Then {best.bottleneck} is the slowest stage. {best.advice}")
    return lines


def _not_the_same(trials: Sequence[Trial]) -> list[str]:
    checksums = {trial.first_batch for trial in trials if trial.first_batch is not None}
    if len(checksums) < 2:
        return []
    return [
        "The first batch is not the same with all of them: something draws from global random state; context.rng belongs "
        "to the item, and gives the same everywhere."
    ]
