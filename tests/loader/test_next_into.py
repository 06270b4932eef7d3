"""Batches gathered into the caller's own arrays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    DataLoader,
    DistributedSampler,
    NdfDataset,
    OptionError,
    SequentialSampler,
    save_ndf,
)
from loading import Squares

N = 23
X = np.arange(N * 3.0).reshape(N, 3)
Y = np.arange(N * 2.0).reshape(N, 2)


@pytest.fixture(params=["arrays", "rows on disk"])
def dataset(request, tmp_path):
    if request.param == "arrays":
        return ArrayDataset(X, Y)
    save_ndf(tmp_path / "rows.ndf", X, Y)
    return NdfDataset(tmp_path / "rows.ndf")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 4, 23, 40])
def test_the_same_rows_as_the_loop_gives_and_0_at_the_end(dataset, batch_size, workers) -> None:
    loader = DataLoader(dataset, batch_size, shuffle=True, seed=1, num_workers=workers)
    expected = list(loader)
    loader.set_epoch(0)
    iterator = iter(loader)
    bx, by = np.empty((batch_size, 3)), np.empty((batch_size, 2))
    for x, y in expected:
        assert iterator.next_into(bx, by) == len(x)
        assert np.array_equal(bx[: len(x)], x)
        assert np.array_equal(by[: len(y)], y)
    for _ in range(2):
        assert iterator.next_into(bx, by) == 0
    assert loader.state_dict()["epoch"] == 1
    loader.close()


def test_it_mixes_with_the_loop_and_with_states(dataset) -> None:
    loader = DataLoader(dataset, 5)
    bx, by = np.empty((5, 3)), np.empty((5, 2))
    iterator = iter(loader)
    found = [next(iterator)[0][:, 0].tolist()]
    assert iterator.next_into(bx, by) == 5
    found.append(bx[:, 0].tolist())
    assert loader.state_dict()["position"] == 10
    assert len(iterator) == 3
    found.append(next(iterator)[0][:, 0].tolist())
    resumed = DataLoader(dataset, 5)
    resumed.load_state_dict(loader.state_dict())
    for each in (iterator, iter(resumed)):
        assert each.next_into(bx, by) == 5
        assert bx[:, 0].tolist() == X[15:20, 0].tolist()
        assert each.next_into(bx, by) == 3
    assert [row for rows in found for row in rows] == X[:15, 0].tolist()


TARGETS = {
    "one array": (
        lambda: (np.empty((4, 3)),),
        OptionError,
        "next_into needs 2 arrays, one for each .*; got 1",
    ),
    "another dtype": (
        lambda: (np.empty((4, 3), "f4"), np.empty((4, 2))),
        OptionError,
        "target 0 must be .*its dtype is float32",
    ),
    "too few rows": (lambda: (np.empty((3, 3)), np.empty((4, 2))), OptionError, r"its shape is \(3, 3\)"),
    "too wide": (
        lambda: (np.empty((4, 3)), np.empty((4, 3))),
        OptionError,
        r"target 1 .*shape \(4, 2\).*its shape is \(4, 3\)",
    ),
    "another rank": (lambda: (np.empty(4), np.empty((4, 2))), OptionError, r"its shape is \(4,\)"),
    "a list": (lambda: ([[0.0] * 3] * 4, np.empty((4, 2))), TypeError, "target 0 must be .*it is a list"),
    "not contiguous": (
        lambda: (np.empty((4, 6))[:, ::2], np.empty((4, 2))),
        OptionError,
        "target 0 .*it is not contiguous",
    ),
    "by columns": (
        lambda: (np.empty((4, 3), order="F"), np.empty((4, 2))),
        OptionError,
        "it is not contiguous",
    ),
    "read-only": (
        lambda: (np.frombuffer(bytes(96)).reshape(4, 3), np.empty((4, 2))),
        OptionError,
        "it is read-only",
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_wrong_targets_are_refused_and_nothing_is_consumed(name) -> None:
    make, kind, message = TARGETS[name]
    iterator = iter(DataLoader(ArrayDataset(X, Y), 4))
    with pytest.raises(kind, match=message):
        iterator.next_into(*make())
    assert len(iterator) == 6
    assert next(iterator)[0][:, 0].tolist() == X[:4, 0].tolist()


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (ArrayDataset(X), {"transform": tuple}, "here the loader has a transform"),
        (ArrayDataset(X), {"collate_fn": list}, "here the loader has a collate_fn"),
        (ArrayDataset(X), {"batch_size": None}, "batches have no fixed size"),
        (ArrayDataset(X), {"batch_sampler": [[1]], "batch_size": 1}, "batches have no fixed size"),
        (
            ArrayDataset(X),
            {"sampler": DistributedSampler(SequentialSampler(), 0, 2, tail="mask")},
            'tail="mask"',
        ),
        (Squares(9), {}, r"Squares is no dataset of arrays \(it has no take_into\)"),
    ],
)
def test_where_there_are_no_plain_rows_it_says_so(dataset, options, message) -> None:
    iterator = iter(DataLoader(dataset, **{"batch_size": 4, **options}))
    with pytest.raises(TypeError, match=message):
        iterator.next_into(np.empty((4, 3)))
    assert next(iterator) is not None
    with pytest.raises(TypeError, match="iter_with_indices"):
        DataLoader(ArrayDataset(X)).iter_with_indices().next_into(np.empty((1, 3)))


def test_a_row_that_is_not_there_is_an_error_of_its_batch() -> None:
    loader = DataLoader(ArrayDataset(X), 2, sampler=np.array([0, 1, 2, 99, 3, 4]))
    iterator, target = iter(loader), np.empty((2, 3))
    assert iterator.next_into(target) == 2
    with pytest.raises(IndexError, match="99"):
        iterator.next_into(target)
    assert iterator.next_into(target) == 2
    assert target[:, 0].tolist() == [9.0, 12.0]
    assert [failure.index for failure in loader.failures] == [99]


def test_nothing_of_the_size_of_a_batch_is_allocated() -> None:
    rows = np.zeros((4000, 64))
    loader = DataLoader(ArrayDataset(rows), 1000)
    target = np.empty((1000, 64))
    iterator = iter(loader)
    iterator.next_into(target)
    tracemalloc.start()
    try:
        while iterator.next_into(target):
            pass
        assert tracemalloc.get_traced_memory()[1] < target.nbytes / 4
    finally:
        tracemalloc.stop()
