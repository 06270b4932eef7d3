"""Memory that two processes see: results lie in it, so that nobody copies them.

Note [blocks]
    A worker makes blocks: files without a name (nothing is left when both processes are gone, however they end), mapped
    by the worker and, once a descriptor has come over, by the consumer; no descriptor stays open. A batch is made in a
    block, told by (block, offset, length), and the consumer's arrays are views of the same memory.

    ```text
    what the user sees      plain np.ndarray, and whatever was made of it; every one of them keeps the loan alive
       | base
    _Loan                   made for one hand-out
       | base
    _Mapped                 the whole block; its memory is the mapping
    ```

    NumPy shortens chains of views, but stops at a base of another type, so a loan can't drop out of its chain. A block is
    free when the loans of both processes are gone. Nobody is called for it: each side looks at its weak reference when it
    needs to know, the consumer's when it sends the next task, so no finaliser runs at odd moments.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "ALIGNMENT_BYTES",
    "Block",
    "WorkerMemory",
    "anonymous_file",
    "forks_begun",
    "map_file",
    "map_files",
]

ALIGNMENT_BYTES = 64
#: Smaller results go through the pipe.
MIN_BYTES = 64 * 1024
#: Bounds for one worker: mappings are few in a process, and memory that is kept is not there for others.
MAX_BLOCKS = 64
MAX_BYTES = 1 << 30
#: A free block serves a request of at least a quarter of its size.
WASTE = 4

#: The same number on Linux and macOS; `mmap` does not know it.
_MAP_FIXED = 0x10

_forks_begun = 0


def _count_fork() -> None:
    global _forks_begun
    _forks_begun += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_count_fork)


def forks_begun() -> int:
    """Return a number that grows when this process is about to be forked: a child sees shared blocks, too."""
    return _forks_begun


_BYTE = np.dtype(np.uint8)
_new_array = np.ndarray.__new__


def anonymous_file(size: int) -> int:
    """Return the descriptor of a file of `size` bytes that has no name, in memory where the system can.

    Raises:
        OSError: there is no room, or no descriptor left.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("feedline", os.MFD_CLOEXEC)
    else:
        import tempfile

        with tempfile.TemporaryFile(buffering=0) as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_file(descriptor: int, size: int, *, private: bool = False) -> Any:
    """Return `size` writable bytes of a file as an object with a buffer; the descriptor may be closed afterwards.

    `private` memory is copied when it is written to. It is unmapped with the last view of it.

    Raises:
        OSError: there is no room in the address space, or the process has too many mappings.
    """
    if sys.version_info >= (3, 13):
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE
        return mmap.mmap(descriptor, size, access=access, trackfd=False)
    # Before 3.13 a mapping of the standard library keeps a copy of the descriptor, for resizing: a hundred batches
    # would be a hundred descriptors.
    return _owned(_map(None, size, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, descriptor), size)


def map_files(descriptors: list[int], step: int, size: int) -> Any:
    """Return `size` writable, private bytes as `map_file` does: `step` of each file but the last, side by side.

    Raises:
        OSError: as for `map_file`.
    """
    # The first mapping reserves the place of all; nobody sees it before the others lie over it.
    memory = _owned(_map(None, size, mmap.MAP_PRIVATE, descriptors[0]), size)
    start = ctypes.addressof(memory)
    for number, descriptor in enumerate(descriptors[1:], 1):
        offset = number * step
        _map(start + offset, min(step, size - offset), mmap.MAP_PRIVATE | _MAP_FIXED, descriptor)
    return memory


def _map(address: int | None, size: int, flags: int, descriptor: int) -> int:
    found = _libc().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


def _owned(address: int, size: int) -> Any:
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc().munmap, address, size).atexit = False
    return memory


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    offset = ctypes.c_int64 if sys.maxsize > 1 << 32 else ctypes.c_long
    numbers = [ctypes.c_int, ctypes.c_int, ctypes.c_int]
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *numbers, offset]
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


class _Mapped(np.ndarray[Any, Any]):
    """The bytes of a block."""

    __slots__ = ()


class _Loan(np.ndarray[Any, Any]):
    """A block that is given out: see Note [blocks]."""

    # The chain of bases ends here for everybody else, so that nobody can hold the block without the loan.
    base: ClassVar[None] = None


class Block:
    """One mapped file, lent to one user at a time.

    Attributes:
        number: the worker's name for it.
        capacity: bytes.
        address: where it begins in this process.
    """

    __slots__ = ("_loan", "_memory", "address", "capacity", "number", "sent")

    def __init__(self, number: int, descriptor: int, capacity: int) -> None:
        mapping = map_file(descriptor, capacity)
        self._memory: _Mapped = _new_array(_Mapped, capacity, _BYTE, mapping)
        self._loan: weakref.ref[_Loan] | None = None
        self.number = number
        self.capacity = capacity
        self.address: int = self._memory.__array_interface__["data"][0]
        #: Whether the consumer has it (in the worker), or has to give it back (in the consumer).
        self.sent = False

    def lend(self) -> npt.NDArray[np.uint8]:
        """Return the memory as the base for views; it must not be lent already."""
        loan: _Loan = _new_array(_Loan, self.capacity, _BYTE, self._memory)
        self._loan = weakref.ref(loan)
        return loan

    @property
    def is_lent(self) -> bool:
        """Whether anything in this process still sees the memory."""
        return self._loan is not None and self._loan() is not None

    def borrowed(self) -> npt.NDArray[np.uint8] | None:
        """Return the loan, if it is alive."""
        return None if self._loan is None else self._loan()


