"""`feedline info`: sizes, columns and first rows, of files of every kind."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import feedline.cli.info as info


def test_sizes_columns_and_first_rows_are_shown(cli, make_ndf) -> None:
    path = make_ndf(np.array([[1.0, -2.5, 0.0], [3.0, 7.5, 1.0]]), l=1)
    result = cli("info", path)
    assert (result.code, result.err) == (0, "")
    assert "2 rows of 2 features and 1 label, float64, 76 bytes" in result.out
    lines = {line.split()[1]: line.split() for line in result.out.splitlines() if line.startswith("│")}
    assert lines["x0"][3:8:2] == ["1", "3", "2"]
    assert lines["x1"][3:8:2] == ["-2.5", "7.5", "2.5"]
    assert lines["y0"][3:8:2] == ["0", "1", "0.5"]
    assert lines["1"][3::2] == ["3", "7.5", "1"]


def test_json_has_everything(cli, make_ndf) -> None:
    path = make_ndf(np.array([[1.0, np.nan], [np.inf, np.nan], [3.0, np.nan]]), l=0)
    result = cli("info", path, "--json", "--rows", 2)
    assert json.loads(result.out) == {
        "path": str(path),
        "n": 3,
        "d": 2,
        "l": 0,
        "size_bytes": 76,
        "rows_summed_up": 3,
        "columns": [
            {"name": "x0", "min": 1.0, "max": 3.0, "mean": 2.0, "nan": 0, "infinite": 1},
            {"name": "x1", "min": None, "max": None, "mean": None, "nan": 3, "infinite": 0},
        ],
        "first_rows": [[1.0, "nan"], ["inf", "nan"]],
    }


def test_an_empty_file_of_rows_is_shown_as_such(cli, make_ndf) -> None:
    path = make_ndf(np.ones((0, 3)), l=1)
    assert "0 rows of 2 features and 1 label" in cli("info", path).out
    facts = json.loads(cli("info", path, "--json").out)
    assert (facts["n"], facts["first_rows"], facts["columns"][0]["mean"]) == (0, [], None)


def test_of_many_columns_the_first_and_the_last_are_shown(cli, make_ndf) -> None:
    out = cli("info", make_ndf(np.ones((2, 65)), l=1), "--columns", 3).out
    assert "x1 " in out
    assert "x2 " not in out
    assert "y0 " in out
    assert "3 of 65 columns shown" in out


def test_a_large_file_is_sampled_from_all_over_and_says_so(cli, make_ndf, monkeypatch) -> None:
    monkeypatch.setattr(info, "SAMPLE_BYTES", 800)
    monkeypatch.setattr(info, "STRETCHES", 4)
    path = make_ndf(np.arange(1000.0)[:, None])
    result = json.loads(cli("info", path, "--json").out)
    assert result["rows_summed_up"] == 100
    column = result["columns"][0]
    assert (column["min"], column["max"]) == (0, 774)
    assert "summed up from 100 of 1,000 rows" in cli("info", path).out


def test_every_row_is_read_when_asked_for(cli, make_ndf, monkeypatch) -> None:
    monkeypatch.setattr(info, "SAMPLE_BYTES", 800)
    path = make_ndf(np.arange(1000.0)[:, None])
    result = json.loads(cli("info", path, "--json", "--all").out)
    assert (result["rows_summed_up"], result["columns"][0]["max"]) == (1000, 999)
    assert "summed up" not in cli("info", path, "--all").out


def test_a_name_that_looks_like_markup_is_shown_as_it_is(cli, make_ndf) -> None:
    assert "[red]rows.ndf: 1 row" in cli("info", make_ndf(np.ones((1, 1)), name="[red]rows.ndf")).out


@pytest.mark.skipif(os.name != "posix", reason="needs file names that are bytes")
def test_a_name_that_is_no_text_can_be_opened_and_shown(start_cli, make_ndf, tmp_path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff.ndf"
    try:
        os.rename(make_ndf(np.ones((1, 1))), odd)
    except OSError:
        pytest.skip("this file system has only names that are text")
    with start_cli("info", os.fsdecode(odd)) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "\\udcff.ndf: 1 row of 1 feature" in out
