"""Collation against plain NumPy, over drawn dtypes, shapes, strides and structures; quick paths against the slow one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.collate.default import default_collate
from feedline.collate.numeric import join_bools, join_floats, join_ints, join_numbers, stack_arrays
from feedline.collate.padded import padded_collate
from feedline.errors import CollateError

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=3),
    hnp.byte_string_dtypes(min_len=1, max_len=3),
    hnp.array_dtypes(subtype_strategy=hnp.scalar_dtypes(), max_size=3),
)
POOL = BufferPool(min_bytes=64)


@st.composite
def strided(draw: st.DrawFn, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array of random bits: contiguous, Fortran-ordered, with steps (also negative ones), or broadcast."""
    seed = draw(st.integers(0, 2**32))
    way = draw(st.sampled_from(["plain", "fortran", "steps", "broadcast", "read_only", "shifted"]))
    if way == "broadcast" and shape:
        return np.broadcast_to(bits(seed, dtype, shape[1:]), shape)
    if way == "steps":
        step = draw(st.sampled_from([-2, -1, 2, 3]))
        wide = bits(seed, dtype, tuple(n * abs(step) for n in shape))
        return wide[(*(slice(None, None, step) for _ in shape), ...)]
    array = bits(seed, dtype, shape)
    if way == "fortran":
        return np.asfortranarray(array).reshape(shape, order="F")
    if way == "shifted":  # unaligned
        raw = np.zeros(array.nbytes + 1, "u1")[1:]
        moved = np.ndarray(shape, dtype, raw)
        moved[...] = array
        return moved
    array.flags.writeable = way != "read_only"
    return array


def bits(seed: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.kind == "U":  # not every bit pattern is a character
        return rng.integers(0, 10**dtype.itemsize, shape).astype(dtype)
    if dtype.names is not None or dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    count = int(np.prod(shape))
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype, count).reshape(shape).copy()


@st.composite
def columns(draw: st.DrawFn) -> list[np.ndarray]:
    dtype = draw(DTYPES)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    return draw(st.lists(strided(dtype, shape), min_size=1, max_size=5))


def same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def outcome(items: list[Any]) -> tuple[Any, Any]:
    """The batch and `None`, or `None` and the error."""
    try:
        return default_collate(items), None
    except (CollateError, OverflowError) as error:
        return None, error


def check_new(batch: np.ndarray, sources: list[np.ndarray]) -> None:
    assert batch.flags.c_contiguous
    assert batch.flags.writeable
    assert batch.flags.aligned
    assert batch.dtype.isnative
    assert not any(np.shares_memory(batch, source) for source in sources)


@settings(max_examples=70)
@given(columns(), st.booleans())
def test_stacked_arrays_equal_numpys_and_the_slow_path(column, pooled):
    before = [array.tobytes() for array in column]
    memory = BatchMemory(POOL, len(column)) if pooled else None
    batch = default_collate(column, memory)
    slow = join_numbers(column, "", None)
    check_new(batch, column)
    assert batch.dtype == column[0].dtype.newbyteorder("=")
    assert same_bytes(batch, slow)
    if column[0].dtype.names is None:
        assert same_bytes(batch, np.stack(column).astype(batch.dtype))
    assert [array.tobytes() for array in column] == before


@settings(max_examples=100)
@given(columns())
def test_numpy_scalars_equal_arrays_without_axes(column):
    if column[0].size == 0:
        return
    scalars = [array.reshape(-1)[0] for array in column]
    if not isinstance(scalars[0], (str, bytes)):
        assert same_bytes(default_collate(scalars), default_collate([np.array(s, s.dtype) for s in scalars]))
    else:
        assert default_collate(scalars) == scalars


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=1, max_dims=2, max_side=2)),
        min_size=2,
        max_size=4,
    )
)
def test_what_is_not_refused_keeps_every_value(kinds):
    column = [bits(i, dtype, shape) for i, (dtype, shape) in enumerate(kinds)]
    batch, error = outcome(column)
    if error is not None:
        assert set(error.positions) <= set(range(len(column)))
        assert len({(array.dtype, array.shape) for array in column}) > 1
        return
    check_new(batch, column)
    for row, array in zip(batch, column):
        assert not (array.dtype.kind in "iu" and batch.dtype.kind not in "iu")
        equal_nan = batch.dtype.kind in "fcmM"
        np.testing.assert_array_equal(row, array) if equal_nan else None
        assert equal_nan or (row == array).all()


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**65), 2**65), min_size=1, max_size=6))
def test_ints_are_exact_or_refused(ints):
    batch, error = outcome(ints)
    if error is not None:
        assert isinstance(error, OverflowError)
        assert min(ints) < -(2**63) or max(ints) >= 2**64 or (min(ints) < 0 and max(ints) >= 2**63)
        assert error.positions
        return
    assert batch.tolist() == ints
    assert batch.dtype == (np.uint64 if max(ints) >= 2**63 else np.int64)


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(-(2**60), 2**60), st.floats()), min_size=1, max_size=6))
def test_ints_among_floats_are_exact_or_refused(mixed):
    batch, error = outcome(mixed)
    if error is not None:
        assert all(isinstance(mixed[p], int) and int(float(mixed[p])) != mixed[p] for p in error.positions)
        return
    assert all(value == number or number != number for value, number in zip(batch.tolist(), mixed))


