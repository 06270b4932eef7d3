"""The command line, called in this process or in one of its own, and files to give to it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import feedline

pytest.importorskip("typer", reason="the command line needs the extra 'cli'")
pytest.importorskip("rich", reason="the command line needs the extra 'cli'")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run the command line in this process: `cli("info", path)` has `.code`, `.out` and `.err`."""
    from feedline.cli.main import run

    def call(*arguments: object) -> SimpleNamespace:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return call


@pytest.fixture
def start_cli() -> Callable[..., subprocess.Popen[str]]:
    """Start the command line in a process of its own, with pipes for its output."""

    def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
        source = str(Path(feedline.__file__).parents[1])
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        words = [sys.executable, "-m", "feedline", *map(os.fspath, arguments)]  # type: ignore[arg-type]
        return subprocess.Popen(words, env={**os.environ, "PYTHONPATH": source}, **settings)  # type: ignore[call-overload]

    return start


@pytest.fixture
def make_ndf(tmp_path: Path) -> Callable[..., Path]:
    """Write an `.ndf` file by hand, so that these tests do not lean on the writer."""

    def make(rows: np.ndarray, l: int = 0, name: str = "rows.ndf", tail: bytes = b"") -> Path:  # noqa: E741
        n, width = rows.shape
        path = tmp_path / name
        header = b"NDF1" + struct.pack("<QQQ", n, width - l, l)
        path.write_bytes(header + rows.astype("<f8").tobytes() + tail)
        return path

    return make
