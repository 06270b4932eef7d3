"""Streams that are made of others: `shuffle_buffer`."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np

from feedline.datasets.kind import Named, dataset_kind
from feedline.datasets.protocol import IterableDataset
from feedline.errors import OptionError, StateError
from feedline.keys import check_epoch, check_seed, derive_key

__all__ = ["ShuffleBuffer", "shuffle_buffer"]

#: Random words that are made at a time.
_BLOCK = 1024


def shuffle_buffer(stream: Iterable[Any], size: int, seed: int = 0) -> ShuffleBuffer:
    """Return `stream` shuffled through a buffer of `size` items: each that comes out is drawn among those in it.

    Args:
        stream: any iterable that can be started anew, an `IterableDataset` for one.
        size: items that are held; 1 leaves the order as it is.
        seed: 0 to 2**64 - 1.

    Raises:
        OptionError: a value is out of its range.
        TypeError: `stream` can't be iterated, or a value is of another type.

    Determinism: the order depends on (stream, size, seed, epoch) alone. Its state has the positions of the items in the
    buffer, never the items; to go on, the stream is read again, from the last place that it can be set to.

    >>> list(shuffle_buffer(range(6), size=3, seed=1)) == list(shuffle_buffer(range(6), size=3, seed=1))
    True
    >>> sorted(shuffle_buffer(range(6), size=3, seed=1))
    [0, 1, 2, 3, 4, 5]
    """
    kind = _SizedShuffleBuffer if isinstance(stream, Sized) else ShuffleBuffer
    return kind(stream, size, seed)


class ShuffleBuffer(Named, IterableDataset):
    """See `shuffle_buffer`. One iteration at a time has a state: the newest.

    Concurrency: read by one thread.
    """

    def __init__(self, stream: Iterable[Any], size: int, seed: int = 0) -> None:
        if not hasattr(stream, "__iter__"):
            raise TypeError(f"shuffle_buffer takes an iterable, not {type(stream).__name__}")
        if isinstance(size, bool):
            raise TypeError(f"size must be an int, not {size!r}")
        try:
            self.size = operator.index(size)
        except TypeError:
            raise TypeError(f"size must be an int, not {type(size).__name__} {size!r}") from None
        if self.size < 1:
            raise OptionError(f"size must be at least 1, not {self.size}")
        self.stream = stream
        self.seed = check_seed(seed)
        self._epoch = 0
        self._pending: dict[str, Any] | None = None
        self._walk: _Walk | None = None

    def kind(self) -> str:
        """Return the qualified class name, and that of the stream."""
        return f"feedline.ShuffleBuffer({dataset_kind(self.stream)})"

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration have the order of `epoch`."""
        self._epoch = check_epoch(epoch)
        if hasattr(self.stream, "set_epoch"):
            self.stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        pending, self._pending = self._pending, None
        self._walk = _Walk(self.stream, self.size, self.seed, self._epoch, pending)
        return self._walk

    def state_dict(self) -> dict[str, Any]:
        """Return where the newest iteration stands, as JSON values."""
        if self._walk is not None:
            return self._walk.state_dict()
        return dict(self._pending) if self._pending is not None else _start_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on where `state` stands; a `StateError` if it is of another size."""
        try:
            positions = [operator.index(position) for position in state["positions"]]
            read, emitted = operator.index(state["read"]), operator.index(state["emitted"])
        except (KeyError, TypeError) as error:
            raise StateError(f"this is no state of a shuffle buffer: {state!r}") from error
        if len(positions) > self.size or read - emitted != len(positions):
            raise StateError(
                f"the state is of a buffer that holds {len(positions)} items after {read} were read and {emitted} "
                f"given; this one is of size {self.size}"
            )
        self._pending = {**state, "positions": positions}
        self._walk = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_walk": None}

    def __repr__(self) -> str:
        return f"shuffle_buffer({self.stream!r}, size={self.size}, seed={self.seed})"


class _SizedShuffleBuffer(ShuffleBuffer):
    """Of a stream that has a length."""

    def __len__(self) -> int:
        length: int = len(self.stream)  # type: ignore[arg-type]
        return length


def _start_state() -> dict[str, Any]:
    return {"read": 0, "emitted": 0, "positions": []}


class _Walk(Iterator[Any]):
    """One iteration: the buffer, and what is needed to make it again."""

    def __init__(self, stream: Any, size: int, seed: int, epoch: int, pending: dict[str, Any] | None) -> None:
        self._stream = stream
        self._size = size
        self._key = (seed, epoch)
        self._words: tuple[int, list[int]] = (-1, [])
        self._items: list[Any] = []
        self._positions: list[int] = []
        self._read = 0
        self._emitted = 0
        self._exhausted = False
        #: (position, state) of places that the stream itself can be set to, oldest first.
        self._marks: list[tuple[int, Any]] = []
        self._can_mark = hasattr(stream, "state_dict") and hasattr(stream, "load_state_dict")
        if pending is not None:
            self._go_on(pending)
        else:
            self._source = iter(stream)

    def _go_on(self, state: dict[str, Any]) -> None:
        """Read the stream again, from the last mark on, and keep what was in the buffer."""
        wanted = state["positions"]
        mark = state.get("mark")
        if mark is not None and self._can_mark:
            self._stream.load_state_dict(mark["state"])
            self._read = mark["position"]
            self._marks = [(self._read, mark["state"])]
        self._source = iter(self._stream)
        kept: dict[int, Any] = {}
        needed = frozenset(wanted)
        while self._read < state["read"]:
            position = self._read
            item = self._next_item()
            if self._exhausted:
                raise StateError(f"the stream ends at item {position}; the state was made when it had more")
            if position in needed:
                kept[position] = item
        self._items = [kept[position] for position in wanted]
        self._positions = list(wanted)
        self._emitted = state["emitted"]

    def _next_item(self) -> Any:
        # The start needs no mark; and a stream that is a generator knows nothing of a new iteration before its first item.
        if self._can_mark and self._read and self._read % self._size == 0:
            self._mark()
        for item in self._source:
            self._read += 1
            return item
        self._exhausted = True
        return None

    def _mark(self) -> None:
        if self._marks and self._marks[-1][0] == self._read:
            return
        self._marks.append((self._read, self._stream.state_dict()))
        oldest = min(self._positions, default=self._read)
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            del self._marks[0]

    def __next__(self) -> Any:
        while len(self._items) < self._size and not self._exhausted:
            position = self._read
            item = self._next_item()
            if not self._exhausted:
                self._items.append(item)
                self._positions.append(position)
        if not self._items:
            raise StopIteration
        place = (self._word(self._emitted) * len(self._items)) >> 64
        self._items[place], self._items[-1] = self._items[-1], self._items[place]
        self._positions[place], self._positions[-1] = self._positions[-1], self._positions[place]
        self._positions.pop()
        self._emitted += 1
        return self._items.pop()

    def _word(self, number: int) -> int:
        block, place = divmod(number, _BLOCK)
        if self._words[0] != block:
            seed, epoch = self._key
            key = derive_key("shuffle buffer", seed, epoch, block.to_bytes(8, "little"))
            philox = np.random.Philox(key=int.from_bytes(key, "little"))
            self._words = (block, philox.random_raw(_BLOCK).tolist())
        return self._words[1][place]

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "read": self._read,
            "emitted": self._emitted,
            "positions": list(self._positions),
        }
        oldest = min(self._positions, default=self._read)
        marks = [mark for mark in self._marks if mark[0] <= oldest]
        if marks:
            state["mark"] = {"position": marks[-1][0], "state": marks[-1][1]}
        return state
