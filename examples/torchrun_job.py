"""A job of two ranks that is killed in mid-epoch, and goes on with three: every item once, none lost.

    python examples/torchrun_job.py

It starts itself by torchrun, as a cluster would: `python -m torch.distributed.run --nproc-per-node 2 torchrun_job.py`.
Needs torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ITEMS = 1000
KILLED_AFTER = 40  # steps


def rank() -> None:
    """What each process of the job does."""
    import torch
    import torch.distributed as dist

    import feedline
    from feedline.torch import DataLoader

    dist.init_process_group("gloo")
    checkpoint = Path(os.environ["JOB_FOLDER"]) / "checkpoint.json"
    x = torch.linspace(0, 1, ITEMS)
    dataset = torch.utils.data.TensorDataset(torch.arange(ITEMS), x, 3 * x + 1)
    # Rank and world size are the job's. "mask": each item exactly once, and as many steps on every rank.
    sampler = feedline.DistributedSampler(feedline.RandomSampler(seed=7), tail="mask")
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    weights, seen = torch.zeros(2), []
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        loader.load_state_dict(saved["loader"])  # saved by another number of ranks
        weights, seen = torch.tensor(saved["weights"]), saved["seen"]

    for step, ((index, x, y), mask) in enumerate(loader, 1):
        error = (weights[0] * x + weights[1] - y) * mask
        sums = torch.stack([(error * x).sum(), error.sum(), mask.sum()])
        dist.all_reduce(sums)
        weights -= 0.5 * sums[:2] / sums[2]
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, index[mask].tolist())
        seen += [item for items in everywhere for item in items]
        if dist.get_rank() == 0 and step % 10 == 0:
            state = {"loader": loader.state_dict(), "weights": weights.tolist(), "seen": seen}
            fresh = checkpoint.with_suffix(".new")
            fresh.write_text(json.dumps(state))
            fresh.replace(checkpoint)  # a kill leaves the old one or the new one
        if "JOB_DIES" in os.environ and step == KILLED_AFTER + 3:
            os.kill(os.getpid(), signal.SIGKILL)
    if dist.get_rank() == 0:
        result = {"weights": weights.tolist(), "seen": seen, "steps": step}
        checkpoint.with_name("result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def start_job(ranks: int, folder: Path, **environment: str) -> int:
    """Start a job by torchrun, wait for it, and return its exit code."""
    # Nothing of a job that this script itself may run in.
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    clean |= {"JOB_FOLDER": str(folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **environment}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    with (folder / f"log-{ranks}.txt").open("w") as log:
        job = subprocess.Popen(
            [*command, __file__], env=clean, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return job.wait(timeout=50)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


def main() -> None:
    """Start the job with two ranks, see it die, and go on with three."""
    import torch  # noqa: F401  # said here where it is missing, not in a log

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = start_job(2, folder, JOB_DIES="1")
        saved = json.loads((folder / "checkpoint.json").read_text())
        print(
            f"2 ranks: killed (exit code {code}) with {len(saved['seen'])} of {ITEMS} items in the checkpoint"
        )
        code = start_job(3, folder)
        if code:
            raise SystemExit((folder / "log-3.txt").read_text())
        result = json.loads((folder / "result.json").read_text())
    counts = Counter(result["seen"])
    print(f"3 ranks: went on for {result['steps']} steps to the end of the epoch")
    print(f"items seen: {len(counts)}, seen more than once: {sum(n > 1 for n in counts.values())}")
    slope, intercept = result["weights"]
    print(f"fitted: y = {slope:.2f} x + {intercept:.2f}")
    if counts != Counter(range(ITEMS)):
        raise SystemExit("every item should have come exactly once")


if __name__ == "__main__":
    if "LOCAL_RANK" in os.environ and "JOB_FOLDER" in os.environ:
        rank()
    else:
        main()
