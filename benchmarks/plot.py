"""Draws what benchmarks have found: a picture for each file that a run has written by `--json`.

    scripts/bench arrays_in_memory -- --json results/
    python -m benchmarks.plot results/*.json [--folder docs/images]

A bar is the median of the rounds, the line across its end goes from the worst to the best. The limit is what can be done at
all, by hand; the number behind a bar is the ratio to it. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

# Told apart by people who are colour-blind, too.
COLORS = {"limit": "#777777", "feedline": "#0072B2", "by hand": "#56B4E9", "peer": "#E69F00"}


def kind_of(system: dict[str, Any]) -> str:
    """Tell which colour a system has."""
    if system["is_limit"]:
        return "limit"
    if "feedline" in system["name"]:
        return "feedline"
    return "peer" if system["is_peer"] else "by hand"


def name_of(system: dict[str, Any], group: str) -> str:
    """Return a system's name without what the title of its group says already."""
    last = group.rpartition(" ")[2]
    return system["name"].removesuffix(f", {last}").removesuffix(f" {last}") or system["name"]


def readable(value: float) -> str:
    """Return `value` with three digits that count, and never as a power of ten.

    >>> readable(12786.0), readable(2673.004), readable(1.2345)
    ('12,800', '2,670', '1.23')
    """
    return f"{float(f'{value:.3g}'):,.10g}"


def draw(found: dict[str, Any], path: Path) -> None:
    """Write the picture of one benchmark."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    groups = [
        {**group, "systems": [system for system in group["systems"] if "values" in system]}
        for group in found["groups"]
    ]
    groups = [group for group in groups if group["systems"]]
    bars = [len(group["systems"]) for group in groups]
    figure = Figure(figsize=(9, 1.3 + 0.6 * len(bars) + 0.3 * sum(bars)), layout="constrained", dpi=110)
    axes_of = figure.subplots(len(groups), 1, squeeze=False, height_ratios=[count + 1 for count in bars])[
        :, 0
    ]
    title = found["benchmark"].replace("_", " ")
    better = "more is better" if found["higher_is_better"] else "less is better"
    figure.suptitle(f"{title}: {found['unit']} ({better})", fontsize=11)
    for axes, group in zip(axes_of, groups, strict=True):
        draw_group(axes, group)
    kinds = dict.fromkeys(kind_of(system) for group in groups for system in group["systems"])
    handles = [Patch(color=COLORS[kind], label=kind) for kind in COLORS if kind in kinds]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(path)


def draw_group(axes: Any, group: dict[str, Any]) -> None:
    """Draw the bars of one group."""
    for place, system in enumerate(group["systems"]):
        median, low, high = system["median"], min(system["values"]), max(system["values"])
        axes.barh(place, median, color=COLORS[kind_of(system)], height=0.7)
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        ratio = f"  ({system['ratio']:.2f})" if "ratio" in system and not system["is_limit"] else ""
        axes.text(max(median, high), place, f"  {readable(median)}{ratio}", va="center", fontsize=8)
        if system["is_limit"]:
            axes.axvline(median, color=COLORS["limit"], linewidth=1, linestyle=":", zorder=0)
    names = [name_of(system, group["group"]) for system in group["systems"]]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    if group["group"]:
        axes.set_title(group["group"], loc="left", fontsize=9)


def main() -> None:
    """Draw the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path, help="files that a benchmark wrote by --json")
    parser.add_argument("--folder", type=Path, default=Path("docs/images"), help="default: docs/images")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for file in options.results:
        found = json.loads(file.read_text(encoding="utf-8"))
        path = options.folder / f"bench-{found['benchmark'].replace('_', '-')}.png"
        draw(found, path)
        print(path)


if __name__ == "__main__":
    main()
