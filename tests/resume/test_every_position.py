"""From every position a loader goes on as if it had not been interrupted: the same batches, to the end of later epochs."""

from __future__ import annotations

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    DistributedSampler,
    LengthBucketSampler,
    NdfDataset,
    RandomSampler,
    ShardSampler,
    WeightedSampler,
    save_ndf,
    shuffle_buffer,
)
from feedline.testing.resume_checker import check_resume
from loading import (
    AsyncSquares,
    Broken,
    CountingStream,
    Keyed,
    Many,
    SeekableStream,
    Squares,
    draw_with_context,
)

N = 23
X = np.arange(N * 2.0).reshape(N, 2)
LENGTHS = [5, 90, 6, 88, 4, 91, 7, 50, 51, 49, 8, 9, 3, 60, 61, 62, 1, 2, 95, 96, 44, 45, 46]

SAMPLERS = {
    "in order": {},
    "shuffled": {"shuffle": True, "seed": 42},
    "constant memory": {"sampler": RandomSampler(7, memory="constant")},
    "replacement": {"sampler": RandomSampler(7, replacement=True, num_samples=31)},
    "weighted": {"sampler": WeightedSampler(np.arange(1.0, N + 1), 20, seed=3)},
    "pad": {"sampler": DistributedSampler(RandomSampler(1), 1, 4, tail="pad")},
    "drop": {"sampler": DistributedSampler(RandomSampler(1), 1, 4, tail="drop")},
    "exact": {"sampler": DistributedSampler(RandomSampler(1), 3, 4, tail="exact")},
    "mask": {"sampler": DistributedSampler(RandomSampler(1), 3, 4, tail="mask")},
    "shard": {"sampler": ShardSampler(RandomSampler(5), 1, 3)},
    "a list": {"sampler": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]},
    "a range": {"sampler": range(2, 19)},
    "drop last": {"shuffle": True, "drop_last": True},
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_with_every_sampler(name, workers) -> None:
    options = {"batch_size": 3, "num_workers": workers, **SAMPLERS[name]}
    assert check_resume(lambda: DataLoader(Squares(N), **options)) > 4


BATCH_SAMPLERS = {
    "chunks": BatchSampler(RandomSampler(2), 4, drop_last=False),
    "chunks of a rank": BatchSampler(DistributedSampler(RandomSampler(2), 0, 2, tail="exact"), 4),
    "masked chunks": BatchSampler(DistributedSampler(RandomSampler(2), 1, 2, tail="mask"), 5),
    "buckets": LengthBucketSampler(LENGTHS, batch_size=4, seed=1),
    "tokens": LengthBucketSampler(LENGTHS, max_tokens=200, seed=1),
    "lists": [[0, 1], [5], [7, 8, 9], [2, 2]],
}


@pytest.mark.parametrize("name", BATCH_SAMPLERS)
def test_with_every_batch_sampler(name) -> None:
    check_resume(lambda: DataLoader(Squares(N), batch_sampler=BATCH_SAMPLERS[name], num_workers=1))


