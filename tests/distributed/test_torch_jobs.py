"""Real jobs over torch.distributed, of 2 to 4 processes on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_ranks import run_ranks

pytest.importorskip("torch", reason="needs torch: scripts/test --all")

RANK = Path(__file__).with_name("gloo_rank.py")


def test_ranks_agree_on_everything_and_a_state_goes_on_with_another_number_of_them(tmp_path: Path) -> None:
    run_ranks(RANK, 4, tmp_path, "all")
    run_ranks(RANK, 3, tmp_path, "resume")
