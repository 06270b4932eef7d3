"""torch's arguments, checked and said in feedline's own."""

from __future__ import annotations

import multiprocessing.context
import warnings
from typing import Any

import torch

from feedline.errors import OptionError

__all__ = ["check_arguments", "check_context", "prefetch_depth_of", "seconds_of"]


def check_arguments(
    *,
    num_workers: int,
    worker_type: str,
    worker_init_fn: Any,
    generator: Any,
    persistent_workers: Any,
    pin_memory: Any,
    pin_memory_device: Any,
) -> None:
    """Raise for values that torch refuses, and for those that can't mean anything here.

    Raises:
        OptionError, TypeError: see `feedline.torch.DataLoader`.
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, not {type(generator).__name__}")
    if persistent_workers not in (True, False):
        raise TypeError(f"persistent_workers must be True or False, not {persistent_workers!r}")
    if persistent_workers and num_workers == 0:
        raise OptionError("persistent_workers=True needs num_workers > 0")
    if worker_init_fn is not None:
        if not callable(worker_init_fn):
            raise TypeError(f"worker_init_fn must be callable, not {type(worker_init_fn).__name__}")
        if num_workers and worker_type != "process":
            raise OptionError(
                f"worker_init_fn is for worker processes: worker_type={worker_type!r} has workers that share this "
                f"process; prepare what they need before, or use worker_type='process'"
            )
    if not isinstance(pin_memory_device, str):
        raise TypeError(f"pin_memory_device must be a str, not {type(pin_memory_device).__name__}")
    if pin_memory_device and pin_memory:
        warnings.warn(
            f"pin_memory_device={pin_memory_device!r} is deprecated in torch, and has no effect there nor here: memory "
            f"is pinned for the current accelerator",
            UserWarning,
            stacklevel=4,
        )
    elif pin_memory_device:
        raise OptionError(f"pin_memory_device={pin_memory_device!r} without pin_memory=True has no meaning")


def check_context(context: Any, num_workers: int, worker_type: str) -> None:
    """Raise if `multiprocessing_context` asks for what there is not.

    Raises:
        OptionError: it is no start method, is given without worker processes, or is `"fork"`.
        TypeError: it is neither a name nor a context.
    """
    if context is None:
        return
    if num_workers == 0 or worker_type != "process":
        raise OptionError(
            f"multiprocessing_context is for worker processes (num_workers > 0, worker_type='process'); here "
            f"num_workers={num_workers}, worker_type={worker_type!r}"
        )
    if isinstance(context, str):
        method: str | None = context
        known = torch.multiprocessing.get_all_start_methods()
        if method not in known:
            raise OptionError(f"multiprocessing_context must be one of {known}, not {context!r}")
    elif isinstance(context, multiprocessing.context.BaseContext):
        method = context.get_start_method()
    else:
        raise TypeError(
            f"multiprocessing_context must be a str or a context of multiprocessing, not {type(context).__name__}"
        )
    if method == "fork":
        raise OptionError(
            "multiprocessing_context='fork': feedline never forks the training process, whose threads and CUDA "
            "contexts would be broken in the copies; its workers come from a fresh interpreter, as with 'forkserver'. "
            "Leave the argument out; for a dataset that can't be pickled, use worker_type='thread'"
        )


def prefetch_depth_of(prefetch_factor: Any, num_workers: Any, prefetch_depth: Any) -> int:
    """Return how many batches may wait beyond those in progress, for torch's batches per worker.

    Raises:
        OptionError: it is below 1; or it is given without workers, or beside `prefetch_depth`.
        TypeError: it is no int.
    """
    if prefetch_depth is not None:
        if prefetch_factor is not None:
            raise OptionError("prefetch_factor= and prefetch_depth= say the same in two ways; give one")
        return prefetch_depth  # type: ignore[no-any-return]
    # A number of workers that changes while it runs: room for torch's two batches on each of two.
    workers: int = 2 if num_workers == "auto" else num_workers
    if prefetch_factor is None:
        return workers  # torch's default of 2 batches per worker
    if workers == 0:
        raise OptionError("prefetch_factor needs num_workers > 0; without workers leave it None")
    if isinstance(prefetch_factor, bool) or not isinstance(prefetch_factor, int):
        raise TypeError(f"prefetch_factor must be an int, not {prefetch_factor!r}")
    if prefetch_factor < 1:
        raise OptionError(f"prefetch_factor must be at least 1, not {prefetch_factor}")
    return (prefetch_factor - 1) * workers


def seconds_of(timeout: Any, num_workers: int) -> float | None:
    """Return how long a batch may be waited for, `None` for torch's 0.

    Raises:
        OptionError: it is negative, or given without workers.
        TypeError: it is no number.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not 0 <= timeout < float("inf"):
        raise OptionError(f"timeout must be a finite number of seconds, not negative, not {timeout!r}")
    if timeout and num_workers == 0:
        raise OptionError(
            "timeout limits the wait for a worker: it needs num_workers > 0; for a limit per item, use item_timeout"
        )
    return float(timeout) or None
