"""The pool of batch memory: reuse, and that nobody's memory is ever given to somebody else."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from feedline.collate.buffers import ALIGNMENT_BYTES, BatchMemory, BufferPool
from feedline.errors import OptionError

SHAPE = (128, 256)
NBYTES = 128 * 256 * 4


def filled(pool: BufferPool, value: float) -> np.ndarray:
    array = pool.allocate(SHAPE, "float32")
    array[:] = value
    return array


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def overwrite(pool: BufferPool, count: int = 8) -> None:
    """Ask for more memory than could ever lie idle here, and write to all of it."""
    held = [filled(pool, -1.0) for _ in range(count)]
    del held


def test_memory_is_used_again_once_the_array_is_gone():
    pool = BufferPool()
    first = filled(pool, 1)
    address = address_of(first)
    del first
    assert pool.idle_bytes >= NBYTES
    second = pool.allocate(SHAPE, "float32")
    assert address_of(second) == address
    assert pool.idle_bytes == 0


def test_memory_of_a_held_array_is_not_used_again():
    pool = BufferPool()
    held = [filled(pool, value) for value in range(5)]
    assert len({address_of(array) for array in held}) == 5
    for value, array in enumerate(held):
        assert (array == value).all()


@pytest.mark.parametrize("shape", [(16384,), (128, 128), (64, 16, 16), (1, 65536), (3, 70001)])
@pytest.mark.parametrize(
    "dtype", ["float32", "uint8", "complex128", "datetime64[s]", [("a", "i1"), ("b", "f8", 3)]]
)
def test_arrays_are_plain_writable_contiguous_and_aligned(shape, dtype):
    array = BufferPool(min_bytes=1024).allocate(shape, dtype)
    assert type(array) is np.ndarray
    assert array.shape == shape
    assert array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address_of(array) % ALIGNMENT_BYTES == 0


def test_an_array_of_an_extension_dtype_is_pooled():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = BufferPool().allocate((65536,), ml_dtypes.bfloat16)
    array[:] = 1.5
    assert array.dtype == ml_dtypes.bfloat16
    assert float(array[-1]) == 1.5


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3,), "f4"), ((), "f8"), ((0, 1000), "f8"), ((100_000,), object), ((1000,), "S0")]
)
def test_small_empty_and_object_arrays_are_left_to_numpy(shape, dtype):
    pool = BufferPool()
    array = pool.allocate(shape, dtype)
    assert array.shape == shape
    assert array.base is None
    del array
    assert pool.idle_bytes == 0


def test_a_negative_size_is_refused_as_numpy_refuses_it():
    with pytest.raises(ValueError, match="negative"):
        BufferPool().allocate((-300, -300), "f8")


def torch_from_numpy(array: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(array)


def torch_from_dlpack(array: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_dlpack(array)[3:]


def jax_from_dlpack(array: np.ndarray) -> Any:
    return pytest.importorskip("jax").dlpack.from_dlpack(array)


def arrow_buffer(array: np.ndarray) -> Any:
    return pytest.importorskip("pyarrow").py_buffer(array)


class Interface:
    """What a library holds that reads `__array_interface__`."""

    def __init__(self, array: np.ndarray) -> None:
        self.held = np.asarray(memoryview(array))


VIEWS: dict[str, Callable[[np.ndarray], Any]] = {
    "slice": lambda a: a[5:9],
    "row": lambda a: a[7],
    "zero_d": lambda a: a[3, 4, ...],
    "stepped": lambda a: a[::-3, ::2],
    "reshape": lambda a: a.reshape(-1),
    "ravel": lambda a: a.ravel(),
    "transpose": lambda a: a.T,
    "new_axis": lambda a: a[None, ..., None],
    "dtype": lambda a: a.view(np.int32),
    "bytes": lambda a: a.view(np.uint8).reshape(-1)[1:],
    "diagonal": lambda a: a.diagonal(),
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 5, axis=0),
    "strided": lambda a: np.lib.stride_tricks.as_strided(a, (4,), (4,)),
    "imag": lambda a: a.view(np.complex64).imag,
    "view_of_view_of_view": lambda a: a[1:][1:].T[1:].T[::2],
    "split": lambda a: np.split(a, 4)[2],
    "subclass": lambda a: a.view(np.matrix),
    "recarray": lambda a: a.view(np.recarray),
    "masked": lambda a: np.ma.masked_array(a, copy=False),
    "flat_iterator": lambda a: a.flat,
    "ctypes": lambda a: a.ctypes,
    "memoryview": lambda a: memoryview(a),
    "memoryview_slice": lambda a: memoryview(a)[3:],
    "memoryview_cast": lambda a: memoryview(a).cast("B"),
    "frombuffer": lambda a: np.frombuffer(a, np.uint8, offset=100),
    "frombuffer_memoryview": lambda a: np.frombuffer(memoryview(a)[2:], np.float32),
    "asarray_memoryview": lambda a: np.asarray(memoryview(a)),
    "ndarray_buffer": lambda a: np.ndarray((3,), np.int8, a),
    "ndarray_buffer_of_memoryview": lambda a: np.ndarray((3,), np.int8, memoryview(a)),
    "dlpack": lambda a: np.from_dlpack(a),
    "dlpack_slice": lambda a: np.from_dlpack(a[4:]),
    "dlpack_capsule": lambda a: a.__dlpack__(),
    "pickle_buffer": lambda a: pickle.PickleBuffer(a),
    "torch_from_numpy": torch_from_numpy,
    "torch_from_dlpack": torch_from_dlpack,
    "jax_from_dlpack": jax_from_dlpack,
    "arrow_buffer": arrow_buffer,
    "base": lambda a: a.base,
    "base_of_view": lambda a: a[3:].T.base,
    "root": lambda a: root_of(a),
    "slice_of_base": lambda a: a.base[10:],
    "view_of_base": lambda a: a.base.view(np.ndarray),
    "as_type_of_base": lambda a: a.view(np.int8).reshape(-1).view(type(a.base))[5:],
    "nested_as_type_of_base": lambda a: a.base[4:].view(np.ndarray).view(type(a.base))[4:],
    "memoryview_of_base": lambda a: memoryview(a.base),
    "base_interface": lambda a: Interface(a.base),
}


def root_of(array: Any) -> Any:
    """The end of the chain of bases, as some libraries look for it."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", VIEWS)
