"""What a worker process knows and does first, and how tensors come back from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import worker as torch_worker

from feedline.collate.leaves import map_leaves
from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.torch.rows import take_of

__all__ = ["DatasetWatch", "PackedCollate", "TorchBatchLoader", "WorkerSetup", "get_worker_info", "unpacked"]


@dataclass(frozen=True)
class WorkerSetup:
    """How a worker process begins.

    Attributes:
        num_workers: of the loader.
        base_seed: worker `w` seeds the global generators with `base_seed + w`.
        init_fn: called with the worker's number.
    """

    num_workers: int
    base_seed: int
    init_fn: Callable[[int], Any] | None

    def enter(self, number: int, dataset: Any) -> None:
        """Seed the global generators, set what `get_worker_info()` returns, and call the user's function."""
        # As many workers compute at once: threads within each would only get in each other's way.
        torch.set_num_threads(1)
        seed = (self.base_seed + number) % 2**63
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(torch_worker._generate_state(self.base_seed, number))
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=number, num_workers=self.num_workers, seed=seed, dataset=dataset
        )
        if self.init_fn is not None:
            self.init_fn(number)


class TorchBatchLoader(BatchLoader):
    """A `BatchLoader` that gathers tensor datasets as a whole, and that knows how a worker process begins."""

    preload = (__name__,)
    setup: WorkerSetup | None = None
    #: Gathers the rows of a key that is a list of ints (a batch sampler as `sampler`, `batch_size=None`).
    take_lists: Callable[..., Any] | None = None

    def load(self, task: Task, run: Run) -> list[Outcome]:
        """Load `task`; never raises, as the base."""
        outcome = None if self.take_lists is None or task.error is not None else self._gathered(task)
        return super().load(task, run) if outcome is None else [outcome]

    def _gathered(self, task: Task) -> Outcome | None:
        rows = task.indices[0] if len(task.indices) == 1 else None
        if type(rows) is not list or not rows or list(map(type, rows)).count(int) != len(rows):
            return None
        assert self.take_lists is not None
        start = perf_counter()
        try:
            value = self.take_lists(np.array(rows, np.int64), self.pool.allocate)
        except Exception:
            return None  # asked by its list, the dataset names the fault itself
        return Outcome(task.number, value, indices=task.indices, fetch_seconds=perf_counter() - start)

    def find_take(self) -> Callable[..., Any] | None:
        """Return what gathers whole batches."""
        return take_of(self.items.dataset)

    def enter_worker(self, number: int) -> None:
        """Begin as `setup` says."""
        if self.setup is not None:
            self.setup.enter(number, self.items.dataset)


@dataclass(frozen=True, slots=True)
class _Packed:
    """A tensor on its way from a worker process: the array that it lies in goes through shared memory."""

    array: Any
    dtype: torch.dtype

    def unpack(self) -> Any:
        tensor = torch.from_numpy(self.array)
        return tensor if tensor.dtype == self.dtype else tensor.view(self.dtype)


class PackedCollate:
    """A collate function whose tensors can travel; `unpacked` is the other end."""

    def __init__(self, collate_fn: Callable[..., Any]) -> None:
        self.collate_fn = collate_fn
        self.takes_memory = bool(getattr(collate_fn, "takes_memory", False))
        self.takes_indices = bool(getattr(collate_fn, "takes_indices", False))

    def __call__(self, *arguments: Any) -> Any:
        """Collate, and pack."""
        return map_leaves(_pack, self.collate_fn(*arguments))


def _pack(leaf: Any) -> Any:
    if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided or leaf.device.type != "cpu":
        return leaf
    if leaf.requires_grad or leaf.is_nested or leaf.is_quantized or leaf.is_conj() or leaf.is_neg():
        return leaf
    try:
        return _Packed(leaf.numpy(), leaf.dtype)
    except TypeError:  # NumPy has no such dtype: its bits travel as integers
        if leaf.element_size() not in _BITS:
            return leaf
        return _Packed(leaf.view(_BITS[leaf.element_size()]).numpy(), leaf.dtype)


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def unpacked(batch: Any) -> Any:
    """Return `batch` with the tensors that `PackedCollate` has packed, in the memory that they came in."""
    return map_leaves(_unpack, batch, stop=_is_packed)


def _is_packed(value: Any) -> bool:
    return type(value) is _Packed


def _unpack(leaf: Any) -> Any:
    return leaf.unpack() if type(leaf) is _Packed else leaf


class DatasetWatch:
    """Tells whether attributes of a dataset were set to something else since it was looked at last.

    Numbers and text are compared, other values by identity; the datasets within one (`.dataset`, `.datasets`) count.
    What is changed in place is not seen.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._seen = _attributes_of(dataset)

    def has_changed(self) -> bool:
        """Tell it, and look anew."""
        before, self._seen = self._seen, _attributes_of(self._dataset)
        return len(before) != len(self._seen) or not all(map(_is_equal, before, self._seen))


def _attributes_of(dataset: Any) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    waiting = [dataset]
    while waiting:
        one = waiting.pop()
        attributes = getattr(one, "__dict__", None)
        if attributes is None or any(known == id(one) for known, _ in found):
            continue
        found.append((id(one), dict(attributes)))
        waiting.append(attributes.get("dataset"))
        waiting.extend(attributes.get("datasets") or ())
    return found


def _is_equal(one: tuple[int, dict[str, Any]], other: tuple[int, dict[str, Any]]) -> bool:
    before, now = one[1], other[1]
    return (
        one[0] == other[0]
        and before.keys() == now.keys()
        and all(
            before[name] is now[name]
            or (type(now[name]) in (int, float, str, bool) and before[name] == now[name])
            for name in now
        )
    )
