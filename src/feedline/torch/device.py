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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch

from feedline.collate.leaves import map_leaves
from feedline.errors import OptionError

__all__ = ["CopyLane", "DeviceIterator", "DeviceLoader", "to_device"]


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
    if isinstance(ahead, bool) or not isinstance(ahead, int):
        raise TypeError(f"ahead must be an int, not {ahead!r}")
    if ahead < 0:
        raise OptionError(f"ahead must be at least 0, not {ahead}")
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


class DeviceLoader:
    """A loader whose batches are on a device; see `to_device`."""

    def __init__(
        self, loader: Any, device: Any, ahead: int, make_lane: Callable[[Any], Lane] | None = None
    ) -> None:
        self.loader = loader
        self.device = device
        self.ahead = ahead
        self._make_lane = make_lane or (CopyLane if device.type == "cuda" else PlainLane)
        self._newest: DeviceIterator | None = None

    def __iter__(self) -> DeviceIterator:
        """Start the loader's next epoch, or go on where a loaded state stands."""
        self._newest = DeviceIterator(iter(self.loader), self._make_lane(self.device), self.ahead)
        return self._newest

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from the newest iterator here."""
        if self._newest is not None:
            return self._newest.state_dict()
        state: dict[str, Any] = self.loader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` go on where `state` stands."""
        self.loader.load_state_dict(state)
        self._newest = None

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` run `epoch`."""
        self.loader.set_epoch(epoch)
        self._newest = None

    def __getattr__(self, name: str) -> Any:
        """Return the loader's attribute."""
        if name.startswith("__") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


class _Waiting:
    """A batch that is being copied, or the error in its place."""

    __slots__ = ("batch", "error", "kept", "leaves", "mark", "state")

    def __init__(self, batch: Any, error: Exception | None, state: Callable[[], dict[str, Any]]) -> None:
        self.batch = batch
        self.error = error
        self.state = state
        self.mark: Any = None
        self.leaves: list[Any] = []
        self.kept: list[Any] = []


class DeviceIterator:
    """The batches of one epoch on a device. Goes on after an exception; `len()` is the number of batches left."""

    def __init__(self, inner: Any, lane: Lane, ahead: int) -> None:
        self._inner = inner
        self._lane = lane
        self._ahead = ahead
        self._waiting: deque[_Waiting] = deque()
        self._copying: deque[tuple[Any, list[Any]]] = deque()
        self._ended = False
        self._state = _bookmark(inner)
        self._last: Callable[[], dict[str, Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch, whose copy the current stream waits for; raise the error that belongs to it."""
        while not self._ended and len(self._waiting) <= self._ahead and not self._is_cut():
            self._pull()
        if not self._waiting:
            self._state = self._last or self._state
            raise StopIteration
        waiting = self._waiting.popleft()
        self._state = waiting.state
        if waiting.error is not None:
            try:
                raise waiting.error
            finally:
                del waiting  # the error's traceback holds this frame
        self._lane.receive(waiting.mark, waiting.leaves)
        self._keep(waiting)
        return waiting.batch

    def _is_cut(self) -> bool:
        """Behind an error nothing is pulled before it is received."""
        return bool(self._waiting) and self._waiting[-1].error is not None

    def _pull(self) -> None:
        try:
            batch = next(self._inner)
        except StopIteration:
            self._ended = True
            self._last = _bookmark(self._inner)
            return
        except Exception as error:
            self._waiting.append(_Waiting(None, error, _bookmark(self._inner)))
            return
        waiting = _Waiting(batch, None, _bookmark(self._inner))
        try:
            with self._lane.beside():
                waiting.batch = map_leaves(lambda leaf: self._copy(leaf, waiting), batch, stop=_moves_itself)
                waiting.mark = self._lane.mark()
        except Exception as error:
            waiting.error = error
        self._waiting.append(waiting)

    def _copy(self, leaf: Any, waiting: _Waiting) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc":
            leaf = torch.from_numpy(leaf)
        if not _moves_itself(leaf):
            return leaf
        moved, kept = self._lane.copy(leaf)
        waiting.leaves.append(moved)
        waiting.kept.append(kept)
        return moved

    def _keep(self, waiting: _Waiting) -> None:
        """Hold what is copied from until its copies are done."""
        self._copying.append((waiting.mark, waiting.kept))
        while self._copying and self._lane.is_done(self._copying[0][0]):
            self._copying.popleft()

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from this iterator."""
        return self._state()

    def __len__(self) -> int:
        """Return how many batches are left, those that were copied ahead included."""
        return len(self._inner) + len(self._waiting)

    def close(self) -> None:
        """Drop what is in progress."""
        self._ended = True
        self._waiting.clear()
        close = getattr(self._inner, "close", None)
        if callable(close):
            close()


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None))


def _bookmark(iterator: Any) -> Callable[[], dict[str, Any]]:
    """Return what gives the iterator's state as it is now, whenever it is asked."""
    bookmark = getattr(iterator, "bookmark", None)
    if callable(bookmark):
        return bookmark()  # type: ignore[no-any-return]
    tell = getattr(iterator, "state_dict", None)
    if not callable(tell):
        return _no_state
    state = tell()
    return lambda: state


def _no_state() -> dict[str, Any]:
    raise TypeError("this loader's iterators have no state_dict()")
