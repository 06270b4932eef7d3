"""Draws with given chances."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.keys import check_epoch, derive_key
from feedline.samplers.arguments import check_int, check_length
from feedline.samplers.orders import ComputedOrder
from feedline.samplers.permutation import AliasTable
from feedline.samplers.protocol import Int64Array
from feedline.samplers.seeded import Seeded

__all__ = ["WeightedOrder", "WeightedSampler"]


class WeightedSampler(Seeded):
    """Draws items with replacement, each with a chance in proportion to its weight.

    Args:
        weights: one number for each item of the dataset, shape `(n,)`; finite, not negative, not all zero. They are
            copied. An item of weight 0 never comes.
        num_samples: draws in an epoch.
        seed: 0 to 2**64 - 1; `None` draws fresh entropy, once.

    Raises:
        TypeError: an argument has a wrong type.
        OptionError: weights that are no chances; `num_samples` below 0, or above 0 without any weight.

    Determinism: draw `p` of an epoch depends on (weights, seed, epoch, p) only; any slice is computed by itself, in
    constant time a draw, by an alias table (16 bytes an item, made for the first slice).
    Concurrency: immutable to the outside; pickles with its weights and without the table.

    >>> from feedline.samplers.weighted import WeightedSampler
    >>> WeightedSampler([0.0, 1.0, 3.0], num_samples=8, seed=1).order(3, epoch=0)[:]
    array([2, 2, 2, 1, 2, 2, 2, 1])
    """

    def __init__(self, weights: Any, num_samples: int, seed: int | None = 0) -> None:
        super().__init__(seed)
        self.num_samples = check_int("num_samples", num_samples, 0)
        self.weights = _check_weights(weights)
        if len(self.weights) == 0 and self.num_samples > 0:
            raise OptionError(
                f"num_samples={self.num_samples} can't be drawn without weights: weights is empty (is the dataset?)"
            )
        self._table: AliasTable | None = None

    def order(self, length: int, epoch: int) -> WeightedOrder:
        """Return the draws of `epoch`.

        Raises:
            OptionError: there are not as many weights as items.
        """
        length, epoch = check_length(length), check_epoch(epoch)
        if length != len(self.weights):
            raise OptionError(
                f"WeightedSampler has {len(self.weights)} weights and the dataset {length} items: give one for each"
            )
        return WeightedOrder(self, derive_key("feedline weights", self.entropy, epoch, size=32))

    def table(self) -> AliasTable:
        """Return the alias table, made on first use."""
        # Two threads may both make it: they make the same one.
        table = self._table
        if table is None:
            table = self._table = AliasTable(self.weights)
        return table

    def options(self) -> dict[str, Any]:
        """Return what identifies the order, as JSON values; the weights by a digest."""
        data = self.weights.astype("<f8").tobytes()
        return {
            "seed": self.seed,
            "num_samples": self.num_samples,
            "weights": hashlib.blake2b(data, digest_size=16).hexdigest(),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def __repr__(self) -> str:
        return f"WeightedSampler(<{len(self.weights)} weights>, num_samples={self.num_samples}, seed={self.seed})"


def _check_weights(weights: Any) -> npt.NDArray[np.float64]:
    if isinstance(weights, (str, bytes)):
        raise TypeError(f"weights must be a sequence of numbers, not {weights!r}")
    try:
        array = np.asarray(weights)
    except ValueError as error:
        raise TypeError(f"weights must be a 1-d sequence of numbers: {error}") from error
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.float64)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise TypeError(
            f"weights must be a 1-d sequence of numbers, not {array.dtype} of shape {array.shape}"
        )
    result = array.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(result) & (result >= 0)))
    if len(bad):
        first = int(bad[0])
        raise OptionError(
            f"weights must be finite and not negative; weights[{first}] is {result[first]} ({len(bad)} such in all)"
        )
    if not result.any():
        raise OptionError(f"weights must not all be zero: none of {len(result)} items could be drawn")
    result.flags.writeable = False
    return result


class WeightedOrder(ComputedOrder):
    """The draws of one epoch, each slice computed by itself."""

    def __init__(self, sampler: WeightedSampler, key: bytes) -> None:
        super().__init__(sampler.num_samples)
        self._sampler = sampler
        self._key = key

    def _span(self, first: int, last: int) -> Int64Array:
        if first == last:
            return np.empty(0, np.int64)
        return self._sampler.table().draws(self._key, first, last - first)
