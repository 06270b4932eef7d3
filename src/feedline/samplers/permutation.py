"""All shuffle arithmetic, and nothing else: an exact shuffle, a keyed permutation, keyed draws, an alias table.

Everything here is frozen: for equal arguments the results may never change, on any platform and with any version of
Python or NumPy. So it rests on integer arithmetic modulo 2**64, on `RandomState` over MT19937, and on the raw words of
Philox 4x64 (Salmon et al. 2011), which NumPy keeps as they are; never on `Generator`, whose streams may change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from feedline.samplers.protocol import Int64Array

__all__ = ["AliasTable", "FeistelPermutation", "bounded_draws", "fisher_yates", "keyed_words"]

UInt64Array = npt.NDArray[np.uint64]


def fisher_yates(state: np.random.RandomState, length: int) -> Int64Array:
    """Return a permutation of 0 ... `length` - 1, every one equally likely; shape `(length,)`, new memory.

    Determinism: depends on `state` and `length` only.
    """
    permutation = np.arange(length, dtype=np.int64)
    state.shuffle(permutation)
    return permutation


# Multipliers of the 64-bit finaliser of MurmurHash3 (Austin Appleby, public domain): odd, with well-spread bits.
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_32 = np.uint64(32)
_ROUNDS = 6
# Positions that are permuted at a time: four scratch arrays of this size stay in a core's own cache.
_BLOCK = 8192


class FeistelPermutation:
    """A keyed pseudo-random permutation of 0 ... `length` - 1 in constant memory, with random access.

    An alternating Feistel network (Luby and Rackoff 1988; Black and Rogaway 2002 for domains of any size) on pairs
    (left, right): left has `k` bits, half of those that `length` needs, and right counts to `ceil(length / 2**k)`. Rounds
    change the sides by turns: left by XOR, right by an addition modulo its range, each with a hash of the other side
    and a 64-bit key. A pair stands for a number below `2**k * ceil(length / 2**k)`, so fewer than `2**k` numbers
    lie beyond `length`; from one of these the walk goes on along its cycle until it is back in range.

    Args:
        length: size of the domain, 2 to 2**63 - 1.
        key: 48 bytes, a 64-bit key for each of the 6 rounds.

    Determinism: depends on (length, key, position) only.
    Concurrency: immutable.
    """

    def __init__(self, length: int, key: bytes) -> None:
        self.length = length
        bits = (length - 1).bit_length() // 2
        width = -(-length // (1 << bits))
        self._keys = [np.uint64(int(word)) for word in np.frombuffer(key, "<u8", count=_ROUNDS)]
        self._bits = np.uint64(bits)
        self._mask = np.uint64((1 << bits) - 1)
        # Below 2**32 + 1 for every length, so that a 32-bit hash times it does not overflow.
        self._width = np.uint64(width)
        self._lengthened = np.uint64(length)
        self._walks = width << bits != length

    def __call__(self, positions: UInt64Array) -> Int64Array:
        """Return where `positions`, shape `(k,)`, all below `length`, are sent to: shape `(k,)`, new memory."""
        result = np.empty(len(positions), np.uint64)
        for start in range(0, len(positions), _BLOCK):
            self._permute(positions[start : start + _BLOCK], result[start : start + _BLOCK])
        if self._walks:
            self._walk(result)
        return result.view(np.int64)

    def _walk(self, values: UInt64Array) -> None:
        # Cycle-walking keeps this a permutation: starting in range, the cycle comes back into range at the latest
        # where it started.
        outside = np.flatnonzero(values >= self._lengthened)
        while len(outside):
            again = values[outside]
            self._permute(again, again)
            values[outside] = again
            outside = outside[again >= self._lengthened]

    def _permute(self, values: UInt64Array, out: UInt64Array) -> None:
        left = np.bitwise_and(values, self._mask)
        right = np.right_shift(values, self._bits)
        scratch, mixed = np.empty_like(left), np.empty_like(left)
        for number, key in enumerate(self._keys):
            changed, other = (right, left) if number % 2 else (left, right)
            # A hash of the other side: 32 bits, the upper half of `mixed`.
            np.bitwise_xor(other, key, out=mixed)
            np.multiply(mixed, _FIRST, out=mixed)
            np.right_shift(mixed, _32, out=scratch)
            np.bitwise_xor(mixed, scratch, out=mixed)
            np.multiply(mixed, _SECOND, out=mixed)
            np.right_shift(mixed, _32, out=mixed)
            if number % 2:
                # (right + floor(hash * width / 2**32)) mod width; the subtraction wraps far up where it is not due.
                np.multiply(mixed, self._width, out=mixed)
                np.right_shift(mixed, _32, out=mixed)
                np.add(changed, mixed, out=changed)
                np.subtract(changed, self._width, out=mixed)
                np.minimum(changed, mixed, out=changed)
            else:
                np.bitwise_and(mixed, self._mask, out=mixed)
                np.bitwise_xor(changed, mixed, out=changed)
        np.left_shift(right, self._bits, out=out)
        np.bitwise_or(out, left, out=out)


def keyed_words(key: bytes, first: int, count: int, stream: int = 0) -> UInt64Array:
    """Return the words `first` ... `first + count - 1` of a keyed sequence of 64-bit words, shape `(count,)`.

    Args:
        key: 16 bytes.
        first: number of the first word, from 0 to 2**65.
        count: how many.
        stream: which of 2**64 independent sequences of this key.

    Determinism: word `n` depends on (key, stream, n) only: nothing is drawn before it.
    """
    # Philox makes four words from a counter. Its lower 64 bits count these blocks, the next 64 tell the stream.
    block, skip = divmod(first, 4)
    philox = np.random.Philox(key=int.from_bytes(key, "little"), counter=block + (stream << 64))
    words: UInt64Array = philox.random_raw(skip + count)
    return words[skip:]


def bounded_draws(key: bytes, first: int, count: int, bound: int) -> Int64Array:
    """Return the draws `first` ... `first + count - 1` from 0 ... `bound` - 1, each value equally likely.

    Draw `n` is word `n` modulo `bound`. Words from the incomplete last run of `bound` values below 2**64 would
    favour small results: these are drawn again from further streams, at the same place, so access stays random.

    Returns:
        Shape `(count,)`, int64, new memory.
    """
    words = keyed_words(key, first, count)
    spare = 2**64 % bound
    if spare:
        limit = np.uint64(2**64 - spare)
        stream = 0
        rejected = np.flatnonzero(words >= limit)
        while len(rejected):
            stream += 1
            for place in rejected:
                words[place] = keyed_words(key, first + int(place), 1, stream)[0]
            rejected = rejected[words[rejected] >= limit]
    return np.remainder(words, np.uint64(bound), out=words).view(np.int64)


class AliasTable:
    """Draws from `n` weights in constant time each (Walker 1977; Vose 1991).

    Every column is split between itself and an alias. The table is built by one sweep in which each heavy weight
    in turn fills up the light ones until it is light itself; written with prefix sums (Hübschle-Schneider and
    Sanders 2022), so that NumPy does it all. Sums run strictly from left to right: their rounding is the same everywhere.

    Args:
        weights: shape `(n,)`, float64, n >= 1, finite, not negative, not all zero. A weight of zero is never drawn.
    """

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        count = len(weights)
        # Divided by the largest first, so that no sum overflows.
        shares = weights / weights.max()
        shares *= count / np.cumsum(shares)[-1]
        self.keep: npt.NDArray[np.float64] = np.minimum(shares, 1.0)
        self.alias: Int64Array = np.arange(count, dtype=np.int64)
        heavy = np.flatnonzero(shares > 1.0)
        light = np.flatnonzero(shares < 1.0)
        if not len(heavy) or not len(light):
            self.keep[:] = 1.0
            return
        # Light column i is filled while `before[i]` of the surplus is spent: by the first heavy one that reaches beyond.
        before = np.concatenate(([0.0], np.cumsum(1.0 - shares[light])))
        surplus = np.cumsum(shares[heavy] - 1.0)
        filler = np.searchsorted(surplus, before[:-1], side="right")
        self.alias[light] = heavy[np.minimum(filler, len(heavy) - 1)]
        # Heavy column j has given away too much by what its last light column took beyond `surplus[j]`; its
        # successor makes up for it. The last one ends with exactly 1 but for rounding.
        spent = before[np.minimum(np.searchsorted(before, surplus), len(before) - 1)]
        self.keep[heavy] = np.clip(1.0 + surplus - spent, 0.0, 1.0)
        self.keep[heavy[-1]] = 1.0
        self.alias[heavy[:-1]] = heavy[1:]

    def draws(self, key: bytes, first: int, count: int) -> Int64Array:
        """Return the draws `first` ... `first + count - 1` of the sequence keyed by `key` (32 bytes), shape `(count,)`."""
        columns = bounded_draws(key[:16], first, count, len(self.keep))
        # 53 bits: every float64 in [0, 1) on that grid is equally likely, and 1.0 never comes.
        levels = (keyed_words(key[16:], first, count) >> np.uint64(11)) * 2.0**-53
        return np.where(levels < self.keep[columns], columns, self.alias[columns])
