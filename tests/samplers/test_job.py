from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from feedline.errors import OptionError
from feedline.samplers.job import find_job, running_job


@pytest.fixture(autouse=True)
def nothing_is_running(monkeypatch):
    for name in list(os.environ):
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)
    # Other tests may have imported these; a job of theirs would be news, but their presence must not matter.
    for name in ("torch", "jax._src.distributed"):
        monkeypatch.setitem(sys.modules, name, None)


def environment(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def fake_torch(initialized, rank=5, world_size=6):
    return SimpleNamespace(
        distributed=SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: initialized,
            get_rank=lambda: rank,
            get_world_size=lambda: world_size,
        )
    )


def test_alone_it_is_rank_zero_of_one():
    assert running_job() == (0, 1)
    assert find_job() is None


@pytest.mark.parametrize(
    ("rank", "world_size"),
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_launchers_are_known_by_their_variables(monkeypatch, rank, world_size):
    environment(monkeypatch, **{rank: "3", world_size: "8"})
    assert running_job() == (3, 8)


def test_torchruns_variables_come_before_those_of_the_cluster(monkeypatch):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", SLURM_PROCID="0", SLURM_NTASKS="1")
    assert running_job() == (1, 2)


def test_an_initialised_process_group_comes_first(monkeypatch):
    environment(monkeypatch, RANK="1", WORLD_SIZE="2")
    monkeypatch.setitem(sys.modules, "torch", fake_torch(initialized=True))
    assert running_job() == (5, 6)


def test_a_process_group_that_is_not_initialised_is_not_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(initialized=False))
    assert running_job() == (0, 1)


@pytest.mark.parametrize(("client", "expected"), [(None, (0, 1)), (object(), (2, 4))])
def test_jax_counts_only_when_its_processes_know_each_other(monkeypatch, client, expected):
    state = SimpleNamespace(client=client, process_id=2, num_processes=4)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
    assert running_job() == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "0"}, "no WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "no RANK"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "no RANK"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK must be an int, not 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "2.0"}, "WORLD_SIZE must be an int"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 and WORLD_SIZE=2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({"SLURM_PROCID": "9", "SLURM_NTASKS": "4"}, "SLURM_PROCID=9"),
    ],
)
def test_variables_that_make_no_sense_are_named(monkeypatch, variables, message):
    environment(monkeypatch, **variables)
    with pytest.raises(OptionError, match=message):
        running_job()


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE"])
def test_a_shell_inside_of_an_allocation_is_no_rank(monkeypatch, name):
    environment(monkeypatch, **{name: "4"})
    assert running_job() == (0, 1)


def test_asking_imports_nothing():
    code = (
        "import sys; from feedline.samplers.job import running_job; running_job(); "
        "print(sorted({'torch', 'jax', 'jaxlib'} & set(sys.modules)))"
    )
    path = os.pathsep.join(part for part in sys.path if part)
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_asking_initialises_no_backend_of_jax():
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    code = (
        "import jax, jax._src.xla_bridge as bridge; from feedline.samplers.job import running_job; "
        "print(running_job(), bridge.backends_are_initialized())"
    )
    path = os.pathsep.join(part for part in sys.path if part)
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    assert result.stdout.strip() == "(0, 1) False"
