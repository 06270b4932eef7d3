"""`to_device`: batches on a device, copied ahead of the consumer, with the consumer's position as the state.

Note [lifetimes]
    A batch is copied on a stream of its own, from page-locked memory, while the consumer's stream computes. Three
    things must not happen, and each has its guard:

    - the consumer's kernels read a tensor before its copy is done: the consumer's stream waits for the event that was
      recorded behind the copy;
    - the tensor's memory, which belongs to the copying stream, is given to a later copy while the consumer's kernels
      still read it: `record_stream` tells the allocator who uses it;
    - page-locked memory is filled again while it is being copied from: it is kept until the event has come. What torch
      allocates is also guarded by torch's own caching allocator; what a user pinned is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch

from feedline.collate.leaves import map_leaves
from feedline.errors import OptionError
from feedline.loader.ahead import AheadLoader

__all__ = ["CopyLane", "DeviceLoader", "PlainLane", "to_device"]


def to_device(loader: Any, device: Any, *, ahead: int = 1) -> DeviceLoader:
    """Return `loader` with its batches on `device`.

    Args:
        loader: a `feedline.DataLoader`, feedline's for torch, or any iterable of batches that can be walked anew.
        device: a `torch.device`, or its name, such as `"cuda"`, `"cuda:1"` or `"cpu"`.
        ahead: batches that are copied before they are asked for, at least 0.

    Returns:
        A loader whose batches have the same structure and types: tensors on the device, and NumPy arrays as
        tensors there; objects with a `to()` of their own are asked; text and everything else stay as they are.
        `len()`, `state_dict()`, `load_state_dict()`, `set_epoch()` and attributes are the loader's, but the state counts
        what *this* consumer has received, not what was copied ahead.

    Raises:
        OptionError: there is no such device, or `ahead` is negative.
        TypeError: `ahead` is no int.

    Concurrency: each iterator by one thread; on CUDA, the batch belongs to the stream that is current at `next()`.

    >>> import numpy as np
    >>> from feedline import ArrayDataset, DataLoader
    >>> loader = to_device(DataLoader(ArrayDataset(np.arange(3)), batch_size=2), "cpu")
    >>> [x for x, in loader]
    [tensor([0, 1]), tensor([2])]
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"device={device!r} is none that torch knows: {error}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device={device!r}: torch finds no CUDA here; use 'cpu'")
    return DeviceLoader(loader, found, ahead)


class Lane(Protocol):
    """How batches get to a device."""

    def copy(self, leaf: Any) -> tuple[Any, Any]:
        """Begin to copy a leaf; return it on the device, and what must be kept until the copy is done."""
        ...

    def mark(self) -> Any:
        """Return a mark behind the copies that were begun."""
        ...

    def receive(self, mark: Any, leaves: list[Any]) -> None:
        """Let the consumer use `leaves`, whose copies end at `mark`."""
        ...

    def is_done(self, mark: Any) -> bool:
        """Tell whether the copies before `mark` are done."""
        ...

    def beside(self) -> AbstractContextManager[Any]:
        """Return the context in which copies are begun."""
        ...


class CopyLane:
    """A side stream of a CUDA device; see Note [lifetimes].

    Args:
        device: where to.
        cuda: `torch.cuda`, or what takes its place in a test.
    """

    def __init__(self, device: Any, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device=device)

    def beside(self) -> AbstractContextManager[Any]:
        """Return the context of the side stream."""
        context: AbstractContextManager[Any] = self._cuda.stream(self._stream)
        return context

    def copy(self, leaf: Any) -> tuple[Any, Any]:
        """Begin to copy a tensor, or an object with a `to()` of its own."""
        pinned = leaf
        if isinstance(leaf, torch.Tensor) or hasattr(leaf, "is_pinned"):
            if leaf.device.type == "cpu" and not leaf.is_pinned():
                pinned = leaf.pin_memory()
        elif callable(getattr(leaf, "pin_memory", None)):
            pinned = leaf.pin_memory()
        return _moved(pinned, self._device), pinned

    def mark(self) -> Any:
        """Return an event on the side stream."""
        return self._stream.record_event()

    def receive(self, mark: Any, leaves: list[Any]) -> None:
        """Let the consumer's stream wait for the copies, and the allocator know of the consumer's stream."""
        current = self._cuda.current_stream(self._device)
        current.wait_event(mark)
        for leaf in leaves:
            record = getattr(leaf, "record_stream", None)
            if callable(record):
                record(current)

    def is_done(self, mark: Any) -> bool:
        """Tell whether the event has come."""
        return bool(mark.query())


class PlainLane:
    """Copies in the calling thread: for the CPU, where nothing moves, and devices without streams like CUDA's."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def beside(self) -> AbstractContextManager[Any]:
        """Return a context that does nothing."""
        return nullcontext()

    def copy(self, leaf: Any) -> tuple[Any, Any]:
        """Copy a leaf."""
        return _moved(leaf, self._device), None

    def mark(self) -> Any:
        """There is nothing to wait for."""
        return None

    def receive(self, mark: Any, leaves: list[Any]) -> None:
        """There is nothing to wait for."""

    def is_done(self, mark: Any) -> bool:
        """It is."""
        return True


def _moved(leaf: Any, device: Any) -> Any:
    try:
        return leaf.to(device, non_blocking=True)
    except TypeError:  # an object of the user's, whose `to` takes the device alone
        if isinstance(leaf, torch.Tensor):
            raise
        return leaf.to(device)


class DeviceLoader(AheadLoader):
    """A loader whose batches are on a device; see `to_device`."""

    def __init__(
        self, loader: Any, device: Any, ahead: int, make_lane: Callable[[Any], Lane] | None = None
    ) -> None:
        super().__init__(loader, ahead)
        self.device = device
        self._make_lane: Callable[[Any], Lane] = make_lane or (
            CopyLane if device.type == "cuda" else PlainLane
        )

    def _begin(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        copies = _Copies(self._make_lane(self.device))
        return copies.start, copies.receive


class _Copy:
    """A batch that is being copied.

    Attributes:
        batch: as it will be on the device.
        leaves: its parts there.
        kept: what they are copied from.
        mark: behind the copies.
    """

    __slots__ = ("batch", "kept", "leaves", "mark")

    def __init__(self) -> None:
        self.batch: Any = None
        self.leaves: list[Any] = []
        self.kept: list[Any] = []
        self.mark: Any = None


class _Copies:
    """The copies of one iterator."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._unfinished: deque[tuple[Any, list[Any]]] = deque()

    def start(self, batch: Any) -> _Copy:
        """Begin to copy a batch."""
        copy = _Copy()
        with self._lane.beside():
            copy.batch = map_leaves(lambda leaf: self._start_leaf(leaf, copy), batch, stop=_moves_itself)
            copy.mark = self._lane.mark()
        return copy

    def _start_leaf(self, leaf: Any, copy: _Copy) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc":
            leaf = torch.from_numpy(leaf)
        if not _moves_itself(leaf):
            return leaf
        moved, kept = self._lane.copy(leaf)
        copy.leaves.append(moved)
        copy.kept.append(kept)
        return moved

    def receive(self, copy: _Copy) -> Any:
        """Return the batch, for which the consumer's stream waits; hold what it is copied from until that is done."""
        self._lane.receive(copy.mark, copy.leaves)
        self._unfinished.append((copy.mark, copy.kept))
        while self._unfinished and self._lane.is_done(self._unfinished[0][0]):
            self._unfinished.popleft()
        return copy.batch


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None))
