"""Where all randomness comes from: (seed, epoch, index, place) hashed into keys and generators.

Seeds and epochs are *hashed* into a key, never added: seed 42 epoch 1 has nothing to do with seed 43 epoch 0. The hash
is BLAKE2b (RFC 7693) over a fixed encoding, so keys are the same on every platform and in every version of Python and
NumPy. Nothing here reads or writes the global random state of Python, NumPy or torch.
"""

from __future__ import annotations

import hashlib
import operator
import secrets
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

from feedline.errors import OptionError

__all__ = [
    "MAX_SEED",
    "UNIFORMS",
    "BatchUniforms",
    "check_epoch",
    "check_seed",
    "derive_key",
    "encode_index",
    "fresh_seed",
    "item_generator",
    "item_uniforms",
    "shuffle_state",
]

MAX_SEED = 2**64 - 1


def _check_unsigned(name: str, value: Any) -> int:
    # bool is an int to Python, but `seed=True` is a slip, not a seed.
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__} {value!r}") from None
    if not 0 <= number <= MAX_SEED:
        raise OptionError(f"{name} must be between 0 and 2**64 - 1, not {number}")
    return number


def check_seed(seed: Any) -> int:
    """Return `seed` as a plain int in [0, 2**64 - 1].

    Raises:
        TypeError: `seed` is not integer-like (bools are not).
        OptionError: it is negative or above 2**64 - 1.
    """
    return _check_unsigned("seed", seed)


def check_epoch(epoch: Any) -> int:
    """Return `epoch` as a plain int in [0, 2**64 - 1]; raises as `check_seed` does."""
    return _check_unsigned("epoch", epoch)


def fresh_seed() -> int:
    """Draw a seed from the operating system's entropy (for `seed=None`); no global state is touched."""
    return secrets.randbits(64)


def encode_index(index: Any) -> bytes:
    """Encode an item's index for hashing: different indices have different encodings.

    Ints of any size, str, bytes, bool, None, floats and tuples of these have a fixed encoding. Any other hashable key
    is told by its type's qualified name and its `repr`.

    Raises:
        TypeError: the key's `repr` shows only its address, so it would differ from run to run.
    """
    if type(index) is int:
        return b"i%d" % index
    if isinstance(index, (bool, np.bool_)):
        return b"o1" if index else b"o0"
    if isinstance(index, (int, np.integer)):
        return b"i%d" % int(index)
    if isinstance(index, str):
        return b"s" + index.encode("utf-8", "surrogatepass")
    if isinstance(index, bytes):
        return b"b" + index
    if index is None:
        return b"n"
    if isinstance(index, float):
        return b"f" + struct.pack("<d", index)
    if type(index) is tuple:
        parts = [encode_index(part) for part in index]
        return b"t" + b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    text = repr(index)
    if f"at 0x{id(index):x}" in text.lower():
        raise TypeError(
            f"the key {text} can't seed a generator: its repr is only its address; give "
            f"{type(index).__name__} a __repr__ that tells its value"
        )
    cls = type(index)
    return f"x{cls.__module__}.{cls.__qualname__}:{text}".encode("utf-8", "surrogatepass")


def derive_key(purpose: str, seed: int, epoch: int, *rest: bytes, size: int = 16) -> bytes:
    """Hash (purpose, seed, epoch, rest) into `size` bytes (1 to 64).

    `purpose` (at most 16 ASCII characters) keeps streams apart that share a seed: the shuffle's from an item's.
    """
    digest = hashlib.blake2b(
        struct.pack("<QQ", seed, epoch), digest_size=size, person=purpose.encode("ascii")
    )
    for part in rest:
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.digest()


def shuffle_state(purpose: str, seed: int, epoch: int, *rest: bytes) -> np.random.RandomState:
    """Return a `RandomState` over MT19937, whose streams NumPy has frozen (NEP 19), keyed by the arguments."""
    words = np.frombuffer(derive_key(purpose, seed, epoch, *rest, size=32), "<u4")
    sequence = np.random.SeedSequence([int(word) for word in words])
    return np.random.RandomState(np.random.MT19937(sequence))


