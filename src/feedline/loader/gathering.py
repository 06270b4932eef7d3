"""What failed on all ranks of a job, brought together on each of them."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from feedline.loader.failures import Failure

__all__ = ["gather_failures"]


def gather_failures(loader: Any) -> tuple[Failure, ...]:
    """Return the failures of all ranks' loaders, by epoch, batch and index; the same on every rank.

    A *collective* call: every rank of the job makes it, at the same point, or the others wait. Failures that several
    ranks know of (from a state that all have loaded) come once. Put them into a state that is to be saved for all:

        state = loader.state_dict()
        state["failures"] = [failure.as_dict() for failure in feedline.gather_failures(loader)]

    Args:
        loader: a `feedline.DataLoader`, or anything with `failures`.

    It goes through `torch.distributed` where that is initialised (any backend), else through JAX where
    `jax.distributed` is; outside of a job these are the loader's own failures.

    >>> from feedline import DataLoader
    >>> from feedline.loader.gathering import gather_failures
    >>> loader = DataLoader([1, "two"], on_error="skip", transform=lambda item: 1 / item)
    >>> _ = list(loader)
    >>> [failure.index for failure in gather_failures(loader)]
    [1]
    """
    own = [failure.as_dict() for failure in loader.failures]
    gathered = _over_torch(own) or _over_jax(own) or [own]
    unique = dict.fromkeys(Failure.from_dict(values) for rank in gathered for values in rank)
    return tuple(sorted(unique, key=_place))


def _place(failure: Failure) -> tuple[int, int, str, str]:
    # Indices may be ints on one rank and text on another.
    index = f"{failure.index:020d}" if isinstance(failure.index, int) else str(failure.index)
    return failure.epoch, failure.batch, index, failure.error


def _over_torch(own: list[dict[str, Any]]) -> list[list[dict[str, Any]]] | None:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, own)
    return gathered


def _over_jax(own: list[dict[str, Any]]) -> list[list[dict[str, Any]]] | None:
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or getattr(state, "client", None) is None:
        return None
    from jax.experimental.multihost_utils import process_allgather

    # Arrays of one size are gathered: first the sizes, then the text, each padded to the longest.
    text = np.frombuffer(json.dumps(own).encode(), np.uint8)
    sizes = np.asarray(process_allgather(np.array([len(text)], np.int32))).reshape(-1)
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(text)] = text
    rows = np.asarray(process_allgather(padded)).reshape(len(sizes), -1)
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes)]