def test_whatever_sees_the_memory_keeps_it(name):
    pool = BufferPool()
    array = filled(pool, 7.0)
    address, content = address_of(array), array.tobytes()
    seen = VIEWS[name](array)
    window = (np.ctypeslib.ctypes.c_char * NBYTES).from_address(address)
    del array
    gc.collect()
    assert pool.idle_bytes == 0
    for _ in range(3):
        other = filled(pool, -1.0)
        assert address_of(other) != address
        del other
    assert bytes(window) == content
    del seen
    gc.collect()
    assert pool.idle_bytes >= NBYTES
    held = [pool.allocate(SHAPE, "f4") for _ in range(2)]
    assert address in {address_of(again) for again in held}


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a)), np.array]
)
def test_copies_do_not_keep_the_memory(copied):
    pool = BufferPool()
    array = filled(pool, 3.0)
    other = copied(array)
    del array
    assert pool.idle_bytes >= NBYTES
    overwrite(pool)
    assert (other == 3.0).all()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, np.copy, lambda a: a + 0])
def test_copies_of_what_lies_below_give_nothing_back(copied):
    pool = BufferPool()
    array = filled(pool, 3.0)
    other = copied(array.base)
    del other
    assert pool.idle_bytes == 0
    assert (array == 3.0).all()


def test_memory_in_a_reference_cycle_comes_back_when_it_is_collected():
    pool = BufferPool()
    cycle: dict[str, Any] = {"array": filled(pool, 1.0), "base": None}
    cycle["base"] = cycle["array"].base
    cycle["self"] = cycle
    gc.collect()
    assert pool.idle_bytes == 0
    del cycle
    gc.collect()
    assert pool.idle_bytes >= NBYTES


class Phoenix:
    """Comes back to life when it is finalised, with all that it holds."""

    kept: list[Any] = []

    def __init__(self, held: Any) -> None:
        self.held = held
        self.cycle = self

    def __del__(self) -> None:
        Phoenix.kept.append(self)


@pytest.mark.parametrize(
    "what", [lambda a: a, lambda a: a[3:], lambda a: a.base, lambda a: [a.base, a.base[3:]]]
)
def test_memory_that_comes_back_to_life_is_not_used_again(what):
    pool = BufferPool()
    array = filled(pool, 5.0)
    address, content = address_of(array), array.tobytes()
    phoenix = Phoenix(what(array))
    window = (np.ctypeslib.ctypes.c_char * NBYTES).from_address(address)
    del array, phoenix
    gc.collect()
    assert len(Phoenix.kept) == 1
    others = [filled(pool, -1.0) for _ in range(3)]
    assert address not in {address_of(other) for other in others}
    assert bytes(window) == content
    Phoenix.kept.clear()


