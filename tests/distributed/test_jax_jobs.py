"""A real job over jax.distributed, of two processes with two devices each."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_ranks import free_port, run_ranks

pytest.importorskip("jax", reason="needs JAX: scripts/test --all")


def test_global_arrays_hold_the_rows_of_all_processes_exactly_once() -> None:
    run_ranks(Path(__file__).with_name("jax_rank.py"), 2, free_port())
