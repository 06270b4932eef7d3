"""Every example runs to its end, on its own, with warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    last = (result.stderr.strip().splitlines() or [""])[-1]
    if result.returncode and last.startswith(
        ("ModuleNotFoundError: ", "feedline.errors.MissingExtraError: ")
    ):
        pytest.skip(last)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
