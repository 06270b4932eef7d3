"""Datasets made of datasets."""

from __future__ import annotations

import asyncio
import inspect
import pickle

import numpy as np
import pytest

from feedline.collate.default import default_collate
from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.combine import ConcatDataset, MapDataset, Subset
from feedline.datasets.kind import dataset_kind
from feedline.datasets.mixture import MixtureDataset
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.protocol import AsyncDataset
from feedline.errors import OptionError
from feedline.ndf.save import save_ndf


class Plain:
    """Items by index alone."""

    def __init__(self, name: str, length: int) -> None:
        self.name, self.length = name, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> str:
        assert type(index) is int
        if not 0 <= index < self.length:
            raise IndexError(index)
        return f"{self.name}{index}"


class Rich(Plain):
    """With the optional methods, which note their calls."""

    def __init__(self, name: str, length: int) -> None:
        super().__init__(name, length)
        self.calls: list[tuple[str, list[int]]] = []

    def __getitems__(self, indices: list[int]) -> list[str]:
        assert all(type(index) is int for index in indices)
        self.calls.append(("items", indices))
        return [self[index] for index in indices]

    def prefetch(self, indices: list[int]) -> None:
        self.calls.append(("hint", list(indices)))


class Waiting(AsyncDataset):
    def __init__(self, name: str, length: int) -> None:
        self.plain = Plain(name, length)
        self.closed = 0

    def __len__(self) -> int:
        return len(self.plain)

    async def __getitem__(self, index: int) -> str:
        return self.plain[index]

    async def __getitems__(self, indices: list[int]) -> list[str]:
        return [self.plain[index] for index in indices]

    async def aclose(self) -> None:
        self.closed += 1


def ten(value: str) -> str:
    return "ten " + value


MAKERS = {
    "Subset": lambda make: Subset(make("a", 5), [4, 0, -2, 0]),
    "Subset of a range": lambda make: Subset(make("a", 5), range(4, 0, -2)),
    "ConcatDataset": lambda make: ConcatDataset([make("a", 2), make("b", 0), make("c", 3)]),
    "MapDataset": lambda make: MapDataset(make("a", 3), ten),
    "MixtureDataset": lambda make: MixtureDataset({"a": make("a", 4), "b": make("b", 2)}, [2, 1]),
    "a nest": lambda make: MapDataset(ConcatDataset([Subset(make("a", 3), [2, 1]), make("b", 2)]), ten),
}
ITEMS = {
    "Subset": ["a4", "a0", "a3", "a0"],
    "Subset of a range": ["a4", "a2"],
    "ConcatDataset": ["a0", "a1", "c0", "c1", "c2"],
    "MapDataset": ["ten a0", "ten a1", "ten a2"],
    "MixtureDataset": ["a0", "b0", "a1", "a2", "b1", "a3"],
    "a nest": ["ten a2", "ten a1", "ten b0", "ten b1"],
}
every = pytest.mark.parametrize("name", MAKERS)


@every
def test_items_come_by_index_from_either_end_and_nothing_wraps(name):
    combined, items = MAKERS[name](Plain), ITEMS[name]
    n = len(items)
    assert len(combined) == n
    assert [combined[index] for index in range(n)] == items
    assert [combined[index] for index in range(-n, 0)] == items
    assert combined[np.int64(1)] == items[1]
    assert list(combined) == items
    for index in (n, -n - 1, 2**70):
        with pytest.raises(IndexError, match=f"index {index} is out of range"):
            combined[index]
    for index in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="must be an int"):
            combined[index]


@every
def test_optional_methods_are_there_only_where_the_parts_have_them(name):
    plain = MAKERS[name](Plain)
    for method in ("__getitems__", "prefetch", "take", "take_into"):
        assert getattr(plain, method, None) is None
    rich = MAKERS[name](Rich)
    assert callable(rich.__getitems__)
    assert callable(rich.prefetch)
    assert getattr(rich, "take", None) is None


