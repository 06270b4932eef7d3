"""A weighted mixture of datasets: `MixtureDataset`."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feedline.datasets.combination import AsyncCombination, Combination, check_parts
from feedline.datasets.interleave import MAX_POSITIONS, Interleave
from feedline.datasets.kind import class_name, dataset_kind
from feedline.datasets.protocol import AsyncDataset, Int64Array
from feedline.errors import OptionError

__all__ = ["MixtureDataset"]


class MixtureDataset(Combination):
    """Datasets interleaved by weights, as evenly as can be, without chance: there is no seed.

    Args:
        datasets: the parts by name, all of them asynchronous or none; none empty.
        weights: positive numbers, by name or in the order of the parts; only their ratios matter.
        length: number of items; a part that has run out starts anew. By default the mixture is as long as until the
            first part runs out, so that nothing is repeated.

    Which part an item comes from is computed from its index, in a few steps for any index up to 2**36: nothing is
    replayed, and a resume is a seek. Among the first `p` items each part has its share of `p` within half an item for
    two parts, within one for three, and within two for any number.

    Attributes:
        part_names: names of the parts.
        weights: of the parts, in the same order, summing to 1.

    Raises:
        TypeError: a part is no dataset, or some are asynchronous and some are not; a weight is no number.
        OptionError: there are no parts, one is empty, names or numbers of weights don't fit, a weight is not positive
            and finite, or `length` is out of range.

    Determinism: a function of the weights, and of the lengths of the parts where they start anew.

    >>> mixture = MixtureDataset({"a": ["a0", "a1", "a2"], "b": ["b0", "b1"]}, {"a": 2, "b": 1})
    >>> list(mixture)
    ['a0', 'b0', 'a1', 'a2', 'b1']
    """

    def __new__(cls, datasets: Any = None, weights: Any = None, length: int | None = None) -> MixtureDataset:
        """Make the asynchronous form of asynchronous datasets; see the note in `feedline.datasets.combination`."""
        waits = isinstance(datasets, Mapping) and any(
            isinstance(part, AsyncDataset) for part in datasets.values()
        )
        return object.__new__(_AsyncMixtureDataset if cls is MixtureDataset and waits else cls)

    def __init__(
        self,
        datasets: Mapping[str, Any],
        weights: Mapping[str, float] | Sequence[float],
        length: int | None = None,
    ) -> None:
        if not isinstance(datasets, Mapping):
            raise TypeError(f"MixtureDataset takes a dict of datasets by name, not {type(datasets).__name__}")
        if not datasets:
            raise OptionError("MixtureDataset needs at least one dataset, not an empty dict")
        self.part_names: tuple[str, ...] = tuple(map(str, datasets))
        self.parts = check_parts([f"part {name!r}" for name in datasets], list(datasets.values()))
        given = _check_weights(weights, list(datasets))
        self.weights = tuple(weight / math.fsum(given) for weight in given)
        self._interleave = Interleave(given)
        self._lengths = np.array([len(part) for part in self.parts], np.int64)
        if not self._lengths.all():
            empty = self.part_names[int((self._lengths == 0).argmax())]
            raise OptionError(f"part {empty!r} is empty: leave it out of the mixture")
        self._length = (
            self._interleave.longest(self._lengths.tolist()) if length is None else _check_length(length)
        )

    def __len__(self) -> int:
        return self._length

    def _locate(self, position: int) -> tuple[int, int]:
        part, item = self._interleave.locate(position)
        return part, item % int(self._lengths[part])

    def _locate_many(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        parts, items = self._interleave.locate_many(positions)
        return parts, items % self._lengths[parts]

    def kind(self) -> str:
        """Return the qualified class name, with names, weights and kinds of the parts: they decide what an item is."""
        told = zip(self.part_names, self.weights, self.parts)
        inner = ", ".join(f"{name}: {weight:.9g} of {dataset_kind(part)}" for name, weight, part in told)
        cls = MixtureDataset if type(self) is _AsyncMixtureDataset else type(self)
        return f"{class_name(cls)}({inner})"

    def __repr__(self) -> str:
        told = zip(self.part_names, self.weights, self.parts)
        inner = ", ".join(f"{name!r} ({weight:.4g}): {part!r}" for name, weight, part in told)
        return f"MixtureDataset({inner}; {self._length} items)"


class _AsyncMixtureDataset(MixtureDataset, AsyncCombination):
    """A mixture of `AsyncDataset`s."""


def _check_weights(weights: Any, names: list[Any]) -> list[float]:
    if isinstance(weights, Mapping):
        missing = [name for name in names if name not in weights]
        unknown = [name for name in weights if name not in names]
        if missing or unknown:
            raise OptionError(
                f"weights must name the parts {names}: {missing or 'none'} missing, {unknown or 'none'} unknown"
            )
        given = [weights[name] for name in names]
    elif isinstance(weights, (Sequence, np.ndarray)) and not isinstance(weights, (str, bytes)):
        given = list(weights)
        if len(given) != len(names):
            raise OptionError(f"{len(names)} parts need as many weights, not {len(given)}")
    else:
        raise TypeError(f"weights must be numbers, by name or in order, not {type(weights).__name__}")
    return [_check_weight(name, weight) for name, weight in zip(names, given)]


def _check_weight(name: Any, weight: Any) -> float:
    if isinstance(weight, (bool, np.bool_, str, bytes)) or not hasattr(weight, "__float__"):
        raise TypeError(f"the weight of {name!r} must be a number, not {type(weight).__name__} {weight!r}")
    number = float(weight)
    if not (math.isfinite(number) and number > 0):
        raise OptionError(
            f"the weight of {name!r} must be positive and finite, not {number}; leave out a part of 0"
        )
    return number


def _check_length(length: Any) -> int:
    if isinstance(length, (bool, np.bool_)) or not hasattr(length, "__index__"):
        raise TypeError(f"length must be an int or None, not {type(length).__name__} {length!r}")
    number = operator.index(length)
    if not 0 <= number <= MAX_POSITIONS - 1:
        raise OptionError(f"length must be between 0 and 2**36 - 1, not {number}")
    return number
