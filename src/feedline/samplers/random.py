"""Shuffled orders: exact, in constant memory, or with replacement."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from feedline.errors import OptionError
from feedline.keys import check_epoch, derive_key, shuffle_state
from feedline.samplers.arguments import check_bool, check_choice, check_int, check_length
from feedline.samplers.orders import ComputedOrder
from feedline.samplers.permutation import FeistelPermutation, bounded_draws, fisher_yates
from feedline.samplers.protocol import Int64Array
from feedline.samplers.seeded import Seeded

__all__ = ["DrawnOrder", "PermutedOrder", "RandomSampler"]

# Up to here the table of an exact shuffle is no more memory than the keyed permutation's own scratch.
_SMALL = 4096


class RandomSampler(Seeded):
    """Visits the items in a shuffled order, a new one each epoch.

    Args:
        seed: 0 to 2**64 - 1; `None` draws fresh entropy, once.
        replacement: draw each index independently, so that some come twice and some never.
        num_samples: indices in an epoch; default: as many as the dataset has items. Without replacement a larger
            number starts further shuffles, as torch does.
        memory: `"full"` makes an exact Fisher-Yates permutation, every order equally likely, when the first slice is
            asked for (8 bytes an item). `"constant"` computes each slice by a keyed pseudo-random permutation:
            nothing grows with the dataset, and any place is reached at once. (Up to 4,096 items it is exact too.)

    Raises:
        TypeError: an argument has a wrong type.
        OptionError: one is out of range, or `memory="constant"` stands with `replacement=True`, whose draws are
            computed slice by slice anyway.

    Determinism: the order depends on (seed, epoch, length) and these options only, and is frozen: no version of
    feedline, Python or NumPy changes it.
    Concurrency: immutable; pickles small.

    >>> from feedline.samplers.random import RandomSampler
    >>> RandomSampler(seed=7).order(5, epoch=0)[:]
    array([4, 2, 1, 0, 3])
    >>> RandomSampler(seed=7, memory="constant").order(10**10, epoch=3)[5_000_000_000:5_000_000_003]
    array([4784747852, 3025280641, 6852507597])
    """

    def __init__(
        self,
        seed: int | None = 0,
        *,
        replacement: bool = False,
        num_samples: int | None = None,
        memory: str = "full",
    ) -> None:
        super().__init__(seed)
        self.replacement = check_bool("replacement", replacement)
        self.num_samples = None if num_samples is None else check_int("num_samples", num_samples, 0)
        self.memory = check_choice("memory", memory, ("full", "constant"))
        if self.replacement and self.memory == "constant":
            raise OptionError(
                "memory='constant' is for shuffles; replacement=True never needs more: leave memory out"
            )

    def order(self, length: int, epoch: int) -> PermutedOrder | DrawnOrder:
        """Return the order of `epoch` over `length` items; an empty dataset has an empty order."""
        length, epoch = check_length(length), check_epoch(epoch)
        count = length if self.num_samples is None or length == 0 else self.num_samples
        if self.replacement:
            return DrawnOrder(length, count, derive_key("feedline draws", self.entropy, epoch))
        return PermutedOrder(length, count, self.entropy, epoch, constant=self.memory == "constant")

    def options(self) -> dict[str, Any]:
        """Return what identifies the order, as JSON values."""
        return {
            "seed": self.seed,
            "replacement": self.replacement,
            "num_samples": self.num_samples,
            "memory": self.memory,
        }

    def __repr__(self) -> str:
        parts = [f"seed={self.seed}"]
        if self.replacement:
            parts.append("replacement=True")
        if self.num_samples is not None:
            parts.append(f"num_samples={self.num_samples}")
        if self.memory != "full":
            parts.append(f"memory={self.memory!r}")
        return f"RandomSampler({', '.join(parts)})"


class DrawnOrder(ComputedOrder):
    """`count` independent draws from `length` items, each slice computed by itself."""

    def __init__(self, length: int, count: int, key: bytes) -> None:
        super().__init__(count)
        self._bound = length
        self._key = key

    def _span(self, first: int, last: int) -> Int64Array:
        if first == last:
            return np.empty(0, np.int64)
        return bounded_draws(self._key, first, last - first, self._bound)


class PermutedOrder(ComputedOrder):
    """`count` indices from one shuffle of `length` items, or from several, one after the other.

    Concurrency: may be read by several threads. Two that come first at once may both compute the same table; either
    copy is right, and one is kept.
    """

    def __init__(self, length: int, count: int, seed: int, epoch: int, constant: bool) -> None:
        super().__init__(count)
        self._size = length
        self._seed = seed
        self._epoch = epoch
        self._keyed = constant and length > _SMALL
        self._purpose = "feedline feistel" if constant else "feedline shuffle"
        # The shuffle that was used last, with its number: one tuple, so that no thread sees one without the other.
        self._latest: tuple[int, Int64Array | FeistelPermutation] | None = None

    def _shuffle(self, number: int) -> Int64Array | FeistelPermutation:
        latest = self._latest
        if latest is not None and latest[0] == number:
            return latest[1]
        rest = (struct.pack("<Q", number),) if number else ()
        made: Int64Array | FeistelPermutation
        if self._keyed:
            place = (struct.pack("<Q", self._size), *rest)
            key = derive_key(self._purpose, self._seed, self._epoch, *place, size=48)
            made = FeistelPermutation(self._size, key)
        else:
            made = fisher_yates(shuffle_state(self._purpose, self._seed, self._epoch, *rest), self._size)
        self._latest = (number, made)
        return made

    def _span(self, first: int, last: int) -> Int64Array:
        if first == last:
            return np.empty(0, np.int64)
        number, start = divmod(first, self._size)
        stop = start + last - first
        if stop <= self._size:
            return self._part(number, start, stop)
        result = np.empty(last - first, np.int64)
        done = 0
        while done < len(result):
            stop = min(self._size, start + len(result) - done)
            result[done : done + stop - start] = self._part(number, start, stop)
            done += stop - start
            number, start = number + 1, 0
        return result

    def _part(self, number: int, start: int, stop: int) -> Int64Array:
        shuffle = self._shuffle(number)
        if isinstance(shuffle, FeistelPermutation):
            return shuffle(np.arange(start, stop, dtype=np.uint64))
        return shuffle[start:stop].copy()

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the indices at `positions` (ascending, in range), shape `(k,)`."""
        if len(positions) == 0:
            return np.empty(0, np.int64)
        numbers = positions // self._size
        if numbers[0] == numbers[-1]:
            return self._at(int(numbers[0]), positions - numbers[0] * self._size)
        result = np.empty(len(positions), np.int64)
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        for start, stop in zip(starts, [*starts[1:], len(positions)], strict=True):
            number = int(numbers[start])
            result[start:stop] = self._at(number, positions[start:stop] - number * self._size)
        return result

    def _at(self, number: int, places: Int64Array) -> Int64Array:
        shuffle = self._shuffle(number)
        if isinstance(shuffle, FeistelPermutation):
            return shuffle(places.astype(np.uint64))
        return shuffle[places]

    def __getstate__(self) -> dict[str, Any]:
        # The table is made again where it is needed, from a few numbers.
        return {**self.__dict__, "_latest": None}
