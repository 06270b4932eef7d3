"""Conversion jobs as tasks of a Ray cluster, in the place of `feedline.convert.pool.run_jobs`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray

from feedline.convert.protocol import Source
from feedline.convert.work import Job, Written, write_job
from feedline.errors import WorkerDied
from feedline.loader.execution.cluster_connection import connect
from feedline.loader.execution.handoff import dump_out, load_out
from feedline.loader.execution.portable import PortableError
from feedline.loader.execution.returned import exception_of

__all__ = ["cluster_cpus", "run_jobs"]


def cluster_cpus() -> int:
    """Return how many processors the cluster has, at least 1; connects to it, or starts Ray here, if need be."""
    connect()
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def run_jobs(
    source: Source, jobs: Sequence[Job], workers: int, advance: Callable[[int], None] | None = None
) -> Iterator[Written]:
    """Run `write_job(source, job)` for all jobs on a Ray cluster, and yield what was written, as it is done.

    Args:
        source: sent to the cluster once; its paths, and the folder that is written, must be those of a file system that
            all machines have.
        jobs: in any order; they do not depend on each other.
        workers: tasks at the same time, at most; each takes one processor.
        advance: called with the rows of each job when it is done.

    Raises:
        WorkerDied: a task's process, or its machine, ended in the middle of a job.
        WorkerError: what a task raised can't be sent. Everything else that a job raises is raised as it is.

    An error, or an iterator that is closed early, cancels all other tasks.

    >>> from feedline.convert.conversion import convert  # doctest: +SKIP
    >>> convert("rows.npy", "rows.ndf", workers=cluster_cpus(), run=run_jobs)  # doctest: +SKIP
    """
    connect()
    task = ray.remote(num_cpus=1, max_retries=0)(_write)
    packed = ray.put(dump_out(source))
    waiting = list(reversed(jobs))
    running: dict[Any, Job] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                running[task.remote(packed, dump_out(job))] = job
            done, _ = ray.wait(list(running))
            for reference in done:
                job = running.pop(reference)
                yield _result(reference, job)
                if advance is not None:
                    advance(job.part.stop - job.part.start)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _write(source: bytes, job: bytes) -> bytes:
    """Do one job: what runs on the cluster."""
    try:
        told: Written | PortableError = write_job(load_out(source), load_out(job))
    except BaseException as error:
        told = PortableError.of(error)
    return pickle.dumps(told)


def _result(reference: Any, job: Job) -> Written:
    try:
        told = pickle.loads(ray.get(reference))
    except ray.exceptions.RayError as error:
        part = f"{job.part.file} (part {job.part.number})"
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise WorkerDied(f"a Ray task ended while it had {part}: {line}", exit_code=None) from None
    if isinstance(told, PortableError):
        raise exception_of(told, f"a Ray task of {job.part.file}")
    written: Written = told
    return written
