"""`default_collate`: what each kind of item becomes, and what is refused."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.collate.default import default_collate
from feedline.errors import CollateError


def assert_array(batch: Any, dtype: Any, values: Any) -> None:
    assert type(batch) is np.ndarray
    assert batch.dtype == np.dtype(dtype)
    assert batch.dtype.isnative
    assert batch.flags.c_contiguous
    assert batch.flags.writeable
    np.testing.assert_array_equal(batch, np.array(values, dtype))


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 5


@pytest.mark.parametrize(
    ("items", "dtype", "values"),
    [
        ([True, False], bool, [True, False]),
        ([1, 2], np.int64, [1, 2]),
        ([-(2**63), 2**63 - 1], np.int64, [-(2**63), 2**63 - 1]),
        ([0, 2**64 - 1], np.uint64, [0, 2**64 - 1]),
        ([1.5, 2.5], np.float64, [1.5, 2.5]),
        ([1.5, 2], np.float64, [1.5, 2.0]),
        ([2**53, 0.5], np.float64, [2.0**53, 0.5]),
        ([2**100, 0.5], np.float64, [2.0**100, 0.5]),
        ([1j, 2.5], np.complex128, [1j, 2.5]),
        ([1j, 2], np.complex128, [1j, 2]),
        ([Colour.RED, Colour.BLUE], np.int64, [1, 5]),
        ([np.bool_(1)] * 2, bool, [True, True]),
        ([np.float32(1)] * 2, np.float32, [1, 1]),
        ([np.float64(1), np.float64(2)], np.float64, [1, 2]),
        ([np.float64(1), 2.5], np.float64, [1, 2.5]),
        ([np.array(3, np.int16)] * 2, np.int16, [3, 3]),
        ([np.array(3, np.int16), np.int16(4)], np.int16, [3, 4]),
        ([np.float16(1), np.float32(1.5)], np.float32, [1, 1.5]),
        ([np.float32(1), 2.5], np.float64, [1, 2.5]),
        ([np.float32(0.5), 2], np.float32, [0.5, 2]),
        ([np.int8(1), 127], np.int8, [1, 127]),
        ([np.uint64(1), 2**64 - 1], np.uint64, [1, 2**64 - 1]),
        ([np.int8(1), np.uint8(255)], np.int16, [1, 255]),
        ([np.bool_(True), False], bool, [True, False]),
        ([np.complex64(1j)] * 2, np.complex64, [1j, 1j]),
        ([np.datetime64("2024-01-01")] * 3, "M8[D]", ["2024-01-01"] * 3),
        (
            [np.datetime64("2024-01-01"), np.datetime64("2024-01-01T05")],
            "M8[h]",
            ["2024-01-01T00", "2024-01-01T05"],
        ),
        ([np.timedelta64(3, "s")] * 2, "m8[s]", [3, 3]),
        ([np.longdouble(1) / 3] * 2, np.longdouble, [np.longdouble(1) / 3] * 2),
    ],
)
def test_scalars_become_an_array_of_their_kind(items, dtype, values):
    assert_array(default_collate(items), dtype, values)


@pytest.mark.parametrize(
    ("arrays", "dtype"),
    [
        ([np.zeros(3, np.float16), np.ones(3, np.float32)], np.float32),
        ([np.zeros(3, np.float32), np.ones(3, np.float64)], np.float64),
        ([np.zeros(3, np.int8), np.ones(3, np.int32)], np.int32),
        ([np.zeros(3, np.uint8), np.ones(3, np.int8)], np.int16),
        ([np.zeros(3, bool), np.ones(3, np.int8)], np.int8),
        ([np.zeros(3, np.float32), np.ones(3, np.complex64)], np.complex64),
        ([np.zeros(3, "M8[D]"), np.ones(3, "M8[ns]")], "M8[ns]"),
        ([np.array(["a"]), np.array(["bcd"])], "U3"),
        ([np.arange(4, dtype=">f4")] * 2, np.float32),
        ([np.arange(4, dtype=">i8")] * 2, np.int64),
        ([np.arange(4, dtype=">u2"), np.arange(4, dtype="<u2")], np.uint16),
        ([np.arange(4, dtype=">u2"), np.arange(4, dtype="<u4")], np.uint32),
        ([np.zeros(2, [("a", ">i4"), ("b", "<f8", 3)])] * 2, [("a", "=i4"), ("b", "=f8", 3)]),
    ],
)
def test_arrays_of_several_dtypes_promote_to_a_native_one(arrays, dtype):
    assert_array(default_collate(arrays), dtype, np.stack(arrays).astype(dtype))


@pytest.mark.parametrize(
    "scalar",
    [
        np.zeros((), [("a", "i4"), ("b", "f8", 3)]),
        np.ones((), [("a", "i4"), ("b", "f8", 3)])[()],
        np.ones((2, 3), "c8"),
        np.ones((2, 3), "f2"),
        np.ones((2, 3), "M8[ns]"),
        np.zeros((0, 3), "f4"),
        np.zeros((3, 0), "f4"),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
        np.frombuffer(b"abcdef", "V3"),
    ],
)
def test_any_dtype_is_kept(scalar):
    batch = default_collate([scalar] * 3)
    assert batch.dtype == scalar.dtype
    assert batch.shape == (3, *scalar.shape)
    assert all((row == scalar).all() for row in batch)


def test_bfloat16_is_kept():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert_array(default_collate([ml_dtypes.bfloat16(1.5)] * 2), ml_dtypes.bfloat16, [1.5, 1.5])
    assert_array(default_collate([np.ones(3, ml_dtypes.bfloat16)] * 2), ml_dtypes.bfloat16, np.ones((2, 3)))
    assert_array(default_collate([np.ones(2, ml_dtypes.bfloat16), np.ones(2, "f4")]), "f4", np.ones((2, 2)))
    with pytest.raises(CollateError, match="bfloat16"):
        default_collate([np.ones(2, ml_dtypes.bfloat16), np.ones(2, "i4")])


STRIDES = [
    lambda a: a[::2],
    lambda a: a[:, ::-1],
    lambda a: a.T,
    lambda a: np.asfortranarray(a),
    lambda a: a[:, 0],
    lambda a: np.broadcast_to(a[0], a.shape),
    lambda a: a[2, 3, ...],
]


@pytest.mark.parametrize("view", STRIDES)
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("large", [False, True])
def test_any_strides_are_joined(view, count, large):
    pool = BatchMemory(BufferPool(min_bytes=1), count) if large else None
    arrays = [
        view(np.random.default_rng(i).normal(size=(200, 100) if large else (6, 5))) for i in range(count)
    ]
    assert_array(default_collate(arrays, pool), np.float64, np.stack(arrays))


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("size", [8, 100_000])
def test_read_only_sources_stay_as_they_are(count, size):
    content = bytes(size)
    source = np.frombuffer(content, np.uint8)
    assert not source.flags.writeable
    batch = default_collate([source] * count)
    assert batch.flags.writeable
    batch[:] = 9
    assert not np.shares_memory(batch, source)
    assert content == bytes(size)


@pytest.mark.parametrize("item", [np.arange(5), (np.arange(5), 1), {"x": [np.arange(5)]}])
def test_a_batch_of_one_is_a_copy(item):
    batch = default_collate([item])

    def arrays(thing: Any) -> Iterator[np.ndarray]:
        if isinstance(thing, np.ndarray):
            yield thing
        elif not isinstance(thing, int):
            for part in thing.values() if isinstance(thing, dict) else thing:
                yield from arrays(part)

    next(arrays(batch))[...] = 7
    assert (next(arrays(item)) == np.arange(5)).all()


def test_subclasses_of_arrays_become_plain_ones(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4,))
    mapped[:] = 2
    assert_array(default_collate([mapped, mapped]), np.float32, np.full((2, 4), 2))
    assert_array(default_collate([np.ones(2, "f4").view(np.recarray)] * 2), np.float32, np.ones((2, 2)))
    assert_array(default_collate([mapped, np.ones(4, "f4")]), np.float32, [[2] * 4, [1] * 4])


def test_text_stays_a_list_in_order():
    items = [{"path": np.str_("a"), "raw": b"x"}, {"path": "b", "raw": np.bytes_(b"y")}]
    batch = default_collate(items)
    assert batch == {"path": ["a", "b"], "raw": [b"x", b"y"]}
    assert type(batch["path"]) is list
    assert batch["path"][0] is items[0]["path"]


class Point(NamedTuple):
    x: Any
    y: Any = 3


Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclass
class Plain:
    image: Any
    label: int = 3


@dataclass(frozen=True, slots=True)
class Frozen:
    image: Any
    label: int


@dataclass
class Computed:
    image: Any
    scale: InitVar[int]
    total: Any = field(init=False)
    unset: Any = field(init=False)

    def __post_init__(self, scale: int) -> None:
        self.total = float(self.image.sum() * scale)


class Odd(Mapping[str, Any]):
    """A mapping that no class method builds from its parts."""

    def __init__(self, entries: dict[str, Any], second: int) -> None:
        self.entries = entries

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Shouting(Odd):
    """Takes parts, but keeps something else."""

    def __init__(self, entries: dict[str, Any]) -> None:
        super().__init__({key + "!": value for key, value in entries.items()}, 0)


class Bag(list):
    def __init__(self, values: Any, colour: str) -> None:
        super().__init__(values)
        self.colour = colour


class Named(dict):
    def __init__(self, name: str, **entries: Any) -> None:
        super().__init__(entries)
        self.name = name


class Triple(tuple):
    def __new__(cls, first: Any, second: Any, third: Any) -> Triple:
        return tuple.__new__(cls, (first, second, third))


def two(make: Any) -> list[Any]:
    return [make(1), make(2)]


@pytest.mark.parametrize("make", [lambda i: Point(i), lambda i: Point(i, i + 1), lambda i: Pair(i, "a")])
def test_named_tuples_come_back_as_themselves(make):
    batch = default_collate(two(make))
    assert type(batch) is type(make(1))
    assert_array(batch[0], np.int64, [1, 2])


@pytest.mark.parametrize("kind", [Plain, Frozen])
def test_dataclasses_come_back_as_themselves(kind):
    items = [kind(np.full(3, i), i) for i in (1, 2)]
    batch = default_collate(items)
    assert type(batch) is kind
    assert_array(batch.image, np.int64, [[1] * 3, [2] * 3])
    assert_array(batch.label, np.int64, [1, 2])
    assert items[0].label == 1


def test_fields_that_init_does_not_take_are_joined_too():
    batch = default_collate([Computed(np.ones(3), 2), Computed(np.ones(3), 3)])
    assert type(batch) is Computed
    assert_array(batch.total, np.float64, [6, 9])
    assert not hasattr(batch, "unset")


def test_a_field_that_only_some_items_have_is_named():
    items = [Computed(np.ones(3), 2), Computed(np.ones(3), 3)]
    items[1].unset = 1
    with pytest.raises(CollateError, match=r"\.unset: fields differ: not set in item 0; set in item 1"):
        default_collate(items)


@pytest.mark.parametrize(
    "make",
    [
        lambda i: {"b": i, "a": 0},
        lambda i: collections.OrderedDict(b=i, a=0),
        lambda i: collections.defaultdict(list, b=i, a=0),
        lambda i: collections.Counter(b=i, a=0),
        lambda i: collections.UserDict(b=i, a=0),
        lambda i: types.MappingProxyType({"b": i, "a": 0}),
        lambda i: Named(f"item {i}", b=i, a=0),
    ],
)
def test_mappings_come_back_as_themselves(make):
    items = two(make)
    batch = default_collate(items)
    assert type(batch) is type(items[0])
    assert list(batch) == ["b", "a"]
    assert_array(batch["b"], np.int64, [1, 2])
    assert items[0]["b"] == 1


def test_a_default_factory_and_attributes_are_kept():
    assert default_collate(two(lambda i: collections.defaultdict(list, b=i))).default_factory is list
    assert default_collate(two(lambda i: Named("n", b=i))).name == "n"
    assert default_collate(two(lambda i: Bag([i], "red"))).colour == "red"


@pytest.mark.parametrize("kind", [lambda entries: Odd(entries, 1), Shouting])
def test_a_mapping_that_can_not_be_built_again_becomes_a_dict(kind):
    items = two(lambda i: kind({"b": i}))
    batch = default_collate(items)
    assert type(batch) is dict
    assert_array(next(iter(batch.values())), np.int64, [1, 2])
    assert next(iter(items[0].values())) == 1


def test_sequences_keep_their_type():
    assert type(default_collate([(1, 2), (3, 4)])) is tuple
    assert type(default_collate([Bag([1, 2], "red"), Bag([3, 4], "red")])) is Bag
    assert type(default_collate([Triple(1, 2, 3)] * 2)) is tuple  # its constructor takes no sequence
    assert default_collate([()] * 2) == ()
    assert default_collate([{}] * 2) == {}
    assert default_collate([[]] * 2) == []


def test_lists_of_one_length_are_transposed():
    batch = default_collate([[1, "a"], [2, "b"], [3, "c"]])
    assert type(batch) is list
    assert_array(batch[0], np.int64, [1, 2, 3])
    assert batch[1] == ["a", "b", "c"]


def test_keys_in_another_order_are_the_same_keys():
    batch = default_collate([{"a": 1, "b": "x"}, {"b": "y", "a": 2}])
    assert list(batch) == ["a", "b"]
    assert_array(batch["a"], np.int64, [1, 2])


def test_looking_for_a_key_does_not_make_one():
    items = [collections.defaultdict(int, a=1), collections.defaultdict(int, b=1)]
    with pytest.raises(CollateError, match="keys differ"):
        default_collate(items)
    assert [dict(item) for item in items] == [{"a": 1}, {"b": 1}]


MASKED = np.ma.masked_array(np.ones(3), [True, False, False])


@pytest.mark.parametrize(
    ("items", "path", "positions", "words"),
    [
        (
            [{"t": {"box": 1}}, {"t": {"box": 1}}, {"t": {"box": None}}],
            "['t']['box']",
            (2,),
            ["item 2", "NoneType"],
        ),
        ([None, None], "", (0, 1), ["NoneType in items 0, 1"]),
        ([(1, object()), (1, object())], "[1]", (0, 1), ["object"]),
        ([Point(1, {1, 2})] * 2, ".y", (0, 1), ["set"]),
        ([Plain(1, bytearray())] * 2, ".label", (0, 1), ["bytearray"]),
        ([np.array([None])] * 2, "", (0, 1), ["dtype object"]),
        ([np.zeros(1), np.array([None])], "", (1,), ["dtype object"]),
        ([MASKED, np.zeros(3)], "", (0,), ["MaskedArray", ".filled()"]),
        ([np.ma.masked] * 2, "", (0, 1), ["Masked"]),
        ([{"x": [1, 2, 3]}, {"x": [4, 5]}], "['x']", (1,), ["lengths", "3 in item 0", "2 in item 1"]),
        ([(1, 2), (1, 2, 3)], "", (1,), ["lengths", "2 in item 0", "3 in item 1"]),
        ([[[1], [2]], [[1], [2, 3]]], "[1]", (1,), ["lengths"]),
        (
            [np.zeros(3), np.zeros(4)],
            "",
            (1,),
            ["shapes", "(3,) in item 0", "(4,) in item 1", "padded_collate"],
        ),
        ([np.zeros(4), np.zeros(3), np.zeros(3)], "", (0,), ["(4,) in item 0", "(3,) in items 1, 2"]),
        ([np.zeros((2, 3)), np.zeros((3, 2))], "", (1,), ["shapes"]),
        ([np.zeros(3), np.zeros((3, 1))], "", (1,), ["shapes"]),
        ([np.zeros((3, 1)), np.zeros(3)], "", (1,), ["shapes"]),
        ([np.zeros(1), 1.0], "", (1,), ["shapes", "(1,)", "()"]),
        ([np.zeros(1), np.float64(1)], "", (1,), ["shapes"]),
        ([{"a": 1}, {"b": 1}, {"a": 2}], "", (1,), ["keys", "['a'] in items 0, 2", "['b'] in item 1"]),
        ([{"a": 1}, {"a": 1, "b": 2}], "", (1,), ["keys"]),
        ([True, 1], "", (1,), ["bool in item 0", "int in item 1"]),
        ([1, 2, True], "", (2,), ["bool"]),
        ([np.bool_(1), np.int8(1)], "", (1,), ["bool", "int8"]),
        ([np.bool_(1), 1], "", (1,), ["bool"]),
        ([np.int32(1), True], "", (1,), ["bool"]),
        (["a", b"a"], "", (1,), ["str in item 0", "bytes in item 1"]),
        (["a", 1], "", (1,), ["str", "int"]),
        ([np.str_("a"), np.float32(1)], "", (1,), ["str"]),
        (
            [np.zeros(2, "i4"), np.zeros(2, "f4")],
            "",
            (1,),
            ["int32 in item 0", "float32 in item 1", "not turned into"],
        ),
        ([np.zeros(2, "i8"), np.zeros(2, "u8")], "", (1,), ["int64", "uint64"]),
        ([np.int32(1), 2.5], "", (1,), ["int32", "float"]),
        ([np.int32(1), np.float32(1)], "", (1,), ["int32", "float32"]),
        ([1.5, 2**53 + 1], "", (1,), [str(2**53 + 1), "float64"]),
        ([1.5, 10**400], "", (1,), ["float64"]),
        ([np.float16(1), 2049], "", (1,), ["2049", "float16"]),
        ([np.float16(1), 70000], "", (1,), ["70000", "float16"]),
        ([np.zeros(2, "M8[s]"), np.zeros(2, "m8[s]")], "", (1,), ["datetime64", "timedelta64"]),
        ([np.zeros(2, "m8[s]"), np.zeros(2, "i8")], "", (1,), ["timedelta64", "int64"]),
        ([np.datetime64("2024-01-01"), 5], "", (1,), ["int"]),
        ([np.zeros(2, "U3"), np.zeros(2, "S3")], "", (1,), ["dtypes"]),
        ([np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")])], "", (1,), ["dtypes"]),
        ([(1, 2), [1, 2]], "", (1,), ["tuple in item 0", "list in item 1"]),
        ([Point(1, 2), Pair(1, 2)], "", (1,), ["Point", "Pair"]),
        ([{"a": 1}, [1]], "", (1,), ["dict", "list"]),
        ([1, [1]], "", (1,), ["int", "list"]),
        ([Plain, Plain], "", (0, 1), ["type"]),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(items, path, positions, words):
    with pytest.raises(CollateError) as caught:
        default_collate(items)
    assert isinstance(caught.value, TypeError)
    assert (caught.value.path, caught.value.positions) == (path, positions)
    for word in [path, *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("items", "path", "positions"),
    [
        ([2**64, 1], "", (0,)),
        ([-1, 2**63], "", (0,)),
        ([-1, -(2**63) - 1], "", (1,)),
        ([{"n": (1, 2)}, {"n": (1, 2**70)}], "['n'][1]", (1,)),
        ([np.int8(1), 300, -129], "", (1, 2)),
        ([np.array(1, np.uint8), -1], "", (1,)),
    ],
)
def test_an_int_that_does_not_fit_is_an_overflow_with_its_path(items, path, positions):
    with pytest.raises(OverflowError) as caught:
        default_collate(items)
    assert (caught.value.path, caught.value.positions) == (path, positions)
    assert path in str(caught.value)


def test_many_items_are_not_all_listed():
    with pytest.raises(CollateError) as caught:
        default_collate([np.zeros(i) for i in range(50)])
    assert "and 44 more" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert len(caught.value.positions) == 49


@pytest.mark.parametrize("items", [[], (), np.zeros((0, 3))])
def test_a_batch_of_zero_items_is_an_error(items):
    with pytest.raises(CollateError, match="zero items"):
        default_collate(items)


def test_items_may_come_as_any_sequence():
    assert_array(default_collate(np.arange(6).reshape(3, 2)), np.int64, [[0, 1], [2, 3], [4, 5]])
    assert_array(default_collate((1, 2)), np.int64, [1, 2])
    assert_array(default_collate(range(3)), np.int64, [0, 1, 2])


def wrap_tuple(row: Any, position: int) -> Any:
    return (row, position)


@pytest.mark.parametrize("shape", [(3,), (), (100, 300)])
@pytest.mark.parametrize("wrap", [lambda row, _: row, wrap_tuple, lambda row, i: {"x": [row], "y": i}])
def test_the_rows_of_a_batch_become_it_without_a_copy(shape, wrap):
    memory = BatchMemory(BufferPool(), 4)
    rows = [memory.row(position, shape, "f4") for position in range(4)]
    for position, row in enumerate(rows):
        row[...] = position
    batch = default_collate([wrap(row, i) for i, row in enumerate(rows)], memory)
    leaf = batch["x"][0] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else batch
    assert leaf.shape == (4, *shape)
    assert all(np.shares_memory(leaf, row) for row in rows)
    assert [float(row.max()) for row in leaf] == [0, 1, 2, 3]


def test_two_parts_of_a_batch_never_share_memory():
    memory = BatchMemory(BufferPool(), 4)
    rows = [memory.row(position, (3,), "f4") for position in range(4)]
    for row in rows:
        row[:] = 1
    first, second = default_collate([(row, row) for row in rows], memory)
    assert not np.shares_memory(first, second)
    assert (second == 1).all()


def test_rows_in_foreign_byte_order_are_converted():
    memory = BatchMemory(BufferPool(), 2)
    rows = [memory.row(position, (3,), ">f4") for position in range(2)]
    for row in rows:
        row[:] = 1.5
    assert_array(default_collate(rows, memory), np.float32, np.full((2, 3), 1.5))


def test_rows_of_objects_are_refused_as_well():
    memory = BatchMemory(BufferPool(), 2)
    rows = [memory.row(position, (3,), object) for position in range(2)]
    with pytest.raises(CollateError, match="object"):
        default_collate(rows, memory)


def test_large_batches_take_their_memory_from_the_pool():
    pool = BufferPool()
    items = [np.full((200, 200), i, "f4") for i in range(4)]
    batch = default_collate(items, BatchMemory(pool, 4))
    assert [row.max() for row in batch] == [0, 1, 2, 3]
    del batch
    assert pool.idle_bytes > 0


def test_the_loader_is_told_that_memory_is_taken():
    assert default_collate.takes_memory is True


def test_an_error_pickles_with_its_facts():
    import pickle

    with pytest.raises(CollateError) as caught:
        default_collate([{"x": None}])
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.path, error.positions, str(error)) == ("['x']", (0,), str(caught.value))
