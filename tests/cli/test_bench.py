"""`feedline bench`: trials in processes of their own, a table, a verdict, a picture."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from feedline.loader.tuning.choices import Choice
from feedline.loader.tuning.trial import Trial

DATA = """
import numpy as np
from feedline import DataLoader

print("the user's own code may write")

class Rows:
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return np.full(4, float(index))

def fail(item):
    raise ValueError("no item today")

loader = DataLoader(Rows(), batch_size=8, shuffle=True)
broken = DataLoader(Rows(), batch_size=8, transform=fail)
automatic = DataLoader(Rows(), batch_size=8, num_workers="auto")
number = 3

def make():
    return DataLoader(Rows(), batch_size=4, num_workers=1)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bench_data.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("bench_data", None)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Choice]:
    """Leave the processes out: what a trial would have said."""
    from feedline.cli import bench

    found: list[Choice] = []

    def answer(target: str, choice: Choice, seconds: float) -> Trial:
        found.append(choice)
        rate = 100.0 * (1 + choice.num_workers) * (2 if choice.worker_type == "process" else 1)
        return Trial(
            *choice,
            items_per_second=rate,
            memory_bytes=10**7,
            bottleneck="transform",
            limit="cpu",
            first_batch=1,
        )

    monkeypatch.setattr(bench, "_try", answer)
    return found


def test_a_loader_is_measured_for_real(project: Path, start_cli: Any) -> None:
    with start_cli(
        "bench",
        "bench_data.py:loader",
        "--seconds",
        "0.1",
        "--workers",
        "0,1",
        "--json",
        "--no-plot",
        cwd=project,
    ) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    # What the user's own code wrote comes first.
    told = json.loads(out[out.index("{") :])
    assert [(trial["worker_type"], trial["num_workers"]) for trial in told["trials"]] == [
        ("thread", 0),
        ("thread", 1),
        ("process", 1),
    ]
    assert all(trial["error"] is None and trial["items_per_second"] > 0 for trial in told["trials"])
    assert len({trial["first_batch"] for trial in told["trials"]}) == 1
    assert told["findings"][0].startswith("Use num_workers=")
    assert not (project / "bench.png").exists()


def test_the_table_and_the_verdict_are_shown(project: Path, cli: Any, tried: list[Choice]) -> None:
    result = cli("bench", "bench_data:make", "--workers", "0,1,2", "--no-plot")
    assert (result.code, result.err) == (0, "")
    assert tried == [("thread", 1), ("thread", 0), ("thread", 2), ("process", 1), ("process", 2)]
    for words in ("1 thread (now)", "no workers", "2 processes", "600", "9.5 MiB", "transform: cpu"):
        assert words in result.out
    assert "Use num_workers=2, worker_type='process': 600 items/s, 3.0 times as many as now" in result.out


def test_no_line_of_the_table_is_wider_than_a_terminal(project: Path, cli: Any, tried: list[Choice]) -> None:
    out = cli("bench", "bench_data:loader", "--no-plot").out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


@pytest.mark.parametrize(("load", "told"), [(0.1, False), (500.0, True)])
def test_other_programs_that_run_are_told(
    project: Path, cli: Any, tried: list[Choice], monkeypatch: pytest.MonkeyPatch, load: float, told: bool
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load), raising=False)
    out = cli("bench", "bench_data:loader", "--no-plot").out
    assert (f"Other programs were running (load average {load}" in out) == told


def test_a_picture_is_drawn(project: Path, cli: Any, tried: list[Choice]) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs the extra 'plots'")
    result = cli("bench", "bench_data:loader", "--workers", "0,1")
    assert (project / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "Drawn: bench.png" in result.out
    cli("bench", "bench_data:loader", "--workers", "0", "--plot", project / "other.svg")
    text = (project / "other.svg").read_text()
    assert "items/s" in text or "<path" in text


def test_a_picture_is_drawn_of_trials_that_failed_as_well(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs the extra 'plots'")
    from feedline.cli.bench_plot import draw

    draw([Trial("thread", 0, error="x")], None, "none", tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0


def test_a_missing_library_is_named_before_anything_is_measured(
    project: Path, cli: Any, tried: list[Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("bench", "bench_data:loader")
    assert result.code == 1
    assert "pip install 'feedline[plots]'" in result.err
    assert "--no-plot" in result.err
    assert tried == []


def test_an_automatic_loader_has_no_present_number(project: Path, cli: Any, tried: list[Choice]) -> None:
    result = cli("bench", "bench_data:automatic", "--workers", "0,1", "--kinds", "thread", "--no-plot")
    assert tried == [("thread", 0), ("thread", 1)]
    assert "(now)" not in result.out


def test_a_loader_that_fails_ends_the_run_with_its_error(project: Path) -> None:
    from feedline.cli.bench_trial import run_trial

    order = {"target": "bench_data:broken", "worker_type": "thread", "num_workers": 1, "seconds": 0.1}
    told = run_trial(order)
    assert told.error is not None
    assert told.error.startswith("ValueError: no item today; ")


def test_a_process_that_dies_is_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from feedline.cli import bench

    def die(*arguments: Any, **options: Any) -> Any:
        return subprocess.CompletedProcess(arguments, -9, "", "first\nlast words\n")

    monkeypatch.setattr(subprocess, "run", die)
    found = bench._try("bench_data:loader", Choice("thread", 2), 0.1)
    assert found.error == "the process ended with exit code -9: last words"


def test_a_process_that_hangs_is_given_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from feedline.cli import bench

    def hang(*arguments: Any, timeout: float, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("bench", timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert bench._try("bench_data:loader", Choice("thread", 2), 3.0).error == "it was not done after 63 s"


def test_when_all_choices_fail_the_exit_code_says_so(
    project: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from feedline.cli import bench

    monkeypatch.setattr(bench, "_try", lambda target, choice, seconds: Trial(*choice, error="it broke"))
    result = cli("bench", "bench_data:loader", "--no-plot")
    assert result.code == 1
    assert "No choice of workers gave a batch: it broke." in result.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["bench_data:number"], 1, "must be a feedline.DataLoader, or a callable that returns one, not int"),
        (["bench_data:missing"], 1, "has no 'missing'"),
        (["bench_data"], 2, "must be MODULE:NAME"),
        (["bench_data:"], 2, "must be MODULE:NAME"),
        (["missing.py:loader"], 1, "no such file: missing.py"),
        (["bench_data:loader", "--workers", "two"], 2, "must be numbers of workers"),
        (["bench_data:loader", "--kinds", "fast"], 2, "'fast' is no kind of worker"),
        (["bench_data:loader", "--seconds", "0"], 2, "--seconds"),
        (["bench_data:loader", "--plot", "nowhere/bench.png"], 1, "no such folder"),
        ([], 2, "MODULE:LOADER"),
    ],
)
def test_wrong_usage_is_named(project: Path, cli: Any, words: list[str], code: int, message: str) -> None:
    result = cli("bench", *words)
    assert result.code == code
    assert message.lower() in result.err.lower()
