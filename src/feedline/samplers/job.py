"""Which process of a distributed job this is, from what is there already: nothing is started by asking."""

from __future__ import annotations

import os
import sys

from feedline.errors import OptionError

__all__ = ["find_job", "running_job"]


def running_job() -> tuple[int, int]:
    """Return `(rank, world_size)` of the running job, `(0, 1)` if there is none.

    Asked in this order: `torch.distributed`, if torch is imported and its process group initialised; the environment
    (`RANK` and `WORLD_SIZE`, as torchrun sets them; SLURM's, in a step that `srun` started; Open MPI's); Ray Train, if
    this is one of its workers; JAX, if it is imported and `jax.distributed` initialised. Nothing is imported and no
    backend initialised.

    Raises:
        OptionError: `RANK` is set without `WORLD_SIZE`, or the reverse; a variable is no number, or out of range.
    """
    return find_job() or (0, 1)


def find_job() -> tuple[int, int] | None:
    """Return what `running_job` does, but `None` if there is no job."""
    for ask in (_torch_job, _environment_job, _ray_job, _jax_job):
        job = ask()
        if job is not None:
            return job
    return None


def _torch_job() -> tuple[int, int] | None:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _environment_job() -> tuple[int, int] | None:
    found = [name for name in ("RANK", "WORLD_SIZE") if os.environ.get(name)]
    if len(found) == 1:
        missing = "WORLD_SIZE" if found == ["RANK"] else "RANK"
        raise OptionError(
            f"the environment has {found[0]}={os.environ[found[0]]!r} but no {missing}: set both, or neither, or "
            f"give rank= and world_size="
        )
    # SLURM and Open MPI set both for the processes that they start. A shell inside of an allocation has only some of
    # the variables, and is no rank of anything.
    for rank, world_size in (
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        if os.environ.get(rank) and os.environ.get(world_size):
            return _checked(rank, world_size)
    return None


def _checked(rank_name: str, world_name: str) -> tuple[int, int]:
    rank, world_size = _number(rank_name), _number(world_name)
    if world_size < 1 or not 0 <= rank < world_size:
        raise OptionError(
            f"the environment has {rank_name}={rank} and {world_name}={world_size}: a rank lies from 0 to the "
            f"world size - 1"
        )
    return rank, world_size


def _number(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"the environment variable {name} must be an int, not {text!r}") from None


def _ray_job() -> tuple[int, int] | None:
    # In a worker of Ray Train, this module is loaded before the training function is called.
    get_context = getattr(sys.modules.get("ray.train"), "get_context", None)
    if get_context is None:
        return None
    try:
        context = get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # not inside of a training function
        return None
    return None if rank is None or world_size is None else (int(rank), int(world_size))


def _jax_job() -> tuple[int, int] | None:
    # `jax.process_index()` would initialise the backends; what `jax.distributed.initialize` was told does not.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or getattr(state, "client", None) is None:
        return None
    return int(state.process_id), int(state.num_processes)
