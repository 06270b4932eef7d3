"""The short cuts of plain loaders give what the usual way gives: batch by batch, error by error, state by state."""

from __future__ import annotations

import numpy as np
import pytest

from feedline import ArrayDataset, DataLoader, RandomSampler
from feedline.loader.plain import Delivered, PlainItems, PlainWhole
from loading import Broken, Squares, results, same_results

N = 50
X = np.arange(N * 4.0).reshape(N, 4)


class Refusing:
    """A dataset of arrays whose `take` fails for some rows, as its items do."""

    take_rows = 16

    def __init__(self, bad) -> None:
        self.inner = ArrayDataset(X)
        self.bad = bad
        self.taken = 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError("bad row", index)
        return self.inner[index]

    def take(self, indices, allocate):
        self.taken += 1
        if not self.bad.isdisjoint(indices.tolist()):
            raise SystemExit("not even an Exception")
        return self.inner.take(indices, allocate)


class Awaitable(Squares):
    def __getitem__(self, index):
        async def fetch():
            return index

        return fetch()


def too_long(items):
    if len(items) != 4:
        raise OSError("only full batches", len(items))
    return [item["index"] for item in items]


def interrupting(items):
    if items[0]["index"] == 4:
        raise SystemExit("out of a collate function")
    return items


CASES = {
    "items": (PlainItems, lambda: Squares(N), {"batch_size": 4, "shuffle": True}),
    "strings": (PlainItems, lambda: list("abcdefghij"), {"batch_size": 3}),
    "large batches": (PlainItems, lambda: Squares(N), {"batch_size": 5000}),
    "failing items": (PlainItems, lambda: Broken(N, bad=(0, 7, 8, 13, 49)), {"batch_size": 4}),
    "awaitables": (PlainItems, lambda: Awaitable(N), {"batch_size": 4}),
    "single items": (PlainItems, lambda: Squares(N), {"batch_size": None, "shuffle": True}),
    "single items that fail": (PlainItems, lambda: Broken(N, bad=(0, 7, 49)), {"batch_size": None}),
    "single items, own collation": (PlainItems, lambda: Squares(N), {"batch_size": None, "collate_fn": str}),
    "own collation": (PlainItems, lambda: Squares(N), {"batch_size": 4, "collate_fn": too_long}),
    "collation that would exit": (
        PlainItems,
        lambda: Squares(N),
        {"batch_size": 4, "collate_fn": interrupting},
    ),
    "rows": (PlainWhole, lambda: ArrayDataset(X, X[:, 0]), {"batch_size": 4, "shuffle": True}),
    "rows, replaced": (
        PlainWhole,
        lambda: ArrayDataset(X),
        {"batch_size": 4, "sampler": RandomSampler(1, replacement=True, num_samples=70), "drop_last": True},
    ),
    "rows that fail": (PlainWhole, lambda: Refusing({3, 17, 18, 44}), {"batch_size": 4}),
    "rows that fail, skipped": (
        PlainWhole,
        lambda: Refusing({3, 16, 17, 18, 19}),
        {"batch_size": 4, "on_error": "skip"},
    ),
    "from workers": (Delivered, lambda: Squares(N), {"batch_size": 4, "num_workers": 2, "shuffle": True}),
    "failures from workers": (
        Delivered,
        lambda: Broken(N),
        {"batch_size": 4, "num_workers": 2, "on_error": "skip"},
    ),
    "rows from workers": (Delivered, lambda: Refusing({3, 17}), {"batch_size": 4, "num_workers": 2}),
}


def the_usual_way(monkeypatch):
    monkeypatch.setattr(DataLoader, "_plain_lane", lambda *_: None)


def run(dataset, options):
    loader = DataLoader(dataset, **options)
    runs, states = [], []
    for _ in range(2):
        iterator = loader.iter_with_indices()
        length = len(iterator)
        states.append(loader.state_dict())
        while True:
            found = results(_One(iterator))
            if not found:
                break
            runs += found
            states.append((loader.state_dict(), len(iterator)))
        assert length == len(loader)
    loader.close()
    return runs, states, loader.failures


class _One:
    def __init__(self, iterator) -> None:
        self.iterator = iterator
        self.done = False

    def __next__(self):
        if self.done:
            raise StopIteration
        self.done = True
        return next(self.iterator)


@pytest.mark.parametrize("name", CASES)
def test_both_ways_are_the_same(name, monkeypatch) -> None:
    lane, make, options = CASES[name]
    loader = DataLoader(make(), **options)
    assert type(iter(loader)._plain) is lane
    loader.close()
    found = run(make(), options)
    the_usual_way(monkeypatch)
    expected = run(make(), options)
    assert same_results(expected[0], found[0])
    assert expected[1:] == found[1:]


@pytest.mark.parametrize("name", ["items", "rows"])
def test_batches_without_indices_are_the_same_batches(name) -> None:
    _, make, options = CASES[name]
    one, two = DataLoader(make(), **options), DataLoader(make(), **options)
    pairs = zip(one, two.iter_with_indices(), strict=True)
    assert all(repr(batch) == repr(other) for batch, (_, other) in pairs)


def test_small_batches_of_rows_are_gathered_in_groups() -> None:
    dataset = Refusing(set())
    assert len(list(DataLoader(dataset, 4))) == 13
    # 4, 8, then 16 rows at a time: the first batch waits for no other; and one look at how an empty batch is made.
    assert dataset.taken == 1 + 1 + 1 + 3


def test_a_failing_group_costs_no_more_than_its_own_batches() -> None:
    read = []

    class Watched(Refusing):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    loader = DataLoader(Watched({5}), 4)
    assert len(results(loader.iter_with_indices())) == 13
    assert len(read) == len(set(read))


@pytest.mark.parametrize(
    "options",
    [
        {"transform": str},
        {"on_error": "skip"},
        {"timeout": 60},
        {"reseed_globals": True},
        {"item_concurrency": 2},
        {"sampler": [1, 2, 3]},
        {"batch_sampler": [[1]]},
        {"num_workers": 1, "in_order": False},
        {"num_workers": 1, "prefetch_bytes": 1000},
    ],
    ids=str,
)
def test_where_something_has_to_be_decided_the_usual_way_is_taken(options) -> None:
    loader = DataLoader(Squares(10), **options)
    assert iter(loader)._plain is None
    loader.close()


def test_a_state_that_is_ahead_takes_the_usual_way() -> None:
    loader = DataLoader(Squares(10), 2)
    loader.load_state_dict({**loader.state_dict(), "position": 2, "batch": 1, "ahead": [2, 3]})
    assert [batch["index"].tolist() for batch in loader] == [[2, 3], [8, 9]]
