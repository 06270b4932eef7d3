"""Conversion jobs on a cluster: the same bytes, the same errors, and nothing left of what was cancelled."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs Ray: scripts/test --all")

from feedline.convert.conversion import convert
from feedline.errors import OptionError, WorkerDied
from feedline.ray import cluster_cpus, run_jobs

pytestmark = pytest.mark.usefixtures("local_ray")


def bytes_below(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_shards_are_byte_for_byte_those_of_one_process(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(3000.0).reshape(600, 5))
    convert(tmp_path / "rows.npy", tmp_path / "here", num_shards=5)
    done = []
    made = convert(
        tmp_path / "rows.npy",
        tmp_path / "there",
        num_shards=5,
        workers=cluster_cpus(),
        run=run_jobs,
        advance=done.append,
    )
    assert made.num_files == 5
    assert sum(done) == 600
    assert bytes_below(tmp_path / "here") == bytes_below(tmp_path / "there")


def test_the_cluster_has_processors():
    assert cluster_cpus() == 2


def test_an_error_is_that_of_the_job(tmp_path):
    rows = np.zeros((8, 2), np.int64)
    rows[5, 1] = 2**53 + 1
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(OptionError, match="9007199254740993"):
        convert(tmp_path / "rows.npy", tmp_path / "out", num_shards=4, workers=2, run=run_jobs)


class Ends:
    """A source whose reader ends."""

    n, d, l = 4, 1, 0  # noqa: E741 - the format's own name

    def blocks(self, start, stop):
        os._exit(3)

    def identity(self):
        return {}


def test_a_task_that_dies_is_an_error_that_names_its_part(tmp_path):
    from feedline.convert.plan import make_plan
    from feedline.convert.work import Job
    from feedline.ndf.layout import NdfHeader

    plan = make_plan(NdfHeader(4, 1, 0), is_single=False, num_shards=2, rows_per_shard=None)
    jobs = [Job(part, str(tmp_path)) for part in plan.parts]
    with pytest.raises(WorkerDied, match=r"a Ray task ended while it had .*\(part \d\)"):
        list(run_jobs(Ends(), jobs, 1))


def test_the_command_line_converts_on_a_cluster(tmp_path, capsys):
    from feedline.cli.main import run

    np.save(tmp_path / "rows.npy", np.arange(12.0).reshape(6, 2))
    code = run(["convert", str(tmp_path / "rows.npy"), str(tmp_path / "rows.ndf"), "--ray"])
    assert not code
    assert "6 rows of 2 features" in capsys.readouterr().out
