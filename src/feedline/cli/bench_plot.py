"""The picture of `feedline bench`: items/s and memory for each choice of workers, as a PNG."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feedline.errors import MissingExtraError
from feedline.loader.tuning.trial import Trial

__all__ = ["draw", "require_matplotlib"]

# Told apart by people who are colour-blind, too.
_COLORS = {"none": "#777777", "thread": "#0072B2", "process": "#E69F00"}
_OTHER = "#009E73"
_NAMES = {"none": "no workers", "thread": "threads", "process": "processes"}


def require_matplotlib() -> Any:
    """Return matplotlib's module for figures; a `MissingExtraError` with the install command if it is not there."""
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingExtraError.of("a plot (--no-plot leaves it out)", "plots") from error


def draw(trials: Sequence[Trial], best: Trial | None, title: str, path: Path) -> None:
    """Write the picture to `path`; its format follows from the name."""
    figure_class = require_matplotlib().Figure
    shown = [trial for trial in trials if trial.error is None]
    figure = figure_class(figsize=(9, 1.6 + 0.42 * max(1, len(shown))), layout="constrained", dpi=144)
    rates, memory = figure.subplots(1, 2, sharey=True, width_ratios=(2.2, 1))
    figure.suptitle(title, fontsize=11)
    names = [str(trial.choice) for trial in shown]
    colors = [_COLORS.get(_kind(trial), _OTHER) for trial in shown]
    rates.barh(names, [trial.items_per_second for trial in shown], color=colors)
    _label(rates, [f"{trial.items_per_second:,.0f}" + _mark(trial, best) for trial in shown])
    rates.set_xlabel("items/s")
    rates.invert_yaxis()
    rates.xaxis.set_major_formatter("{x:,.0f}")
    memory.barh(names, [trial.memory_bytes / 1e6 for trial in shown], color=colors)
    _label(memory, [f"{trial.memory_bytes / 1e6:,.0f}" if trial.memory_bytes else "?" for trial in shown])
    memory.set_xlabel("memory, MB (all processes)")
    for axes in (rates, memory):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.22)
    figure.savefig(path)


def _kind(trial: Trial) -> str:
    return trial.worker_type if trial.num_workers else "none"


def _mark(trial: Trial, best: Trial | None) -> str:
    return "  best" if best is not None and trial.choice == best.choice else ""


def _label(axes: Any, texts: Sequence[str]) -> None:
    for container in axes.containers:
        axes.bar_label(container, labels=list(texts), padding=4, fontsize=9)
