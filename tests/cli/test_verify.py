"""`feedline verify`: a whole file passes with its facts, any other fails with the kind of damage."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os

import numpy as np
import pytest


@pytest.fixture
def rows() -> np.ndarray:
    rows = np.arange(12.0).reshape(4, 3)
    rows[1, 2], rows[2, 0], rows[3, 1] = np.nan, np.inf, -np.inf
    return rows


def test_a_whole_file_passes_with_counts_and_checksum(cli, make_ndf, rows) -> None:
    path = make_ndf(rows, l=1)
    result = cli("verify", path, "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == {
        "path": str(path),
        "n": 4,
        "d": 2,
        "l": 1,
        "size_bytes": 124,
        "nan": 1,
        "infinite": 2,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def test_a_whole_file_passes_in_words(cli, make_ndf, rows) -> None:
    path = make_ndf(rows)
    result = cli("verify", path)
    assert result.code == 0
    assert "a whole .ndf file" in result.out
    assert hashlib.sha256(path.read_bytes()).hexdigest() in result.out


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda data: b"", "empty"),
        (lambda data: b"PK\x03\x04" + data[4:], "bad_magic"),
        (lambda data: data[:20], "short_header"),
        (lambda data: data[:-1], "truncated_rows"),
        (lambda data: data + b"\0", "trailing_bytes"),
        (lambda data: data[:12] + bytes(16), "zero_width"),
        (lambda data: data[:4] + b"\xff" * 8 + data[12:], "truncated_rows"),
    ],
    ids=[
        "empty",
        "another kind",
        "cut in its header",
        "cut",
        "too long",
        "no values",
        "a count beyond all files",
    ],
)
@pytest.mark.parametrize("name", ["info", "verify"])
def test_a_damaged_file_fails_with_its_kind_and_name(cli, make_ndf, rows, name, damage, kind) -> None:
    path = make_ndf(rows)
    path.write_bytes(damage(path.read_bytes()))
    result = cli(name, path)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("feedline: ")
    assert result.err.endswith(f" (kind: {kind})\n")
    assert path.name in result.err
    assert result.err.count("\n") == 1


def test_a_folder_is_refused_in_one_line(cli, tmp_path) -> None:
    result = cli("verify", tmp_path)
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith(f": {tmp_path}\n")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_on_a_terminal_there_is_a_progress_bar_beside_the_result(
    start_cli, make_ndf, rows, monkeypatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with start_cli("verify", make_ndf(rows), stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while part := os.read(ours, 4096):
                shown += part
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert b"reading" in shown
    assert "a whole .ndf file" in out