class Generated:
    """A user's own sampler, a new order for each epoch that it is told of; without a length."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch) -> None:
        self.epoch = epoch

    def __iter__(self):
        yield from np.random.default_rng(self.epoch).permutation(N)[:17]


class Sized(Generated):
    def __len__(self) -> int:
        return 17


@pytest.mark.parametrize("sampler", [Generated, Sized])
@pytest.mark.parametrize("batch_size", [4, 17, 20, 1])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.filterwarnings("ignore:drop_last=True leaves nothing")
def test_with_a_users_own_sampler(sampler, batch_size, drop_last) -> None:
    check_resume(
        lambda: DataLoader(Squares(N), batch_size, sampler=sampler(), drop_last=drop_last), make_resumed=None
    )


def test_with_a_users_own_sampler_that_fails_on_the_way() -> None:
    class Failing(Generated):
        def __iter__(self):
            yield from range(6)
            raise OSError("no more indices")

    for batch_size in (1, 3, 4, 6, 8):
        check_resume(lambda: DataLoader(Squares(N), batch_size, sampler=Failing()))


def test_with_a_users_own_sampler_that_gives_nonsense_on_the_way() -> None:
    check_resume(lambda: DataLoader(Squares(N), 2, sampler=[0, 1, 2.5, 3, -4, 5, 6, True]))
    check_resume(lambda: DataLoader(Squares(N), batch_sampler=[[0], [1, "x"], [2], 7, [None], [3, 3]]))


DATASETS = {
    "list": lambda path: list(range(N)),
    "arrays": lambda path: ArrayDataset(X, np.arange(N)),
    "rows on disk": lambda path: NdfDataset(path),
    "many at once": lambda path: Many(N),
    "failing items": lambda path: Broken(N),
    "awaited": lambda path: AsyncSquares(N),
    "awaited, failing": lambda path: AsyncSquares(N, bad=(3, 4, 11, 22)),
}


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (2, 2)])
def test_with_every_kind_of_dataset_and_other_numbers_of_workers(name, before, after, tmp_path) -> None:
    path = tmp_path / "rows.ndf"
    save_ndf(path, X, np.arange(N))
    dataset = DATASETS[name](path)

    def make(workers, depth):
        return DataLoader(
            dataset,
            4,
            shuffle=True,
            seed=9,
            num_workers=workers,
            prefetch_depth=depth,
            item_concurrency=1 + workers // 3,
        )

    check_resume(lambda: make(before, 4), make_resumed=lambda: make(after, 0))


def test_keyed_items_resume() -> None:
    keys = [*"gfedcba", ("pair", 1)]
    check_resume(lambda: DataLoader(Keyed(), 3, sampler=keys, transform=draw_with_context))


@pytest.mark.parametrize("policy", ["raise", "skip", "substitute"])
@pytest.mark.parametrize("workers", [0, 2])
def test_failures_and_draws_go_on_as_they_were(policy, workers) -> None:
    check_resume(
        lambda: DataLoader(
            Broken(N),
            3,
            shuffle=True,
            seed=5,
            transform=draw_with_context,
            on_error=policy,
            num_workers=workers,
        ),
        epochs=3,
    )


def test_without_an_order_of_delivery() -> None:
    check_resume(
        lambda: DataLoader(Squares(N), 2, shuffle=True, num_workers=3, in_order=False),
        in_order=False,
        epochs=2,
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_state_that_is_ahead_of_its_first_gap_loads_everywhere(workers, in_order) -> None:
    def make():
        return DataLoader(Squares(N), 3, shuffle=True, num_workers=workers, in_order=in_order)

    whole = {tuple(indices) for indices, _ in make().iter_with_indices()}
    loader = make()
    batches = [tuple(loader.batch_at(0, k)["index"].tolist()) for k in range(8)]
    state = {**loader.state_dict(), "position": 6, "batch": 2, "ahead": [3, 5]}
    loader.load_state_dict(state)
    assert loader.state_dict()["ahead"] == [3, 5]
    iterator = loader.iter_with_indices()
    assert len(iterator) == 4
    got = [tuple(indices) for indices, _ in iterator]
    assert sorted(got) == sorted(batches[k] for k in (2, 4, 6, 7))
    assert whole == set(batches)
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_state_that_is_ahead_is_right_behind_every_batch(workers) -> None:
    def make():
        return DataLoader(CountingStream(N), 3, num_workers=workers, in_order=False)

    state = {**make().state_dict(), "position": 6, "batch": 2, "ahead": [3, 4, 6]}
    loader = make()
    loader.load_state_dict(state)
    iterator = loader.iter_with_indices()
    left = {2: [6, 7, 8], 5: [15, 16, 17], 7: [21, 22]}
    for taken in range(4):
        again = make()
        again.load_state_dict(loader.state_dict())
        got = sorted(indices for indices, _ in again.iter_with_indices())
        assert got == (sorted(left.values()) or [list(range(k, min(k + 3, N))) for k in range(0, N, 3)])
        if taken < 3:
            indices, _ = next(iterator)
            left = {number: items for number, items in left.items() if items != indices}


STREAMS = {
    "without a state": lambda: CountingStream(N),
    "with a state": lambda: SeekableStream(N),
    "failing": lambda: CountingStream(N, fails_at=11),
    "failing at the start of a batch": lambda: CountingStream(N, fails_at=12),
    "failing at once": lambda: CountingStream(N, fails_at=0),
    "empty": lambda: CountingStream(0),
    "of whole batches": lambda: CountingStream(12),
    "shuffled": lambda: shuffle_buffer(CountingStream(N), 7, seed=3),
    "shuffled, with a state": lambda: shuffle_buffer(SeekableStream(N), 5, seed=3),
    "shuffled twice": lambda: shuffle_buffer(shuffle_buffer(SeekableStream(N), 4, seed=3), 6, seed=4),
    "shuffled through a buffer of one": lambda: shuffle_buffer(SeekableStream(N), 1),
    "shuffled through a large buffer": lambda: shuffle_buffer(SeekableStream(N), 100),
    "a set of one": lambda: {3},
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("workers", [0, 2])
def test_with_every_kind_of_stream(name, workers) -> None:
    check_resume(
        lambda: DataLoader(STREAMS[name](), 3, transform=draw_with_context, num_workers=workers),
        make_resumed=lambda: DataLoader(
            STREAMS[name](), 3, transform=draw_with_context, num_workers=2 - workers
        ),
    )


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("stream", [CountingStream, SeekableStream])
def test_a_ranks_share_of_a_stream_resumes(stream, rank, drop_last) -> None:
    check_resume(
        lambda: DataLoader(stream(N), 2, rank=rank, world_size=3, drop_last=drop_last, num_workers=rank % 2)
    )


def test_a_stream_that_shards_itself_resumes() -> None:
    class Sharding(SeekableStream):
        def shard(self, index, count):
            part = SeekableStream(self.length // count)
            part.first = index
            return part

    check_resume(lambda: DataLoader(Sharding(N), 2, rank=1, world_size=3))


def test_a_seek_reads_nothing_again_where_the_stream_has_a_state() -> None:
    stream = SeekableStream(1000)
    loader = DataLoader(stream, 10)
    iterator = iter(loader)
    for _ in range(90):
        next(iterator)
    state = loader.state_dict()
    fresh = SeekableStream(1000)
    resumed = DataLoader(fresh, 10)
    resumed.load_state_dict(state)
    assert next(iter(resumed))[0].tolist() == [900, 0]
    assert fresh.items_read <= 20


def test_single_items_resume() -> None:
    check_resume(lambda: DataLoader(Squares(7), None, shuffle=True, transform=draw_with_context))


@pytest.mark.parametrize("length", [0, 1, 3, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_small_datasets_resume(length, shuffle) -> None:
    check_resume(lambda: DataLoader(list(range(length)), 3, shuffle=shuffle))


def test_an_unseeded_run_goes_on_in_another_loader() -> None:
    loaders = [
        DataLoader(Squares(N), 4, shuffle=True, seed=None, transform=draw_with_context) for _ in range(3)
    ]
    orders = [[indices for indices, _ in loader.iter_with_indices()] for loader in loaders]
    assert orders[0] != orders[1]
    state = loaders[0].state_dict()
    loaders[2].load_state_dict(state)
    one, two = (
        [(i, b["draw"].tolist()) for i, b in loader.iter_with_indices()]
        for loader in (loaders[0], loaders[2])
    )
    assert one == two


def test_the_second_and_third_resume_of_an_epoch_continue_as_the_first() -> None:
    def make():
        return DataLoader(Squares(N), 2, shuffle=True, seed=1)

    loader = make()
    unbroken = [indices for _ in range(2) for indices, _ in loader.iter_with_indices()]
    found = []
    loader = make()
    steps = iter([3, 2, 0, 1, 5, 1, 0, 4, 30])
    while len(found) < len(unbroken):
        iterator = loader.iter_with_indices()
        for _ in range(next(steps)):
            batch = next(iterator, None)
            if batch is None:
                iterator = loader.iter_with_indices()
                batch = next(iterator)
            if len(found) < len(unbroken):
                found.append(batch[0])
        state = loader.state_dict()
        loader = make()
        loader.load_state_dict(state)
    assert found == unbroken


def test_a_checker_that_finds_nothing_would_be_worthless() -> None:
    class Forgetful(DataLoader):
        def load_state_dict(self, state):
            super().load_state_dict({**state, "position": max(0, state["position"] - 3)})

    with pytest.raises(AssertionError, match="resumed after batch 1 of epoch 0"):
        check_resume(lambda: Forgetful(Squares(N), 3))