@settings(max_examples=60)
@given(
    st.one_of(
        st.tuples(st.just(join_ints), st.lists(st.integers(0, 2**64 - 1), min_size=1)),
        st.tuples(st.just(join_floats), st.lists(st.floats(), min_size=1)),
        st.tuples(st.just(join_bools), st.lists(st.booleans(), min_size=1)),
    )
)
def test_quick_ways_for_python_numbers_equal_the_slow_one(drawn):
    quick, column = drawn
    assert same_bytes(quick(column, ""), join_numbers(column, "", None))


LEAVES: dict[str, Any] = {
    "array": lambda i: np.full((2, 3), i, "f4"),
    "int": lambda i: i,
    "float": lambda i: i + 0.5,
    "text": str,
    "scalar": lambda i: np.int16(i),
}
TREES = st.recursive(
    st.sampled_from(sorted(LEAVES)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


def build(tree: Any, number: int) -> Any:
    if isinstance(tree, str):
        return LEAVES[tree](number)
    if isinstance(tree, dict):
        return {key: build(inner, number) for key, inner in tree.items()}
    return type(tree)(build(inner, number) for inner in tree)


def check_tree(tree: Any, batch: Any, count: int) -> None:
    if isinstance(tree, str):
        leaves = [LEAVES[tree](number) for number in range(count)]
        if tree == "text":
            assert batch == leaves
        else:
            assert same_bytes(batch, np.stack([np.asarray(leaf) for leaf in leaves]))
        return
    assert type(batch) is type(tree)
    assert len(batch) == len(tree)
    if isinstance(tree, dict):
        assert list(batch) == list(tree)
        for key in tree:
            check_tree(tree[key], batch[key], count)
    else:
        for inner, part in zip(tree, batch):
            check_tree(inner, part, count)


@settings(max_examples=80)
@given(TREES, st.integers(1, 4))
def test_structures_come_back_with_batches_at_their_leaves(tree, count):
    check_tree(tree, default_collate([build(tree, number) for number in range(count)]), count)


@settings(max_examples=80)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.sampled_from(["i2", "f4", "f8", "c8", ">u4", "?"]),
    st.integers(1, 4),
    st.sampled_from([(), (2,), (0,), (2, 1)]),
)
def test_padding_cut_off_gives_the_items(lengths, dtype, multiple_of, rest):
    items = [bits(i, np.dtype(dtype), (length, *rest)) for i, length in enumerate(lengths)]
    values, got = padded_collate(multiple_of=multiple_of)(items)
    check_new(values, items)
    assert got.tolist() == lengths
    assert values.shape[1] % multiple_of == 0
    assert 0 <= values.shape[1] - max(lengths) < multiple_of
    for row, item in zip(values, items):
        assert row[: len(item)].tobytes() == item.astype(values.dtype).tobytes()
        assert not row[len(item) :].any()


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), min_size=1, max_size=5))
def test_padded_lists_equal_padded_arrays(lists):
    values, lengths = padded_collate(pad_value=-1)(lists)
    expected, expected_lengths = padded_collate(pad_value=-1)([np.array(ints, np.int64) for ints in lists])
    assert same_bytes(values, expected)
    assert same_bytes(lengths, expected_lengths)


@settings(max_examples=60)
@given(st.integers(1, 6), hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4), st.booleans())
def test_rows_filled_in_place_equal_a_copied_batch(count, shape, tuples):
    memory = BatchMemory(POOL, count)
    rows = [memory.row(position, shape, "f8") for position in range(count)]
    for position, row in enumerate(rows):
        row[...] = bits(position, np.dtype("i4"), shape)
    copies = [row.copy() for row in rows]
    wrap = (lambda row: (row, 1)) if tuples else (lambda row: row)
    batch = default_collate([wrap(row) for row in rows], memory)
    expected = default_collate([wrap(row) for row in copies])
    one, other = (batch[0], expected[0]) if tuples else (batch, expected)
    assert same_bytes(one, other)
    assert one.size == 0 or np.shares_memory(one, rows[0])


def test_the_quick_way_is_taken_where_it_should_be():
    column = [np.arange(16.0) for _ in range(4)]
    assert isinstance(stack_arrays(column, "", None).base, bytearray)
