"""Batches of items of similar length."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np

from feedline.errors import OptionError
from feedline.keys import check_epoch, shuffle_state
from feedline.samplers.arguments import check_batch_number, check_bool, check_int, check_length
from feedline.samplers.permutation import fisher_yates
from feedline.samplers.protocol import Int64Array
from feedline.samplers.seeded import Seeded

__all__ = ["BucketedOrder", "LengthBucketSampler"]

# (items, where each batch starts among them and the last one ends, order of the batches): int64 arrays.
_Layout: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]

# How many batches a pool has by default: few enough to mix items anew each epoch, and enough that the lengths in a batch
# differ by about a hundredth of the whole range.
_POOL_BATCHES = 100


class LengthBucketSampler(Seeded):
    """Makes batches of items of similar length, in shuffled order, so that little is padded.

    Each epoch the items are shuffled, dealt into pools, sorted by length within each pool, and cut into batches; then
    the batches of all pools are shuffled. Items of equal length come in random order.

    Args:
        lengths: the length of each item, shape `(n,)`, integers >= 0. They are copied.
        batch_size: most items in a batch.
        max_tokens: most tokens in a batch, padding included: rows times the longest (a length of 0 counts as 1).
            At least one of the two limits is needed; with both, a batch keeps both.
        seed: 0 to 2**64 - 1; `None` draws fresh entropy, once.
        drop_last: leave out the one batch that has fewer than `batch_size` items; not with `max_tokens`.
        pool_size: items in a pool; default: about 100 batches. With `len(lengths)` there is one pool: least padding, and
            the same neighbours each epoch but for ties.

    Raises:
        TypeError: an argument has a wrong type.
        OptionError: a limit is missing or below 1; an item is longer than `max_tokens`; a length is negative.

    Determinism: batch `k` depends on (lengths, options, seed, epoch, k) only. With `max_tokens` the number of batches
    may differ from epoch to epoch.
    Concurrency: immutable; pickles with its lengths.

    >>> from feedline.samplers.bucket import LengthBucketSampler
    >>> batches = LengthBucketSampler([5, 90, 6, 88, 4, 91], batch_size=3).batches(6, epoch=0)
    >>> [sorted(batches[k].tolist()) for k in range(len(batches))]
    [[1, 3, 5], [0, 2, 4]]
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        seed: int | None = 0,
        *,
        drop_last: bool = False,
        pool_size: int | None = None,
    ) -> None:
        super().__init__(seed)
        if batch_size is None and max_tokens is None:
            raise OptionError("LengthBucketSampler needs batch_size or max_tokens, and has neither")
        self.batch_size = None if batch_size is None else check_int("batch_size", batch_size, 1)
        self.max_tokens = None if max_tokens is None else check_int("max_tokens", max_tokens, 1)
        self.lengths = _check_lengths(lengths, self.max_tokens)
        self.drop_last = check_bool("drop_last", drop_last)
        if self.drop_last and self.max_tokens is not None:
            raise OptionError("drop_last is for batches of one size; with max_tokens every batch has its own")
        self.pool_size = None if pool_size is None else check_int("pool_size", pool_size, 1)
        # The epoch that was laid out last: it is asked for several times, for its number of batches too. One tuple, so
        # that no thread sees an epoch with the layout of another.
        self._latest: tuple[int, _Layout] | None = None

    def batches(self, length: int, epoch: int) -> BucketedOrder:
        """Return the batches of `epoch`.

        Raises:
            OptionError: there are not as many lengths as items.
        """
        length, epoch = check_length(length), check_epoch(epoch)
        if length != len(self.lengths):
            raise OptionError(
                f"LengthBucketSampler has {len(self.lengths)} lengths and the dataset {length} items: give one for each"
            )
        return BucketedOrder(self, epoch)

    def layout(self, epoch: int) -> _Layout:
        """Return the items of `epoch`, where batches start among them, and the order of the batches."""
        latest = self._latest
        if latest is None or latest[0] != epoch:
            latest = self._latest = (epoch, _lay_out(self, epoch))
        return latest[1]

    def __getstate__(self) -> dict[str, Any]:
        # Copies, pickled or with another seed, lay out their own.
        return {**self.__dict__, "_latest": None}

    def items_in_pool(self) -> int:
        """Return how many items a pool has: `pool_size`, or about 100 batches, rounded up to whole batches."""
        rows = self.batch_size
        if self.max_tokens is not None:
            total = max(1, int(self.lengths.sum(dtype=np.int64)))
            typical = max(1, self.max_tokens * len(self.lengths) // total)
            rows = typical if rows is None else min(rows, typical)
        size = self.pool_size or _POOL_BATCHES * (rows or 1)
        return size if self.batch_size is None else -(-size // self.batch_size) * self.batch_size

    def options(self) -> dict[str, Any]:
        """Return what identifies the batches, as JSON values; the lengths by a digest."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "max_tokens": self.max_tokens,
            "drop_last": self.drop_last,
            "pool_size": self.pool_size,
            "lengths": hashlib.blake2b(self.lengths.astype("<i8").tobytes(), digest_size=16).hexdigest(),
        }

    def __repr__(self) -> str:
        limits = [
            f"{name}={value}"
            for name in ("batch_size", "max_tokens", "pool_size")
            if (value := getattr(self, name)) is not None
        ]
        last = ["drop_last=True"] if self.drop_last else []
        parts = [f"<{len(self.lengths)} lengths>", *limits, f"seed={self.seed}", *last]
        return f"LengthBucketSampler({', '.join(parts)})"


def _check_lengths(lengths: Any, max_tokens: int | None) -> Int64Array:
    if isinstance(lengths, (str, bytes)):
        raise TypeError(f"lengths must be a sequence of ints, not {lengths!r}")
    try:
        array = np.asarray(lengths)
    except ValueError as error:
        raise TypeError(f"lengths must be a 1-d sequence of ints: {error}") from error
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"lengths must be a 1-d sequence of ints, not {array.dtype} of shape {array.shape}")
    if array.min() < 0:
        place = int(array.argmin())
        raise OptionError(f"lengths must not be negative; lengths[{place}] is {array[place]}")
    if array.max() > (2**63 - 1 if max_tokens is None else max_tokens):
        place = int(array.argmax())
        limit = "2**63 - 1" if max_tokens is None else f"max_tokens={max_tokens}"
        raise OptionError(
            f"lengths[{place}] is {array[place]}, which no batch can hold: the limit is {limit}; leave the item "
            f"out, cut it, or raise the limit"
        )
    result = array.astype(np.int64)
    result.flags.writeable = False
    return result


class BucketedOrder:
    """The batches of one epoch, laid out when the first is asked for.

    Concurrency: may be read by several threads; two that come first at once compute the same layout.
    """

    def __init__(self, sampler: LengthBucketSampler, epoch: int) -> None:
        self._sampler = sampler
        self._epoch = epoch
        self._layout: _Layout | None = None

    def _laid_out(self) -> _Layout:
        # Kept here, too: the sampler may have gone on to another epoch.
        layout = self._layout
        if layout is None:
            layout = self._layout = self._sampler.layout(self._epoch)
        return layout

    def __len__(self) -> int:
        sampler = self._sampler
        if sampler.max_tokens is None and sampler.batch_size is not None:
            count = len(sampler.lengths)
            return count // sampler.batch_size if sampler.drop_last else -(-count // sampler.batch_size)
        return len(self._laid_out()[2])

    def __getitem__(self, number: int) -> Int64Array:
        place = check_batch_number(number, len(self))
        items, starts, shuffled = self._laid_out()
        cut = int(shuffled[place])
        return items[starts[cut] : starts[cut + 1]].copy()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layout": None}

    def __repr__(self) -> str:
        return f"BucketedOrder({self._sampler!r}, epoch={self._epoch})"


def _lay_out(sampler: LengthBucketSampler, epoch: int) -> _Layout:
    """Return (items, where each batch starts among them and the last one ends, order of the batches)."""
    lengths = sampler.lengths
    items = fisher_yates(shuffle_state("feedline buckets", sampler.entropy, epoch), len(lengths))
    pool = sampler.items_in_pool()
    starts = [0]
    for first in range(0, len(items), pool):
        part = items[first : first + pool]
        # Longest first: then the first item of a batch tells how many rows fit. Stable, so the result is frozen.
        part[:] = part[np.argsort(-lengths[part], kind="stable")]
        place = first
        while place < first + len(part):
            place = min(place + _rows(sampler, int(lengths[items[place]])), first + len(part))
            starts.append(place)
    count = len(starts) - 1
    if sampler.drop_last and count and starts[-1] - starts[-2] < (sampler.batch_size or 0):
        count -= 1
    shuffled = fisher_yates(shuffle_state("feedline batches", sampler.entropy, epoch), count)
    return items, np.array(starts, np.int64), shuffled


def _rows(sampler: LengthBucketSampler, longest: int) -> int:
    if sampler.max_tokens is None:
        return sampler.batch_size or 1
    rows = sampler.max_tokens // max(1, longest)
    return rows if sampler.batch_size is None else min(rows, sampler.batch_size)
