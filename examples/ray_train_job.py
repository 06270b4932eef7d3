"""Fit a linear model on a Ray cluster: ranks of Ray Train, each fed with its own share of the rows by a Ray actor.

    pip install 'feedline[ray]' 'ray[train]' torch
    python examples/ray_train_job.py

It starts a small Ray of its own. On a cluster, leave `ray.init` out, and put the rows where all machines see them.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np

from feedline import DataLoader, DistributedSampler, NdfDataset, RandomSampler, save_ndf
from feedline.loader.execution.cluster import check_ray

TRUE_WEIGHTS = np.array([2.0, -1.0, 0.5])


def train(config: dict) -> None:
    """Run in every rank: least squares, its sums added up over all ranks."""
    import torch

    # Rank and world size are found: those of Ray Train.
    sampler = DistributedSampler(RandomSampler(seed=0), tail="exact")
    dataset = NdfDataset(config["path"])
    sums = torch.zeros(3, 4, dtype=torch.float64)
    with DataLoader(dataset, 64, sampler=sampler, num_workers=1, worker_type="ray") as loader:
        for x, y in loader:
            sums += torch.from_numpy(x.T @ np.hstack([x, y]))
    torch.distributed.all_reduce(sums)
    weights = torch.linalg.solve(sums[:, :3], sums[:, 3])
    with tempfile.TemporaryDirectory() as folder:
        # All ranks stand at the same place of the global order, so one of them tells it.
        Path(folder, "loader.json").write_text(json.dumps(loader.state_dict()))
        first = ray.train.get_context().get_world_rank() == 0
        checkpoint = ray.train.Checkpoint.from_directory(folder) if first else None
        ray.train.report({"weights": weights.tolist()}, checkpoint=checkpoint)


if __name__ == "__main__":
    check_ray("this example")
    import ray

    # Libraries of Ray warn of one another.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"ray\.")
    # A processor for each of two ranks and of the two actors that feed them.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    with tempfile.TemporaryDirectory() as folder:
        x = np.random.default_rng(0).normal(size=(1001, 3))
        save_ndf(f"{folder}/rows.ndf", x, x @ TRUE_WEIGHTS)
        trainer = TorchTrainer(
            train,
            train_loop_config={"path": f"{folder}/rows.ndf"},
            scaling_config=ScalingConfig(num_workers=2),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(storage_path=folder, name="fit"),
        )
        result = trainer.fit()
    weights = np.round(result.metrics["weights"], 6)
    print(f"weights {weights.tolist()}, true ones {TRUE_WEIGHTS.tolist()}")
    ray.shutdown()
