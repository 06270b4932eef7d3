"""The memory of batches: `BufferPool` reuses that of large arrays, `BatchMemory` is one batch's access to it.

Note [lifetime]
    An array from the pool is a view of a *loan*, and the loan is a view of a *block*:

    ```text
    what the user sees      plain np.ndarray, and whatever was made of it: slices, reshapes, memoryviews, DLPack
       | base               capsules, tensors; every one of them keeps the loan alive
    _Loan                   made for one hand-out; when it is deallocated, its block goes back to the shelves
       | base
    _Block                  owns the bytes; lies on a shelf, or belongs to exactly one loan
    ```

    NumPy shortens chains of views, but stops at a base of another type, so the loan can't drop out of the chain: both
    it and the block are of types of their own. Nothing else rests on how references are counted, so the rule holds
    on free-threaded builds, too.
    `__del__` of a loan puts its block on a shelf together with a weak reference to the loan, and the block is used again
    only if the loan is really gone by then: the garbage collector calls `__del__` for a whole cycle before it frees
    any of it, and another finaliser may bring the cycle back to life.
    `__del__` may run on any thread, inside a collection or a signal handler, and in the middle of any of our own
    functions: it takes no lock, and does nothing but atomic operations on deques.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError

__all__ = ["ALIGNMENT_BYTES", "BatchMemory", "BufferPool"]

#: Pooled arrays begin at a multiple of this: a cache line, and what wide vector instructions like.
ALIGNMENT_BYTES = 64
#: Below this the allocator's own free lists are as quick, and nothing is gained by keeping memory.
MIN_BYTES = 64 * 1024
MAX_IDLE_BYTES = 512 * 1024 * 1024
_MAX_SIZES = 1024

_BYTE = np.dtype(np.uint8)
_new_array = np.ndarray.__new__
_base_of = np.ndarray.base.__get__

# Counts the forks that led to this process; see BufferPool.
_forks = 0


def _after_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Block(np.ndarray[Any, Any]):
    """Bytes that the pool owns, and where they go back to."""

    __slots__ = ("home", "offset")
    home: weakref.ref[_Shelf]
    offset: int


class _Loan(np.ndarray[Any, Any]):
    """A block that is given out: see the note [lifetime]."""

    __slots__ = ()
    # The chain of bases ends here for everybody else, so that nobody can hold the block without the loan.
    base: ClassVar[None] = None

    # Defaults, as module globals may be gone when the interpreter ends.
    def __del__(self, base_of: Any = _base_of, block_type: Any = _Block, ref: Any = weakref.ref) -> None:
        block = base_of(self)
        # A view of a loan is of this type, too, and has no block of its own.
        if type(block) is block_type:
            shelf = block.home()
            if shelf is not None:
                shelf.put_back(ref(self), block)


class _Shelf:
    """Returned blocks of one capacity, each with a reference to the loan that it came back from.

    Attributes:
        stamp: when the shelf last had to make a new block; a larger number is later.
        limit: how many blocks may lie here, if there is no other shelf.
    """

    __slots__ = ("__weakref__", "capacity", "limit", "returned", "stamp", "store")

    def __init__(self, capacity: int, store: _Store) -> None:
        self.capacity = capacity
        self.limit = store.max_idle_bytes // capacity
        # Weak, as everything upwards: a pool that is dropped frees its memory at once, not when garbage is collected.
        self.store = weakref.ref(store)
        self.returned: deque[tuple[weakref.ref[_Loan], _Block]] = deque()
        self.stamp = 0

    def take(self) -> _Block | None:
        """Return a block that nobody sees, or `None` if there is none."""
        try:
            while True:
                # The one used last: its pages are the likeliest to be in a cache.
                loan, block = self.returned.pop()
                if loan() is None:
                    return block
        except IndexError:
            return None

    def new_block(self) -> _Block:
        fresh: _Block = _new_array(_Block, self.capacity + ALIGNMENT_BYTES, _BYTE)
        fresh.home = weakref.ref(self)
        fresh.offset = -fresh.__array_interface__["data"][0] % ALIGNMENT_BYTES
        return fresh

    def put_back(self, loan: weakref.ref[_Loan], block: _Block) -> None:
        """Keep `block` for later; called by finalisers, see the note [lifetime]."""
        # Append first, then look: whoever comes last sees all, so the limit holds once everybody is done.
        self.returned.append((loan, block))
        store = self.store()
        # The sum need not be taken while this is the only shelf.
        if store is not None and (len(store.shelves) > 1 or len(self.returned) > self.limit):
            store.trim()


class _Store:
    """All shelves of a pool.

    Concurrency: lock-free. `shelves` only grows. `clock` and `stamp` may lose an update; they choose whom to evict,
    no more.
    """

    __slots__ = ("__weakref__", "by_capacity", "by_size", "clock", "max_idle_bytes", "shelves")

    def __init__(self, max_idle_bytes: int) -> None:
        self.max_idle_bytes = max_idle_bytes
        self.by_capacity: dict[int, _Shelf] = {}
        self.by_size: dict[int, _Shelf] = {}  # sizes asked for lately, not rounded up
        self.shelves: list[
            _Shelf
        ] = []  # those of by_capacity; a list can be walked while somebody appends to it
        self.clock = 0

    def shelf(self, nbytes: int) -> _Shelf:
        capacity = _capacity(nbytes)
        new = _Shelf(capacity, self)
        shelf = self.by_capacity.setdefault(capacity, new)
        if shelf is new:
            self.shelves.append(new)
        if len(self.by_size) >= _MAX_SIZES:
            self.by_size.clear()
        self.by_size[nbytes] = shelf
        return shelf

    def take(self, nbytes: int) -> _Block:
        """Return a block of at least `nbytes` that nobody sees."""
        shelf = self.by_size.get(nbytes) or self.shelf(nbytes)
        block = shelf.take()
        if block is None:
            self.clock = shelf.stamp = self.clock + 1
            block = shelf.new_block()
        return block

    def idle_bytes(self) -> int:
        total = 0
        for shelf in self.shelves:
            total += shelf.capacity * len(shelf.returned)
        return total

    def trim(self) -> None:
        """Free blocks until the limit holds, those of the shelf that grew longest ago first."""
        while self.idle_bytes() > self.max_idle_bytes:
            filled = [shelf for shelf in self.shelves if shelf.returned]
            if not filled:
                return
            try:
                min(filled, key=_stamp).returned.popleft()
            except IndexError:  # another thread was quicker, which is as good: look again
                continue


_stamp = attrgetter("stamp")


def _capacity(nbytes: int) -> int:
    """Round up to one of four steps per power of two, so that batches of nearly one size share blocks."""
    step = 1 << max(0, nbytes.bit_length() - 3)
    return -(-nbytes // step) * step


class BufferPool:
    """Memory for large arrays, used again once nobody sees them any more.

    An array from `allocate` is an ordinary one. When it and everything that was made of it (views, memoryviews, DLPack
    exports, tensors) is gone, its memory serves a later `allocate`. The pool never waits, and never gives out memory
    that somebody can still see.

    Args:
        max_idle_bytes: how much memory it keeps for later, at most; more is freed, that of sizes not asked for
            lately first.
        min_bytes: smaller arrays are left to NumPy.

    Raises:
        OptionError: a size is negative.
        TypeError: a size is no int.

    Concurrency: any thread may allocate, and drop what it got. Pickling or forking gives an empty pool with the same
    limits.

    >>> pool = BufferPool()
    >>> first = pool.allocate((256, 256), "float32")
    >>> address = first.ctypes.data
    >>> del first
    >>> pool.allocate((256, 256), "float32").ctypes.data == address
    True
    """

    __slots__ = ("__weakref__", "_forks", "_store", "max_idle_bytes", "min_bytes")

    def __init__(self, max_idle_bytes: int = MAX_IDLE_BYTES, min_bytes: int = MIN_BYTES) -> None:
        for name, value in (("max_idle_bytes", max_idle_bytes), ("min_bytes", min_bytes)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be an int, not {type(value).__name__} {value!r}")
            if value < 0:
                raise OptionError(f"{name} must be at least 0, not {value}")
        self.max_idle_bytes = int(max_idle_bytes)
        self.min_bytes = int(min_bytes)
        self._forks = _forks
        self._store = _Store(self.max_idle_bytes)

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of `shape` and `dtype`: C-contiguous, writable, its content undefined.

        From `min_bytes` on it begins at a multiple of 64 bytes, and its memory may have been used before. Arrays of
        objects are never pooled.
        """
        if type(shape) is not tuple:
            shape = tuple(shape)
        dtype = np.dtype(dtype)
        nbytes = dtype.itemsize * math.prod(shape)
        if nbytes < self.min_bytes or nbytes == 0 or dtype.hasobject:
            return np.empty(shape, dtype)
        if self._forks != _forks:
            # Blocks that lie idle since before the fork share their pages with the parent: writing to them would
            # copy every page. Those that are still lent come home to shelves that are gone.
            self._forks = _forks
            self._store = _Store(self.max_idle_bytes)
        block = self._store.take(nbytes)
        # If this ends half-way (MemoryError, KeyboardInterrupt), the block is freed, or its loan gives it back.
        return np.ndarray(shape, dtype, _new_array(_Loan, nbytes, _BYTE, block, block.offset))

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept for later just now."""
        return self._store.idle_bytes() if self._forks == _forks else 0

    def clear(self) -> None:
        """Free what lies idle; what is lent is freed, not kept, when it comes back."""
        self._store = _Store(self.max_idle_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.max_idle_bytes, self.min_bytes))

    def __repr__(self) -> str:
        return f"BufferPool(max_idle_bytes={self.max_idle_bytes}, min_bytes={self.min_bytes})"


class BatchMemory:
    """The memory of one batch: arrays as asked for, or one block that is filled row by row.

    Args:
        pool: where the memory comes from.
        size: how many items the batch has.

    Concurrency: `row` may be called from several threads at once; `match` once all rows are filled.

    >>> memory = BatchMemory(BufferPool(), 2)
    >>> rows = [memory.row(position, (3,), np.dtype("int64")) for position in range(2)]
    >>> rows[0][:] = 1; rows[1][:] = 2
    >>> memory.match(rows)
    array([[1, 1, 1],
           [2, 2, 2]])
    """

    __slots__ = ("_block", "_lock", "_pool", "_rows", "_sealed", "size")

    def __init__(self, pool: BufferPool, size: int) -> None:
        self.size = size
        self._pool = pool
        self._block: npt.NDArray[Any] | None = None
        self._rows: list[npt.NDArray[Any] | None] = []
        self._sealed = False
        self._lock = threading.Lock()

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return memory from the pool: see `BufferPool.allocate`."""
        return self._pool.allocate(shape, dtype)

    def row(self, position: int, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return C-contiguous, writable memory for the item at `position`, its content undefined.

        The first call fixes shape and dtype of the block, `(size, *shape)`, of which rows are views. Memory of its own
        is given for another shape or dtype, for a row that was given out already (an item that failed may still
        write to it), and once the block is in use as a batch.

        Raises:
            IndexError: `position` is not one of the batch's.
        """
        shape = tuple(shape)
        dtype = np.dtype(dtype)
        if not 0 <= position < self.size:
            raise IndexError(f"row {position} of a batch of {self.size} items")
        with self._lock:
            if not self._sealed:
                if self._block is None:
                    self._block = self._pool.allocate((self.size, *shape), dtype)
                    self._rows = [None] * self.size
                block = self._block
                if block.shape[1:] == shape and block.dtype == dtype and self._rows[position] is None:
                    row: npt.NDArray[Any] = block[position, ...]
                    self._rows[position] = row
                    return row
        return np.empty(shape, dtype)

    def match(self, leaves: Sequence[Any]) -> npt.NDArray[Any] | None:
        """Return the block if `leaves` are its rows, all of them and in order, else `None`.

        The block is given once: a batch that holds one row in two places gets a copy for the second.
        """
        rows = self._rows
        if not rows or len(leaves) != self.size or leaves[0] is not rows[0]:
            return None
        with self._lock:
            if self._sealed or any(leaf is None or leaf is not row for leaf, row in zip(leaves, self._rows)):
                return None
            block, self._block, self._rows, self._sealed = self._block, None, [], True
            return block
