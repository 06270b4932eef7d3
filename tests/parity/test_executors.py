"""Whoever loads them, batches are the same: indices, values, errors with their notes, failures and states, as serial."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    LengthBucketSampler,
    NdfDataset,
    RandomSampler,
    Subset,
    WeightedSampler,
    save_ndf,
    shuffle_buffer,
)
from loading import (
    AsyncSquares,
    Broken,
    CountingStream,
    Keyed,
    Many,
    SeekableStream,
    Squares,
    draw_with_context,
    results,
    same_results,
)

#: Every kind of worker: a further one is one line.
KINDS: dict[str, dict[str, Any]] = {
    "one thread": {"num_workers": 1, "prefetch_depth": 0},
    "three threads": {"num_workers": 3},
    "items side by side": {"num_workers": 0, "item_concurrency": 3},
    "two threads, items side by side": {"num_workers": 2, "item_concurrency": 4, "prefetch_depth": 5},
    "a time limit": {"num_workers": 2, "timeout": 60.0},
    "two processes": {"num_workers": 2, "worker_type": "process"},
    "two Ray actors": {"num_workers": 2, "worker_type": "ray"},
}

N = 23
X = np.arange(N * 3.0).reshape(N, 3)
Y = np.arange(N)
FILE: dict[str, Any] = {}


class BrokenMany(Broken):
    """Fails one by one, and as a whole if one of many is bad."""

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


class Short(Squares):
    """Its `__getitems__` forgets the last item of a batch that has item 7."""

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices][: -1 if 7 in indices else None]


class Boasting(Squares):
    """Says it has more items than it has."""

    def __len__(self) -> int:
        return self.length + 3


class Ragged(Squares):
    """Item 5 does not fit to the others."""

    def __getitem__(self, index: Any) -> Any:
        return np.zeros(3 if index == 5 else 2)


class Awaitable(Squares):
    """Looks as if it should be awaited."""

    def __getitem__(self, index: Any) -> Any:
        async def fetch() -> Any:
            return index

        return fetch()


def picky(item: Any, context: Any) -> Any:
    if context.index in (1, 8, 9, 22):
        raise ArithmeticError("not this one", context.index)
    return draw_with_context(item, context)


def half(item: Any) -> Any:
    return {"half": item["row"] / 2}


def mixed_policy(failure: Any) -> Any:
    if failure.error_type == "ValueError":
        return "raise"
    return "skip" if failure.index % 2 else "substitute"


def forgetful_policy(failure: Any) -> Any:
    return "ignore"


@dataclass
class Case:
    make: Callable[[], Any]
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "a list": Case(lambda: [f"item {k}" for k in range(N)], {"batch_size": 4, "shuffle": True}),
    "nothing": Case(list, {"batch_size": 4}),
    "arrays, small batches": Case(lambda: ArrayDataset(X, Y), {"batch_size": 2, "shuffle": True, "seed": 5}),
    "arrays, one large batch": Case(lambda: ArrayDataset(X, Y), {"batch_size": 100}),
    "arrays by name": Case(
        lambda: ArrayDataset({"x": X, "y": Y}),
        {"batch_size": 5, "drop_last": True, "transform": draw_with_context},
    ),
    "arrays, the whole order wrong": Case(
        lambda: ArrayDataset(X, Y), {"batch_size": 3, "sampler": [1, 22, 23, 4, 99, 0]}
    ),
    "parts of arrays": Case(
        lambda: ConcatDataset([ArrayDataset(X, Y), Subset(ArrayDataset(-X, -Y), [3, 1, 3])]),
        {"batch_size": 6, "shuffle": True},
    ),
    "rows on disk": Case(lambda: NdfDataset(FILE["path"]), {"batch_size": 4, "shuffle": True}),
    "rows on disk, transformed": Case(
        lambda: NdfDataset(FILE["path"]), {"batch_size": 4, "transform": draw_with_context, "shuffle": True}
    ),
    "many at once": Case(lambda: Many(N), {"batch_size": 4, "shuffle": True, "transform": half}),
    "many that skip": Case(lambda: BrokenMany(N), {"batch_size": 3, "on_error": "skip"}),
    "failing items": Case(lambda: Broken(N), {"batch_size": 3, "shuffle": True}),
    "failing items, skipped": Case(
        lambda: Broken(N, bad=(3, 4, 5, 6, 7, 8, 22)),
        {"batch_size": 3, "on_error": "skip", "transform": draw_with_context},
    ),
    "failing items, replaced": Case(
        lambda: Broken(N),
        {"batch_size": 3, "shuffle": True, "on_error": "substitute", "transform": draw_with_context},
    ),
    "nothing but failures, replaced": Case(
        lambda: Broken(4, bad=range(4)), {"batch_size": 2, "on_error": "substitute"}
    ),
    "failing items, a policy of mine": Case(lambda: Broken(N), {"batch_size": 4, "on_error": mixed_policy}),
    "a policy that answers nonsense": Case(
        lambda: Broken(N), {"batch_size": 8, "on_error": forgetful_policy}
    ),
    "failing transforms": Case(lambda: Squares(N), {"batch_size": 3, "transform": picky, "shuffle": True}),
    "failing transforms, skipped": Case(
        lambda: Broken(N), {"batch_size": 3, "transform": picky, "on_error": "skip"}
    ),
    "failing collation": Case(lambda: Ragged(N), {"batch_size": 4}),
    "failing collation of my own": Case(lambda: Squares(N), {"batch_size": 4, "collate_fn": sum}),
    "too many failures": Case(lambda: Broken(N), {"batch_size": 2, "on_error": "skip", "max_failures": 2}),
    "too large a share of failures": Case(
        lambda: Broken(N), {"batch_size": 2, "on_error": "skip", "max_failures": 0.1}
    ),
    "awaitables": Case(lambda: Awaitable(6), {"batch_size": 3, "on_error": "skip"}),
    "a length that is a lie": Case(lambda: Boasting(N), {"batch_size": 5}),
    "keys": Case(
        Keyed,
        {
            "batch_size": 3,
            "sampler": [*"abc", "no such key", ("pair", 1), "a"],
            "transform": draw_with_context,
        },
    ),
    "padding": Case(
        lambda: Squares(N), {"batch_size": 3, "sampler": DistributedSampler(RandomSampler(2), 3, 4)}
    ),
    "a mask": Case(
        lambda: Broken(N, bad=(0, 5)),
        {
            "batch_size": 2,
            "on_error": "skip",
            "sampler": DistributedSampler(RandomSampler(2), 3, 4, tail="mask"),
        },
    ),
    "with replacement": Case(
        lambda: Squares(N), {"batch_size": 7, "sampler": WeightedSampler(Y + 1.0, 30, seed=1)}
    ),
    "batches of mine": Case(
        lambda: Squares(N), {"batch_sampler": [[0, 1], [2], [], [3, "x"], [4, 4.5], [6, -1], [9, 8]]}
    ),
    "chunks": Case(lambda: Many(N), {"batch_sampler": BatchSampler(RandomSampler(2), 4, drop_last=True)}),
    "masked chunks": Case(
        lambda: Squares(N),
        {"batch_sampler": BatchSampler(DistributedSampler(RandomSampler(2), 1, 2, tail="mask"), 5)},
    ),
    "buckets": Case(lambda: Squares(N), {"batch_sampler": LengthBucketSampler(Y + 1, max_tokens=40, seed=1)}),
    "an order of nonsense": Case(
        lambda: Squares(N), {"batch_size": 2, "sampler": [0, 1, None, 2, [3], 4, 2.0, 5, "y"]}
    ),
    "single items": Case(lambda: Broken(N), {"batch_size": None, "transform": draw_with_context}),
    "single items, collated": Case(
        lambda: Squares(N), {"batch_size": None, "collate_fn": half, "shuffle": True}
    ),
    "a stream": Case(lambda: CountingStream(N), {"batch_size": 4, "transform": draw_with_context}),
    "a stream that fails": Case(lambda: CountingStream(N, fails_at=10), {"batch_size": 4}),
    "a stream with a state": Case(lambda: SeekableStream(N), {"batch_size": 4, "drop_last": True}),
    "a stream, skipping": Case(
        lambda: CountingStream(N), {"batch_size": 4, "transform": picky, "on_error": "skip"}
    ),
    "a shuffled stream": Case(lambda: shuffle_buffer(SeekableStream(N), 6, seed=1), {"batch_size": 4}),
    "a share of a stream": Case(lambda: CountingStream(N), {"batch_size": 4, "rank": 1, "world_size": 2}),
}


@pytest.fixture(autouse=True, scope="module")
def _rows(tmp_path_factory):
    FILE["path"] = tmp_path_factory.mktemp("parity") / "rows.ndf"
    save_ndf(FILE["path"], X, Y)


def run(case, options):
    """Two epochs: their results, the states in mid-epoch and at the ends, and the failures."""
    loader = DataLoader(case.make(), **{**case.options, **options})
    runs, states = [], []
    for _ in range(2):
        iterator = loader.iter_with_indices()
        found = results(_First(iterator, 3))
        states.append(json.dumps(loader.state_dict()))
        found += results(iterator)
        runs.append(found)
        states.append(json.dumps(loader.state_dict()))
    loader.close()
    return runs, states, loader.failures


class _First:
    """The first few of an iterator, errors counted."""

    def __init__(self, iterator, count) -> None:
        self.iterator, self.left = iterator, count

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return next(self.iterator)


def ended_by_too_many(found):
    return any(result.indices is None and result.value[0].__name__ == "TooManyFailures" for result in found)


def results_to_the_end(found):
    """`TooManyFailures` is raised for ever: once is enough."""
    for place, result in enumerate(found):
        if ended_by_too_many([result]):
            return found[: place + 1]
    return found


#: Processes (and actors) take their time to start: enough cases that everything that crosses their border does.
ACROSS_PROCESSES = {
    "arrays, small batches",
    "arrays, the whole order wrong",
    "rows on disk, transformed",
    "failing items",
    "failing items, replaced",
    "failing transforms",
    "failing collation of my own",
    "too many failures",
    "keys",
    "a mask",
    "batches of mine",
    "single items",
    "a stream that fails",
}


def applies(name: str, kind: str) -> bool:
    """Items that are fetched side by side are not fetched by `__getitems__`, whose errors are others."""
    if "worker_type" in KINDS[kind]:
        return name in ACROSS_PROCESSES
    fetched_together = name.startswith("many") or name == "arrays, the whole order wrong"
    return not ("item_concurrency" in KINDS[kind] and fetched_together)


PAIRS = [(name, kind) for name in CASES for kind in KINDS if applies(name, kind)]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_batches_errors_failures_and_states_are_those_of_the_calling_thread(name, kind, request) -> None:
    case, options = CASES[name], KINDS[kind]
    if options.get("worker_type") == "ray":
        request.getfixturevalue("local_ray")
    if "max_failures" in case.options:
        expected, found = limited(case, {}), limited(case, options)
        assert same_results(expected, found)
        return
    expected_runs, expected_states, expected_failures = run(case, {"timeout": None})
    runs, states, failures = run(case, options)
    for expected, found in zip(expected_runs, runs, strict=True):
        assert same_results(expected, found), f"{expected}\n{found}"
    assert states == expected_states
    assert failures == expected_failures


def limited(case, options):
    """The results up to the error that ends the run, which then is raised for ever."""
    loader = DataLoader(case.make(), **{**case.options, **options})
    iterator = loader.iter_with_indices()
    found = results(_First(iterator, 8))
    assert ended_by_too_many(found)
    assert ended_by_too_many(results(_First(iterator, 1)))
    loader.close()
    return results_to_the_end(found)


@pytest.mark.parametrize("kind", ["three threads", "two threads, items side by side"])
@pytest.mark.parametrize(
    "name",
    [
        "a list",
        "arrays, small batches",
        "failing items",
        "failing items, replaced",
        "keys",
        "a stream",
        "a mask",
    ],
)
def test_out_of_order_the_same_comes(name, kind) -> None:
    case = CASES[name]
    loader = DataLoader(case.make(), **{**case.options, **KINDS[kind]}, in_order=False)
    expected = results(DataLoader(case.make(), **case.options).iter_with_indices())
    found = results(loader.iter_with_indices())
    assert same_results(
        *(sorted(one, key=lambda r: (r.indices is None, repr(r))) for one in (expected, found))
    )
    assert sorted(f.index for f in loader.failures) == sorted(f.index for f in _failures_of(case))
    loader.close()


def _failures_of(case):
    loader = DataLoader(case.make(), **case.options)
    results(loader.iter_with_indices())
    return loader.failures


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("policy", ["raise", "skip", "substitute", mixed_policy])
def test_awaited_items_give_what_others_give(workers, concurrency, policy) -> None:
    bad = (4, 11, 15, 22)  # a StopIteration (3) is turned into another error by the coroutine itself
    options = {"batch_size": 3, "shuffle": True, "transform": draw_with_context, "on_error": policy}
    sync = Case(lambda: Broken(N, bad), options)
    awaited = Case(
        lambda: AsyncSquares(N, bad), {**options, "num_workers": workers, "item_concurrency": concurrency}
    )
    expected_runs, expected_states, expected_failures = run(sync, {})
    runs, states, failures = run(awaited, {})
    for expected, found in zip(expected_runs, runs, strict=True):
        assert same_results(expected, found), f"{expected}\n{found}"
    assert failures == expected_failures
    for one, other in zip(states, expected_states):
        one, other = json.loads(one), json.loads(other)
        assert one.pop("fingerprint") != other.pop("fingerprint")
        assert one == other


def replays(name: str) -> bool:
    """Streams can't be replayed; batches of which nothing is left have numbers that do not show."""
    return "stream" not in name and CASES[name].options.get("on_error") != "skip" and name != "nothing"


@pytest.mark.parametrize("name", [name for name in CASES if replays(name)])
@pytest.mark.parametrize("kind", [{}, KINDS["three threads"]])
def test_each_batch_can_be_replayed_alone(name, kind) -> None:
    case = CASES[name]
    loader = DataLoader(case.make(), **{**case.options, **kind})
    for epoch in (0, 1):
        expected = results(loader.iter_with_indices())
        for number, result in enumerate(expected):
            if result.indices is None:
                with pytest.raises(result.value[0]) as caught:
                    loader.batch_at(epoch, number)
                assert caught.value.args == result.value[1]
            else:
                batch = loader.batch_at(epoch, number)
                assert same_results([result], [type(result)(result.indices, batch)])
        with pytest.raises(IndexError):
            loader.batch_at(epoch, len(expected))
    loader.close()