def test_idle_memory_stays_within_its_limit():
    block = 160 * 1024
    pool = BufferPool(max_idle_bytes=4 * block)
    held = [pool.allocate((block,), "u1") for _ in range(9)]
    del held
    assert 2 * block < pool.idle_bytes <= 4 * block


def test_sizes_that_are_not_asked_for_any_more_make_room():
    pool = BufferPool(max_idle_bytes=8 * 131072)
    old = [pool.allocate((131072,), "u1") for _ in range(8)]
    del old
    new = [pool.allocate((262144,), "u1") for _ in range(4)]
    addresses = {address_of(array) for array in new}
    del new
    assert pool.idle_bytes <= 8 * 131072
    again = [pool.allocate((262144,), "u1") for _ in range(4)]
    assert {address_of(array) for array in again} == addresses


def test_a_second_size_does_not_lift_the_limit():
    pool = BufferPool(max_idle_bytes=8 * 131072)
    old = [pool.allocate((131072,), "u1") for _ in range(8)]
    del old
    new = [pool.allocate((262144,), "u1") for _ in range(2)]
    del new
    assert pool.idle_bytes == 8 * 131072


def test_an_array_larger_than_the_limit_is_not_kept():
    pool = BufferPool(max_idle_bytes=100_000)
    array = pool.allocate((200_000,), "u1")
    del array
    assert pool.idle_bytes == 0


def test_nearly_equal_sizes_share_memory():
    pool = BufferPool()
    array = pool.allocate((1000, 200), "f4")
    address = address_of(array)
    del array
    assert address_of(pool.allocate((1001, 200), "f4")) == address


def test_clear_frees_what_is_idle_and_does_not_keep_what_is_lent():
    pool = BufferPool()
    lent = filled(pool, 2.0)
    idle = filled(pool, 3.0)
    del idle
    pool.clear()
    assert pool.idle_bytes == 0
    assert (lent == 2.0).all()
    del lent
    assert pool.idle_bytes == 0


def test_arrays_outlive_their_pool():
    pool = BufferPool()
    array = filled(pool, 4.0)
    del pool
    gc.collect()
    assert (array == 4.0).all()


def test_a_dropped_pool_is_freed_without_the_garbage_collector():
    pool = BufferPool()
    array = filled(pool, 1.0)
    del array
    gc.disable()
    try:
        gc.collect()
        before = sum(type(thing).__name__ in ("_Block", "_Shelf", "_Store") for thing in gc.get_objects())
        del pool
        after = sum(type(thing).__name__ in ("_Block", "_Shelf", "_Store") for thing in gc.get_objects())
    finally:
        gc.enable()
    assert after == before - 3


def test_a_pickled_pool_is_empty_and_has_the_same_limits():
    pool = BufferPool(max_idle_bytes=10_000_000, min_bytes=1024)
    array = pool.allocate((100_000,), "u1")
    del array
    other = pickle.loads(pickle.dumps(pool))
    assert (other.max_idle_bytes, other.min_bytes) == (10_000_000, 1024)
    assert other.idle_bytes == 0
    assert len(pickle.dumps(pool)) < 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_child_after_fork_has_an_empty_pool_and_memory_of_its_own():
    pool = BufferPool()
    lent, idle = filled(pool, 1.0), filled(pool, 2.0)
    del idle
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            good = pool.idle_bytes == 0 and bool((lent == 1.0).all())
            lent[:] = 9.0
            mine = filled(pool, 3.0)
            del lent
            other = filled(pool, 4.0)
            good = good and bool((mine == 3.0).all()) and pool.idle_bytes == 0
            del mine, other
            good = good and pool.idle_bytes >= 2 * NBYTES
            os.write(write, b"good" if good else b"bad!")
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    assert os.read(read, 4) == b"good"
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
    assert (lent == 1.0).all()
    assert pool.idle_bytes >= NBYTES


@pytest.mark.parametrize("name", ["max_idle_bytes", "min_bytes"])
@pytest.mark.parametrize(
    ("value", "kind"), [(-1, OptionError), (2.5, TypeError), ("4", TypeError), (True, TypeError)]
)
def test_bad_limits_are_refused_by_name(name, value, kind):
    with pytest.raises(kind, match=name):
        BufferPool(**{name: value})


def rows_of(
    memory: BatchMemory, count: int, shape: tuple[int, ...] = (3,), dtype: Any = "f4"
) -> list[np.ndarray]:
    rows = [memory.row(position, shape, dtype) for position in range(count)]
    for position, row in enumerate(rows):
        row[...] = position
    return rows


