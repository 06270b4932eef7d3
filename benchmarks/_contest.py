"""A comparison of systems in one run: each in a process of its own, rounds by turns, medians and ratios to a limit.

A benchmark makes a `Contest`, adds systems, and calls `main()`. A system is a function that prepares everything and
returns another one, which runs one round and returns how many units it handled. Peers run under the interpreter that
`FEEDLINE_PEERS` names, where it is set, and are left out where their library is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Round = Callable[[], float]


@dataclass(frozen=True)
class System:
    """Something that is measured.

    Attributes:
        name: as the table shows it.
        prepare: makes a round, in the system's own process.
        group: systems are compared with the limit of their group.
        is_limit: what the group is compared with.
        is_peer: runs in the peers' environment.
    """

    name: str
    prepare: Callable[[], Round]
    group: str = ""
    is_limit: bool = False
    is_peer: bool = False


class Contest:
    """Systems that take turns.

    Args:
        module: the benchmark's `__spec__.name`, to start it again for each system.
        unit: what is counted, such as `"million rows/s"`.
        scale: units per one of these.
        higher_is_better: `False` for times per unit, where a round returns seconds itself.
    """

    def __init__(
        self, module: str, unit: str, scale: float = 1.0, *, higher_is_better: bool = True, rounds: int = 5
    ) -> None:
        self.module = module
        self.unit = unit
        self.scale = scale
        self.higher_is_better = higher_is_better
        self.rounds = rounds
        self.systems: list[System] = []

    def add(self, name: str, prepare: Callable[[], Round], **options: Any) -> None:
        """Add a system."""
        self.systems.append(System(name, prepare, **options))

    def main(self) -> None:
        """Run as the command line says."""
        parser = argparse.ArgumentParser(description="prints medians and ratios of alternating rounds")
        parser.add_argument("--rounds", type=int, default=self.rounds)
        parser.add_argument("--only", default="", help="systems whose name contains this, and the limits")
        parser.add_argument(
            "--json", default="", metavar="FILE", help="write the figures there, too (or a folder)"
        )
        parser.add_argument("--serve", help=argparse.SUPPRESS)
        options = parser.parse_args()
        if options.serve is not None:
            _serve(next(system for system in self.systems if system.name == options.serve))
            return
        chosen = [s for s in self.systems if s.is_limit or options.only in s.name]
        self._compare(chosen, options.rounds, options.json)

    def _compare(self, systems: Sequence[System], rounds: int, target: str) -> None:
        results: dict[str, list[dict[str, float]]] = {system.name: [] for system in systems}
        missing: dict[str, str] = {}
        processes = {system.name: self._start(system) for system in systems}
        try:
            for number in range(rounds + 1):
                for system in systems:
                    if system.name in missing:
                        continue
                    told = _ask(processes[system.name])
                    if "missing" in told:
                        missing[system.name] = str(told["missing"])
                    elif number:  # the first round warms up
                        results[system.name].append(told)
        finally:
            for process in processes.values():
                _end(process)
        groups = self._found(systems, results, missing)
        self._print(groups)
        if target:
            name = self.module.rpartition(".")[2]
            write_json(target, name, self.unit, groups, higher_is_better=self.higher_is_better)

    def _start(self, system: System) -> subprocess.Popen[str]:
        python = os.environ.get("FEEDLINE_PEERS", sys.executable) if system.is_peer else sys.executable
        return subprocess.Popen(
            [python, "-W", "ignore", "-m", self.module, "--serve", system.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _value(self, told: dict[str, float]) -> float:
        if self.higher_is_better:
            return told["units"] / told["seconds"] / self.scale
        return told["units"] / self.scale

    def _found(
        self, systems: Sequence[System], results: dict[str, list[dict[str, float]]], missing: dict[str, str]
    ) -> list[dict[str, Any]]:
        """Return what was found, by groups, as JSON values."""
        return [
            {
                "group": group,
                "systems": [
                    self._found_of(system, limit_of(members), results, missing) for system in members
                ],
            }
            for group, members in by_group(systems).items()
        ]

    def _found_of(
        self,
        system: System,
        limit: str | None,
        results: dict[str, list[dict[str, float]]],
        missing: dict[str, str],
    ) -> dict[str, Any]:
        tolds = results[system.name]
        found: dict[str, Any] = {"name": system.name, "is_limit": system.is_limit, "is_peer": system.is_peer}
        if not tolds:
            return {**found, "left_out": missing.get(system.name, "no round")}
        found["values"] = values = [self._value(told) for told in tolds]
        found["median"] = statistics.median(values)
        found["cpu_seconds"] = statistics.median(told["cpu"] for told in tolds)
        if limit is not None and results[limit]:
            pairs = zip(values, (self._value(told) for told in results[limit]), strict=False)
            found["ratio"] = statistics.median(a / b for a, b in pairs)
        return found

    def _print(self, groups: list[dict[str, Any]]) -> None:
        for group in groups:
            print(
                f"\n{group['group'] or self.module}: {self.unit}, median (min to max) | CPU s per round | "
                f"ratio to the limit"
            )
            for found in group["systems"]:
                if "left_out" in found:
                    print(f"  {found['name']:48} left out: {found['left_out']}")
                    continue
                values = found["values"]
                ratio = f"{found['ratio']:6.2f}" if "ratio" in found else ""
                print(
                    f"  {found['name']:48} {found['median']:9.3f} "
                    f"({min(values):.3f} to {max(values):.3f}) | {found['cpu_seconds']:6.3f} | {ratio}"
                )


def by_group(systems: Sequence[System]) -> dict[str, list[System]]:
    """Return the systems of each group."""
    groups = dict.fromkeys(system.group for system in systems)
    return {group: [system for system in systems if system.group == group] for group in groups}


def limit_of(members: Sequence[System]) -> str | None:
    """Return the name of the system that a group is compared with."""
    return next((system.name for system in members if system.is_limit), None)


def write_json(
    target: str, name: str, unit: str, groups: list[dict[str, Any]], *, higher_is_better: bool = True
) -> None:
    """Write what a benchmark found, for `benchmarks/plot.py`, to the file `target`, or to `NAME.json` in that folder."""
    path = Path(target)
    if path.is_dir() or target.endswith(("/", os.sep)):
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"{name}.json"
    told = {"benchmark": name, "unit": unit, "higher_is_better": higher_is_better, "groups": groups}
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {path}")


def _serve(system: System) -> None:
    run: Round | None = None
    for _ in sys.stdin:
        try:
            run = run or system.prepare()
            cpu, start = _cpu_seconds(), time.perf_counter()
            units = run()
            told: dict[str, Any] = {
                "units": units,
                "seconds": time.perf_counter() - start,
                "cpu": _cpu_seconds() - cpu,
            }
        except ImportError as error:
            told = {"missing": str(error)}
        print(json.dumps(told), flush=True)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write("round\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    answer: dict[str, Any] = (
        json.loads(line) if line else {"missing": f"ended with exit code {process.wait(timeout=60)}"}
    )
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