class _KeyWords(ISeedSequence):
    """Hands 16 bytes to Philox as its key; `Philox(key=...)` does the same, but first asks the system for entropy."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[Any]:
        return np.frombuffer(self._key, "<u8")


_pack_two = struct.Struct("<QQ").pack
_unpack_two = struct.Struct("<QQ").unpack
_pack_one = struct.Struct("<Q").pack


def _item_key(seed: int, epoch: int, index: Any, place: int) -> bytes:
    """Return `derive_key("feedline item", seed, epoch, encode_index(index), place packed)` in one go."""
    name = encode_index(index)
    text = _pack_two(seed, epoch) + _pack_one(len(name)) + name + _pack_two(8, place)
    return hashlib.blake2b(text, digest_size=16, person=b"feedline item").digest()


def item_generator(seed: int, epoch: int, index: Any, place: int) -> np.random.Generator:
    """Return the generator of one step of one item: a function of (seed, epoch, index, place in the chain).

    The raw bits (Philox 4x64, Salmon et al. 2011, keyed with 128 bits) are frozen; what `Generator`'s methods make of
    them may change between NumPy versions.
    """
    # NumPy takes any ISeedSequence; its type hints know SeedSequence alone.
    key = _KeyWords(_item_key(seed, epoch, index, place))
    return np.random.Generator(np.random.Philox(key))  # type: ignore[arg-type]


#: How many numbers `item_uniforms` gives; steps seldom need more.
UNIFORMS = 8


class _Rekeyed:
    """A generator that is keyed anew for every item, since making one takes three times as long."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(_KeyWords(bytes(16)))  # type: ignore[arg-type]
        self._generator = np.random.Generator(self._bits)
        self._start = {"counter": (0, 0, 0, 0), "key": (0, 0)}
        self._state: Any = {
            "bit_generator": "Philox",
            "state": self._start,
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def uniforms(self, key: bytes) -> list[float]:
        self._start["key"] = _unpack_two(key)
        self._bits.state = self._state
        numbers: list[float] = self._generator.random(UNIFORMS).tolist()
        return numbers


# Whoever needs one takes it out, so no two threads, and no signal handler in the middle of either, use the same.
_idle: list[_Rekeyed] = []


def item_uniforms(seed: int, epoch: int, index: Any, place: int) -> list[float]:
    """Return the first `UNIFORMS` numbers that `item_generator(...).random()` gives, without making the generator."""
    key = _item_key(seed, epoch, index, place)
    try:
        rekeyed = _idle.pop()
    except IndexError:
        rekeyed = _Rekeyed()
    numbers = rekeyed.uniforms(key)
    _idle.append(rekeyed)
    return numbers


class BatchUniforms:
    """The numbers of `item_uniforms` for the items of a batch: all those of a place when the first one is asked for.

    Between two decoded images the code that draws has left the processor's caches, and takes three times as long.

    Concurrency: belongs to one thread.
    """

    __slots__ = ("_epoch", "_indices", "_places", "_seed")

    def __init__(self, seed: int, epoch: int, indices: Sequence[Any]) -> None:
        self._seed = seed
        self._epoch = epoch
        self._indices = indices
        self._places: dict[int, list[list[float] | None]] = {}

    def take(self, place: int, position: int, index: Any) -> list[float]:
        """Return the numbers of the item at `position`, which is `index`; the list is the caller's."""
        numbers = self._places.get(place)
        if numbers is None:
            numbers = self._places[place] = self._of_all(place)
        taken = numbers[position]
        if taken is None:
            return item_uniforms(self._seed, self._epoch, index, place)
        numbers[position] = None
        return taken

    def _of_all(self, place: int) -> list[list[float] | None]:
        # Other keys may be refused, and that is their own item's error.
        return [
            item_uniforms(self._seed, self._epoch, index, place) if type(index) is int else None
            for index in self._indices
        ]
