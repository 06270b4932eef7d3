"""`feedline.torch.default_collate` gives what torch's does: types, dtypes, values and errors."""

from __future__ import annotations

import copy
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: scripts/test --all")

from feedline.collate.buffers import BatchMemory, BufferPool  # noqa: E402
from feedline.torch.collation import default_collate, default_convert  # noqa: E402

Point = namedtuple("Point", ["x", "y"])


class Row(dict):
    """A dict with something more to it."""


def same(one, other) -> bool:
    """Tell whether two batches are equal in types, dtypes, shapes and values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if hasattr(one, "keys"):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def arrays(dtype, shape=(2, 3)):
    return [(np.arange(6).reshape(shape) + i).astype(dtype) for i in range(3)]


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]
ITEMS = {
    "ints": [1, 2, 3],
    "negative ints": [-1, 2, -(2**63)],
    "bools": [True, False, True],
    "floats": [1.5, 2.0, float("inf")],
    "complex": [np.complex64(1 + 2j), np.complex64(3j)],
    "ints, then floats": [1, 2.5],
    "floats, then ints": [2.5, 1],
    "text": ["a", "b"],
    "bytes": [b"a", b"b"],
    "0-d arrays": [np.array(1.5, np.float32), np.array(2.5, np.float32)],
    "arrays of two dtypes": [np.zeros(2, np.int32), np.ones(2, np.int64)],
    "ints and floats in arrays": [np.zeros(2, np.float32), np.ones(2, np.int64)],
    "strided arrays": [np.arange(12.0).reshape(3, 4).T, np.arange(12.0).reshape(3, 4).T + 1],
    "empty arrays": [np.zeros((0, 3)), np.zeros((0, 3))],
    "tensors": [torch.arange(3), torch.arange(3) + 5],
    "0-d tensors": [torch.tensor(1.0), torch.tensor(2.0)],
    "bfloat16 tensors": [torch.ones(2, dtype=torch.bfloat16)] * 2,
    "tensors that need gradients": [torch.ones(2, requires_grad=True).detach(), torch.ones(2)],
    "tensors beside arrays": [(torch.ones(2), np.ones(2)), (torch.zeros(2), np.zeros(2))],
    "tuples": [(1, 2.0, "a"), (3, 4.0, "b")],
    "1-tuples": [(np.ones(2),), (np.zeros(2),)],
    "empty tuples": [(), ()],
    "lists": [[1, 2], [3, 4]],
    "named tuples": [Point(1, np.ones(2)), Point(2, np.zeros(2))],
    "dicts": [{"x": np.ones(2), "y": 1}, {"x": np.zeros(2), "y": 2}],
    "dicts in another order": [{"x": 1, "y": 2}, {"y": 3, "x": 4}],
    "nested": [{"a": [(1, {"b": np.ones(1)})]}, {"a": [(2, {"b": np.zeros(1)})]}],
    "ordered dicts": [OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)],
    "default dicts": [defaultdict(int, a=1), defaultdict(int, a=2)],
    "subclasses of dict": [Row(a=1), Row(a=2)],
    "user dicts": [UserDict(a=1), UserDict(a=2)],
    "read-only mappings": [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})],
    "ranges": [range(2), range(2)],
    "one item": [(np.ones(3), 1)],
    **{f"arrays of {dtype}": arrays(dtype) for dtype in DTYPES},
    # torch itself can not join scalars of uint64.
    **{
        f"scalars of {dtype}": [np.dtype(dtype).type(i) for i in (0, 1, 1)]
        for dtype in DTYPES
        if dtype != "uint64"
    },
    **{f"tensors of {dtype}": list(map(torch.from_numpy, arrays(dtype))) for dtype in DTYPES},
}


@pytest.mark.parametrize("name", ITEMS)
def test_batches_are_equal_to_torchs(name: str) -> None:
    items = ITEMS[name]
    expected = torch.utils.data.default_collate(items)
    before = copy.deepcopy(items) if name != "read-only mappings" else items
    assert same(default_collate(items), expected)
    assert same(default_collate(items, BatchMemory(BufferPool(min_bytes=0), len(items))), expected)
    assert same(default_collate(tuple(items)), torch.utils.data.default_collate(tuple(items)))
    assert str(items) == str(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_batches_of_tensors_go_to_pooled_memory_and_are_equal(dtype: str) -> None:
    items = [torch.from_numpy(np.arange(5000).reshape(50, 100).astype(dtype)) for _ in range(20)]
    pool = BufferPool()
    batch = default_collate(items, BatchMemory(pool, 20))
    assert same(batch, torch.utils.data.default_collate(items))
    del batch
    assert pool.idle_bytes > 0


@pytest.mark.parametrize(
    "items",
    [
        [np.ones(2), np.ones(3)],
        [torch.ones(2), torch.ones(3)],
        [(1, 2), (3,)],
        [{"a": 1}, {"b": 1}],
        [None, None],
        [object(), object()],
        [np.array(["a"]), np.array(["b"])],
        [np.array([None]), np.array([None])],
        [np.datetime64("2020-01-01"), np.datetime64("2020-01-02")],
        [np.array(["2020-01-01"], "M8[D]")] * 2,
        [2**70, 1],
        [1, "a"],
    ],
    ids=str,
)
def test_what_torch_refuses_is_refused_with_torchs_error(items) -> None:
    with pytest.raises(Exception) as expected:
        torch.utils.data.default_collate(items)
    with pytest.raises(type(expected.value)) as found:
        default_collate(items)
    assert str(found.value) == str(expected.value)


def test_read_only_and_foreign_endian_arrays_are_treated_as_torch_does() -> None:
    frozen = [np.arange(3.0) for _ in range(2)]
    for array in frozen:
        array.flags.writeable = False
    batch = default_collate(frozen)
    batch[:] = 9
    assert frozen[0].tolist() == [0, 1, 2]
    swapped = [np.arange(3.0, dtype=">f8")] * 2
    with pytest.raises(Exception) as expected:
        torch.utils.data.default_collate(swapped)
    with pytest.raises(type(expected.value)):
        default_collate(swapped)


def test_gradients_flow_through_a_batch() -> None:
    weight = torch.ones(20_000, requires_grad=True)
    default_collate([weight * 2, weight], BatchMemory(BufferPool(), 2)).sum().backward()
    assert weight.grad is not None
    assert weight.grad[0].item() == 3


def test_functions_that_a_user_has_registered_are_used(monkeypatch) -> None:
    from torch.utils.data._utils.collate import default_collate_fn_map

    @dataclass
    class Box:
        side: int

    monkeypatch.setitem(
        default_collate_fn_map,
        Box,
        lambda batch, *, collate_fn_map: torch.tensor([box.side for box in batch]),
    )
    assert default_collate([Box(1), Box(2)]).tolist() == [1, 2]
    assert default_collate([(Box(1), 3)])[0].tolist() == [1]


def test_default_convert_is_torchs_own() -> None:
    assert default_convert is torch.utils.data.default_convert
