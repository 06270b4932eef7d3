"""Starts the ranks of a job on this machine, and ends every one of them, whatever happens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

#: Seconds that a whole job may take on a slow, busy machine.
DEADLINE = 100.0

_OF_A_JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK")


def run_ranks(script: Path, world_size: int, *arguments: object) -> None:
    """Run `script RANK WORLD_SIZE arguments...` once for each rank; raise with their output if one fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_JOB}
    environment.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", JAX_PLATFORMS="cpu")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(world_size), *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    outputs = []
    deadline = time.monotonic() + DEADLINE
    try:
        for process in processes:
            try:
                outputs.append(process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0])
            except subprocess.TimeoutExpired:
                outputs.append("it took too long")
                break
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    failed = {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    if failed:
        told = "\n".join(f"-- rank {rank}\n{output}" for rank, output in enumerate(outputs))
        raise AssertionError(f"exit codes {failed}\n{told}")


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