@every
def test_many_items_at_once_are_the_items_one_by_one(name):
    combined, items = MAKERS[name](Rich), ITEMS[name]
    order = [1, 0, -1, 1, len(items) - 1]
    assert combined.__getitems__(order) == [items[place] for place in order]
    assert combined.__getitems__(np.array([0])) == [items[0]]
    assert combined.__getitems__([]) == []
    with pytest.raises(IndexError) as caught:
        combined.__getitems__([0, len(items)])
    assert caught.value.position == 1


@every
def test_asynchronous_parts_make_an_asynchronous_dataset(name):
    combined, items = MAKERS[name](Waiting), ITEMS[name]
    assert isinstance(combined, AsyncDataset)
    assert isinstance(combined, type(MAKERS[name](Plain)))
    assert inspect.iscoroutinefunction(combined.__getitem__)
    assert combined.kind().replace("Waiting", "Plain") == MAKERS[name](Plain).kind()
    assert getattr(combined, "take", None) is None

    async def fetch() -> None:
        assert await asyncio.gather(*(combined[index] for index in range(len(items)))) == items
        assert await combined[-1] == items[-1]
        order = [len(items) - 1, 0, 1]
        assert await combined.__getitems__(order) == [items[place] for place in order]
        with pytest.raises(IndexError):
            await combined[len(items)]
        await combined.aclose()

    asyncio.run(fetch())


@every
@pytest.mark.parametrize("make", [Plain, Rich, Waiting])
def test_they_pickle(name, make):
    combined = MAKERS[name](make)
    again = pickle.loads(pickle.dumps(combined))
    assert type(again) is type(combined)
    assert len(again) == len(combined)
    assert again.kind() == combined.kind()
    assert repr(again)


def test_closing_closes_every_part_once_and_raises_their_first_error():
    class Failing(Waiting):
        async def aclose(self) -> None:
            await super().aclose()
            raise OSError("no")

    parts = [Waiting("a", 1), Failing("b", 1), Waiting("c", 1)]
    with pytest.raises(OSError, match="no"):
        asyncio.run(ConcatDataset([*parts, parts[0]]).aclose())
    assert [part.closed for part in parts] == [1, 1, 1]


def test_synchronous_and_asynchronous_parts_are_not_mixed():
    with pytest.raises(TypeError, match=r"datasets\[1\] is an AsyncDataset, datasets\[0\] is not"):
        ConcatDataset([Plain("a", 1), Waiting("b", 1)])
    with pytest.raises(TypeError, match="part 'b' is an AsyncDataset, part 'a' is not"):
        MixtureDataset({"a": Plain("a", 1), "b": Waiting("b", 1)}, [1, 1])


def test_hints_go_to_the_parts_that_take_them():
    a, b = Rich("a", 3), Rich("b", 3)
    combined = ConcatDataset([a, Plain("c", 2), b])
    combined.prefetch([0, 3, 7, 2])
    assert (a.calls, b.calls) == ([("hint", [0, 2])], [("hint", [2])])
    assert combined.__getitems__ is None


def test_a_part_that_returns_too_few_items_is_named():
    class Short(Rich):
        def __getitems__(self, indices):
            return ["a"]

    with pytest.raises(ValueError, match="part 0 returned 1 items for 2 indices"):
        ConcatDataset([Short("a", 3)]).__getitems__([0, 1])


def test_an_index_error_out_of_a_part_is_an_error_and_no_end():
    class Faulty(Plain):
        def __getitem__(self, index):
            raise IndexError("a fault of its own")

    for combined in (
        Subset(Faulty("a", 3), [0]),
        ConcatDataset([Faulty("a", 3)]),
        MapDataset(Faulty("a", 3), ten),
    ):
        with pytest.raises(IndexError, match="a fault of its own"):
            list(combined)


