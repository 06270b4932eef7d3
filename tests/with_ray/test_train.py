"""Rank and world size inside of Ray Train, without importing anything of it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from feedline import DistributedSampler, SequentialSampler
from feedline.samplers.job import find_job, running_job


@pytest.fixture(autouse=True)
def _no_other_job(monkeypatch):
    for name in (
        "RANK",
        "WORLD_SIZE",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)


def train_module(rank, world_size):
    context = SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: world_size)
    return SimpleNamespace(get_context=lambda: context)


def test_a_training_function_has_the_rank_of_its_worker(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train", train_module(2, 5))
    assert running_job() == (2, 5)
    assert DistributedSampler(SequentialSampler()).order(10, 0)[:].tolist() == [2, 7]


def test_the_environment_of_a_launcher_goes_before(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train", train_module(2, 5))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert running_job() == (0, 3)


def test_outside_of_a_training_function_there_is_no_job(monkeypatch):
    def refuse():
        raise RuntimeError("`get_context` cannot be used outside of a Ray Train training function")

    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=refuse))
    assert find_job() is None
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace())
    assert find_job() is None


def test_the_program_that_starts_the_training_is_no_rank():
    pytest.importorskip("ray.train", reason="Ray's training library is not installed", exc_type=ImportError)
    assert find_job() is None
