"""feedline on a Ray cluster: conversion jobs mapped over it. (`worker_type="ray"` is `DataLoader`'s, and needs no import.)"""

from feedline.loader.execution.cluster import check_ray

check_ray("feedline.ray")

from feedline.ray.jobs import cluster_cpus, run_jobs  # noqa: E402 - only once it is known that Ray is there

__all__ = ["cluster_cpus", "run_jobs"]