# Gathers

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)
GATHERS = {
    "Subset": lambda: Subset(ArrayDataset(X, Y), [4, 0, -2, 0, 9]),
    "Subset of a range": lambda: Subset(ArrayDataset(X, Y), range(9, 2, -1)),
    "ConcatDataset": lambda: ConcatDataset([ArrayDataset(X, Y), ArrayDataset(-X[:3], -Y[:3])]),
    "of names": lambda: ConcatDataset([ArrayDataset({"x": X, "y": Y}), ArrayDataset({"x": -X, "y": -Y})]),
    "MixtureDataset": lambda: MixtureDataset(
        {"a": ArrayDataset(X), "b": ArrayDataset(-X)}, {"b": 0.3, "a": 0.7}
    ),
    "a nest": lambda: ConcatDataset(
        [Subset(ArrayDataset(X, Y), [1, 2]), ConcatDataset([ArrayDataset(-X, -Y)])]
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_a_gathered_batch_equals_the_collated_items(name):
    combined = GATHERS[name]()
    assert combined.take_rows == 4096
    for places in ([0, 1], [len(combined) - 1, 0, -1, 2, 2], [-1], [0] * 3):
        batch = combined.take(np.array(places), np.empty)
        collated = default_collate([combined[place] for place in places])
        assert type(batch) is type(collated)
        assert list(batch) == list(collated) if isinstance(batch, dict) else len(batch) == len(collated)
        outs = [np.empty((len(places), *spec.shape), spec.dtype) for spec in combined.row_specs]
        assert combined.take_into(np.array(places), outs) is None
        leaves = [list(part.values()) if isinstance(part, dict) else list(part) for part in (batch, collated)]
        for one, two, three in zip(*leaves, outs):
            assert one.dtype == two.dtype == three.dtype
            assert one.tolist() == two.tolist() == three.tolist()
    with pytest.raises(IndexError) as caught:
        combined.take(np.array([0, len(combined)]), np.empty)
    assert caught.value.position == 1


@pytest.mark.parametrize(
    "other",
    [
        ArrayDataset(X.astype(np.float32), Y),
        ArrayDataset(X[:, :1], Y),
        ArrayDataset(X),
        ArrayDataset({"x": X, "y": Y}),
        Plain("a", 3),
        [(X[0], Y[0])],
    ],
    ids=repr,
)
def test_parts_with_rows_of_another_form_are_left_to_the_collation(other):
    assert ConcatDataset([ArrayDataset(X, Y), other]).take is None
    assert ConcatDataset([ArrayDataset(X, Y), other]).row_specs is None


def test_a_map_gathers_nothing():
    mapped = MapDataset(ArrayDataset(X), len)
    assert mapped.take is None
    assert mapped.take_into is None
    assert mapped.__getitems__([0, 1]) == [1, 1]


def test_files_and_arrays_are_gathered_together(tmp_path):
    save_ndf(tmp_path / "a.ndf", X, Y)
    both = ConcatDataset([NdfDataset(tmp_path / "a.ndf"), ArrayDataset(X, Y[:, np.newaxis].astype(float))])
    assert both.take(np.array([3, 13]), np.empty)[1].tolist() == [[3], [3]]
    assert len(pickle.dumps(Subset(NdfDataset(tmp_path / "a.ndf"), range(10)))) < 700


# Subset


@pytest.mark.parametrize(
    ("indices", "error", "match"),
    [
        ([0, True], TypeError, r"indices\[1\] is True"),
        ([1.0], TypeError, r"indices\[0\] is 1.0"),
        ([None], TypeError, "None"),
        ([[0]], TypeError, "hashable"),
        ([0, 5], OptionError, "index 5"),
        ([-6], OptionError, "index -6"),
        (range(3, 6), OptionError, "index 5"),
        (range(-6, 0), OptionError, "index -6"),
        ([2**70], OptionError, "out of range"),
        (np.array([0, 5], np.uint8), OptionError, "index 5"),
        (np.array([True, False]), TypeError, r"np.flatnonzero\(mask\)"),
        (np.array([0.0]), TypeError, "must be an int"),
        (np.array([[0]]), TypeError, "one list"),
        ({0, 1}, TypeError, "not set"),
        ({0: 1}, TypeError, "not dict"),
        ("01", TypeError, "not str"),
        (3, TypeError, "not int"),
    ],
)
def test_wrong_indices_are_refused_when_the_subset_is_built(indices, error, match):
    with pytest.raises(error, match=match):
        Subset(Plain("a", 5), indices)


@pytest.mark.parametrize("indices", [[], (), np.array([]), np.empty(0, np.int64), range(0), iter([])])
def test_a_subset_may_be_empty(indices):
    subset = Subset(Plain("a", 5), indices)
    assert len(subset) == 0
    assert list(subset) == []


@pytest.mark.parametrize(
    "indices",
    [[1, -1], (1, 4), np.array([1, -1], np.int8), iter([1, 4]), range(1, 5, 3), [np.uint8(1), np.array(4)]],
)
def test_indices_come_in_many_forms(indices):
    assert list(Subset(Plain("a", 5), indices)) == ["a1", "a4"]


def test_a_range_that_begins_below_zero_counts_from_the_end():
    assert list(Subset(Plain("a", 5), range(-2, 2))) == ["a3", "a4", "a0", "a1"]


def test_a_huge_range_takes_no_memory():
    subset = Subset(Plain("a", 10**12), range(10**11, 10**12))
    assert subset[-1] == f"a{10**12 - 1}"
    assert len(pickle.dumps(subset)) < 500
    assert repr(subset).endswith("range(100000000000, 1000000000000))")


def test_indices_given_as_an_array_are_copied():
    indices = np.array([0, 1])
    subset = Subset(Plain("a", 5), indices)
    indices[0] = 4
    assert subset[0] == "a0"


def test_keys_reach_a_dataset_of_keys_unchanged():
    records = {"x": 1, ("y", 2): 2, 70: 3}
    assert list(Subset(records, ["x", ("y", 2), 70])) == [1, 2, 3]
    assert list(Subset(records, [70])) == [3]


# What is no dataset


@pytest.mark.parametrize("dataset", [5, None, "text", iter([1]), {1, 2}, Plain])
def test_what_has_no_random_access_is_refused(dataset):
    for make in (
        lambda: Subset(dataset, [0]),
        lambda: MapDataset(dataset, ten),
        lambda: ConcatDataset([dataset]),
        lambda: MixtureDataset({"a": dataset}, [1]),
    ):
        with pytest.raises(TypeError, match="must be a dataset"):
            make()


@pytest.mark.parametrize("datasets", [ArrayDataset(X), "text", 5, {"a": [1]}, iter([[1]])])
def test_a_concatenation_takes_a_list(datasets):
    with pytest.raises(TypeError, match="ConcatDataset takes a list of datasets"):
        ConcatDataset(datasets)


def test_a_concatenation_of_nothing_is_refused():
    with pytest.raises(OptionError, match="at least one"):
        ConcatDataset([])


@pytest.mark.parametrize("fn", [None, 5, "len"])
def test_a_map_takes_a_function(fn):
    with pytest.raises(TypeError, match="fn must be callable"):
        MapDataset([1], fn)


def test_a_map_takes_no_coroutine_function():
    async def fn(item):
        return item

    with pytest.raises(TypeError, match="plain function"):
        MapDataset(Waiting("a", 1), fn)


# Kinds


class Nested:
    class Rows(list):
        pass


def test_kinds_tell_the_classes_through_the_wrappers():
    arrays = ArrayDataset(X)
    assert dataset_kind(Subset(arrays, [0])) == "feedline.Subset(feedline.ArrayDataset)"
    assert (
        dataset_kind(ConcatDataset([MapDataset(arrays, len), [1]]))
        == "feedline.ConcatDataset(feedline.MapDataset(feedline.ArrayDataset), builtins.list)"
    )
    assert (
        dataset_kind(MixtureDataset({"a": arrays, "b": [1]}, [3, 1]))
        == "feedline.MixtureDataset(a: 0.75 of feedline.ArrayDataset, b: 0.25 of builtins.list)"
    )
    assert dataset_kind(Nested.Rows()).endswith("Nested.Rows")


def test_a_users_own_kind_attribute_means_nothing():
    class Mine(list):
        kind = "train"

    assert dataset_kind(Mine()).endswith("Mine")