class WorkerMemory:
    """The memory of a worker's batches: has `allocate` as a `BufferPool` has, in blocks that the consumer maps, too.

    Where no block can be had (bounds, no room, no descriptor), memory is ordinary, and its content goes through the
    pipe: nothing ever waits for the consumer to drop a batch.

    Concurrency: `allocate` may be called from several threads, the rest from one.
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, Block] = {}
        self._max_blocks = max_blocks
        self._max_bytes = max_bytes
        self._bytes = 0
        self._made = 0
        self._descriptors: dict[int, int] = {}
        self._dropped: list[int] = []
        #: Why the last block could not be made, until it is told.
        self.refusal: OSError | None = None

    def allocate(self, shape: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a C-contiguous, writable array, its content undefined."""
        shape = tuple(shape)
        dtype = np.dtype(dtype)
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        if nbytes < MIN_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        loan = self.borrow(nbytes)
        return np.empty(shape, dtype) if loan is None else _new_array(np.ndarray, shape, dtype, loan)

    def borrow(self, nbytes: int) -> npt.NDArray[np.uint8] | None:
        """Return at least `nbytes` that nobody sees, or `None`."""
        with self._lock:
            block = self._free_block(nbytes) or self._new_block(nbytes)
            return None if block is None else block.lend()

    def _free_block(self, nbytes: int) -> Block | None:
        best = None
        for block in self._blocks.values():
            fits = nbytes <= block.capacity <= max(nbytes * WASTE, MIN_BYTES)
            if (
                fits
                and not block.sent
                and not block.is_lent
                and (best is None or block.capacity < best.capacity)
            ):
                best = block
        return best

    def _new_block(self, nbytes: int) -> Block | None:
        capacity = _capacity(nbytes)
        if not self._make_room(capacity):
            return None
        try:
            descriptor = anonymous_file(capacity)
        except OSError as error:
            self.refusal = error
            return None
        try:
            block = Block(self._made, descriptor, capacity)
        except (OSError, ValueError) as error:
            os.close(descriptor)
            self.refusal = error if isinstance(error, OSError) else OSError(str(error))
            return None
        self._made += 1
        self._blocks[block.number] = block
        self._descriptors[block.number] = descriptor
        self._bytes += capacity
        return block

    def _make_room(self, capacity: int) -> bool:
        """Drop free blocks of other sizes, the oldest first, until one more is within the bounds."""
        for block in list(self._blocks.values()):
            if len(self._blocks) < self._max_blocks and self._bytes + capacity <= self._max_bytes:
                break
            if not block.sent and not block.is_lent:
                self._drop(block)
        return len(self._blocks) < self._max_blocks and self._bytes + capacity <= self._max_bytes

    def _drop(self, block: Block) -> None:
        del self._blocks[block.number]
        self._bytes -= block.capacity
        descriptor = self._descriptors.pop(block.number, None)
        if descriptor is None:
            self._dropped.append(block.number)
        else:
            os.close(descriptor)

    def find(self, address: int) -> Block | None:
        """Return the block that has `address`, if it may be sent: it is lent here and the consumer has it not."""
        for block in self._blocks.values():
            if block.address <= address < block.address + block.capacity:
                return block if block.is_lent and not block.sent else None
        return None

    def take_news(self, used: set[int]) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """Return ((number, capacity) of new blocks among `used`, their descriptors, blocks that are gone).

        The descriptors are the caller's to close.
        """
        news = [
            (number, self._blocks[number].capacity) for number in sorted(used) if number in self._descriptors
        ]
        descriptors = [self._descriptors.pop(number) for number, _ in news]
        dropped, self._dropped = self._dropped, []
        for number in used:
            self._blocks[number].sent = True
        return news, descriptors, dropped

    def give_back(self, numbers: list[int], unmapped: list[int]) -> None:
        """The consumer sees `numbers` no more, and can't use `unmapped` at all."""
        for number in unmapped:
            gone = self._blocks.pop(number, None)
            if gone is not None:
                self._bytes -= gone.capacity
        for number in numbers:
            block = self._blocks.get(number)
            if block is not None:
                block.sent = False


def _capacity(nbytes: int) -> int:
    """Round up to one of four steps per power of two, and to whole pages: nearly equal batches share blocks."""
    step = max(mmap.PAGESIZE, 1 << max(0, nbytes.bit_length() - 3))
    return -(-nbytes // step) * step
