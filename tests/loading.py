"""What tests of loaders share: datasets with known faults, gates, and what came out of an iterator as plain values."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline import AsyncDataset, IterableDataset
from feedline.loader.execution.portable import WorkerTraceback
from feedline.testing.dataset_contract import same

__all__ = [
    "DEADLINE",
    "AsyncSquares",
    "Broken",
    "CountingStream",
    "Gate",
    "Keyed",
    "Many",
    "Result",
    "SeekableStream",
    "Squares",
    "draw_with_context",
    "results",
    "same_results",
]

#: Seconds after which a wait in a test has failed; no test takes nearly so long.
DEADLINE = 30


class Squares:
    """Item `i` is `{"index": i, "row": [i, i * i]}`; nothing but `__getitem__` and `__len__`."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(f"no item {index}")
        return {"index": index, "row": np.array([index, index * index], np.float32)}


class Many(Squares):
    """The same with `__getitems__`."""

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


class Broken(Squares):
    """The same with items that fail: each its own way."""

    def __init__(self, length: int = 23, bad: Any = (3, 4, 11, 22)) -> None:
        super().__init__(length)
        self.bad = bad

    def __getitem__(self, index: Any) -> Any:
        if index in self.bad:
            kinds = (ValueError, KeyError, IndexError, StopIteration, OSError)
            raise kinds[index % len(kinds)]("bad item", index)
        return super().__getitem__(index)


class Keyed:
    """Items by names and tuples."""

    def __init__(self) -> None:
        self.items: dict[Any, Any] = {name: np.full(2, place) for place, name in enumerate("abcdefg")}
        self.items[("pair", 1)] = np.full(2, -1)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, key: Any) -> Any:
        return self.items[key]


class AsyncSquares(AsyncDataset):
    """`Squares`, awaited."""

    def __init__(self, length: int = 23, bad: Any = ()) -> None:
        self.inner = Broken(length, bad)

    def __len__(self) -> int:
        return len(self.inner)

    async def __getitem__(self, index: Any) -> Any:
        return self.inner[index]


class CountingStream(IterableDataset):
    """0, 1, ... as items; without a state of its own. `fails_at` raises in the place of that item."""

    def __init__(self, length: int = 23, fails_at: int | None = None) -> None:
        self.length = length
        self.fails_at = fails_at
        self.starts = 0

    def __iter__(self) -> Any:
        self.starts += 1
        for number in range(self.length):
            if number == self.fails_at:
                raise OSError("the wire is cut", number)
            yield np.array([number, 1])


class SeekableStream(IterableDataset):
    """The same with a state and a length; other items each epoch."""

    def __init__(self, length: int = 23) -> None:
        self.length = length
        self.epoch = 0
        self.position = 0
        self.pending = 0
        self.items_read = 0

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        self.position, self.pending = self.pending, 0
        while self.position < self.length:
            self.position += 1
            self.items_read += 1
            yield np.array([self.position - 1, self.epoch])

    def state_dict(self) -> Any:
        return {"position": self.position}

    def load_state_dict(self, state: Any) -> None:
        self.pending = state["position"]


def draw_with_context(item: Any, context: Any) -> Any:
    """A transform: the item, and what its own generator gives."""
    draw = context.rng.integers(1 << 30)
    return {"item": item, "draw": draw, "index": str(context.index), "epoch": context.epoch}


class Gate:
    """Blocks items until a test opens it; counts who has come."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._changed = threading.Condition()
        self.come = 0
        self.inside = 0
        self.most = 0

    def open(self) -> None:
        self._open.set()

    def enter(self) -> None:
        """Called by an item: waits until the gate is open."""
        with self._changed:
            self.come += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            self._changed.notify_all()
        if not self._open.wait(DEADLINE):
            raise TimeoutError("nobody opened the gate")
        with self._changed:
            self.inside -= 1

    def wait_for(self, count: int) -> None:
        """Return when `count` have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.come >= count, DEADLINE), f"only {self.come} came"


#: The worker's name in a note.
WORKER = re.compile(r", (?:in )?(the calling thread|worker (thread|process) \d+[^;,]*|Ray actor \d+[^;,]*)")


#: Where a function lies, in its repr: somewhere else in each process.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Result:
    """One `next()`: indices and batch, or type, arguments and notes of the error, without the worker's name."""

    indices: tuple[Any, ...] | None
    value: Any


def results(iterator: Any, limit: int = 1000) -> list[Result]:
    """Return what an iterator of `iter_with_indices()` gives, to its end."""
    found: list[Result] = []
    for _ in range(limit):
        try:
            indices, batch = next(iterator)
        except StopIteration:
            return found
        except Exception as error:
            notes = [ADDRESS.sub("", WORKER.sub("", note)) for note in getattr(error, "__notes__", [])]
            cause = error.__cause__
            # Where an error came from another process, the traceback over there stands at the end of its causes.
            if isinstance(cause, WorkerTraceback):
                cause = None
            found.append(Result(None, (type(error), error.args, type(cause), notes)))
        else:
            found.append(Result(tuple(indices), batch))
    raise AssertionError(f"no end after {limit} batches")


def same_results(one: list[Result], other: list[Result]) -> bool:
    return len(one) == len(other) and all(
        a.indices == b.indices and same(a.value, b.value) for a, b in zip(one, other)
    )