@pytest.mark.parametrize("shape", [(), (3,), (0,), (4, 5), (100, 200)])
def test_rows_in_order_match_as_their_block(shape):
    memory = BatchMemory(BufferPool(), 4)
    rows = rows_of(memory, 4, shape)
    block = memory.match(rows)
    assert block is not None
    assert block.shape == (4, *shape)
    assert block.flags.c_contiguous
    assert block.flags.writeable
    assert all(
        (type(row) is np.ndarray and row.shape == shape and np.shares_memory(row, block)) or row.size == 0
        for row in rows
    )
    for position in range(4):
        assert (block[position] == position).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[::-1],
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]],
        lambda rows: [*rows[:-1], rows[0]],
        lambda rows: [*rows[:-1], rows[-1].copy()],
        lambda rows: [*rows[:-1], rows[-1][:]],
        lambda rows: [np.zeros(3)] * 4,
        lambda rows: [1, 2, 3, 4],
        lambda rows: [],
    ],
)
def test_other_leaves_do_not_match(change):
    memory = BatchMemory(BufferPool(), 4)
    rows = rows_of(memory, 4)
    assert memory.match(change(rows)) is None
    assert memory.match(rows) is not None  # looking does no harm


def test_a_block_is_given_once():
    memory = BatchMemory(BufferPool(), 2)
    rows = rows_of(memory, 2)
    assert memory.match(rows) is not None
    assert memory.match(rows) is None


def test_a_missing_row_means_no_match():
    memory = BatchMemory(BufferPool(), 3)
    rows = [memory.row(0, (2,), "f4"), memory.row(2, (2,), "f4")]
    assert memory.match(rows) is None
    assert memory.match([rows[0], None, rows[1]]) is None


def test_nothing_matches_before_a_row_is_asked_for():
    assert BatchMemory(BufferPool(), 1).match([np.zeros(1)]) is None
    assert BatchMemory(BufferPool(), 0).match([]) is None


@pytest.mark.parametrize(("shape", "dtype"), [((4,), "f4"), ((3,), "f8"), ((3, 1), "f4"), ((), "f4")])
def test_a_row_of_another_shape_or_dtype_has_memory_of_its_own(shape, dtype):
    memory = BatchMemory(BufferPool(), 2)
    first = memory.row(0, (3,), "f4")
    other = memory.row(1, shape, dtype)
    assert (other.shape, other.dtype) == (shape, np.dtype(dtype))
    assert not np.shares_memory(first, other)
    assert memory.match([first, other]) is None


def test_a_row_asked_for_twice_has_memory_of_its_own_the_second_time():
    memory = BatchMemory(BufferPool(), 1)
    first, second = memory.row(0, (3,), "f4"), memory.row(0, (3,), "f4")
    assert not np.shares_memory(first, second)
    assert memory.match([second]) is None


def test_a_straggler_can_not_write_to_a_batch_that_is_in_use():
    memory = BatchMemory(BufferPool(), 2)
    block = memory.match(rows_of(memory, 2))
    late = memory.row(1, (3,), "f4")
    late[:] = 99
    assert block is not None
    assert not np.shares_memory(late, block)
    assert (block[1] == 1).all()


@pytest.mark.parametrize("position", [-1, 2, 100])
def test_a_row_out_of_range_is_an_index_error(position):
    with pytest.raises(IndexError, match=f"row {position} of a batch of 2"):
        BatchMemory(BufferPool(), 2).row(position, (1,), "f4")


def test_rows_may_be_asked_for_on_several_threads():
    pool = BufferPool()
    for _ in range(20):
        memory = BatchMemory(pool, 16)
        rows: list[Any] = [None] * 16
        start = threading.Barrier(4)

        def fill(part: int, memory: BatchMemory = memory, rows: list[Any] = rows, start: Any = start) -> None:
            start.wait(timeout=30)
            for position in range(part, 16, 4):
                rows[position] = memory.row(position, (64, 64), "f4")
                rows[position][:] = position

        threads = [threading.Thread(target=fill, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        block = memory.match(rows)
        assert block is not None
        assert (block == np.arange(16, dtype="f4")[:, None, None]).all()


def test_a_batch_memory_does_not_hold_a_block_that_is_in_use():
    pool = BufferPool()
    memory = BatchMemory(pool, 2)
    rows = rows_of(memory, 2, (128, 256))
    block = memory.match(rows)
    del rows, block
    assert pool.idle_bytes > 0


def test_importing_the_pool_loads_no_framework():
    import subprocess

    code = "import sys, feedline.collate.buffers, feedline.collate.default; print({'torch', 'jax'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "set()"
