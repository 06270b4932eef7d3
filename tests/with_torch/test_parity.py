"""The drop-in against torch's own loader: equal batches wherever torch defines them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: scripts/test --all")

from torch.utils import data  # noqa: E402

from feedline.torch import DataLoader  # noqa: E402

Pair = namedtuple("Pair", ["x", "y"])


class Items(data.Dataset):
    """Items made by a function of the index."""

    def __init__(self, make, count: int) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index):
        if isinstance(index, (list, slice)):
            return (
                [self.make(i) for i in range(self.count)[index]]
                if isinstance(index, slice)
                else [self.make(i) for i in index]
            )
        return self.make(index)


class Together(Items):
    """Items that are fetched together."""

    def __getitems__(self, indices):
        return [self.make(index) for index in indices]


class Stream(data.IterableDataset):
    def __init__(self, count: int, sized: bool = False) -> None:
        self.count = count
        if sized:
            self.__class__ = SizedStream

    def __iter__(self):
        return iter([(torch.tensor(i), i) for i in range(self.count)])


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.count


def table(n: int) -> data.TensorDataset:
    return data.TensorDataset(torch.arange(n * 3.0).reshape(n, 3), torch.arange(n))


DATASETS = {
    "tensors": table,
    "one tensor": lambda n: data.TensorDataset(torch.arange(n, dtype=torch.int16)),
    "strided tensors": lambda n: data.TensorDataset(torch.arange(n * 6.0).reshape(3, n, 2).permute(1, 2, 0)),
    "tensors without a NumPy dtype": lambda n: data.TensorDataset(torch.arange(n).to(torch.bfloat16)),
    "subset": lambda n: data.Subset(table(2 * n), list(range(2 * n))[::-2]),
    "concatenated": lambda n: data.ConcatDataset([table(n - n // 2), table(max(n // 2, 1))]),
    "arrays": lambda n: Items(lambda i: np.full((2, 2), i, np.float32), n),
    "dicts": lambda n: Items(lambda i: {"x": np.ones(2) * i, "name": str(i), "n": i}, n),
    "named tuples": lambda n: Items(lambda i: Pair(torch.tensor(i), float(i)), n),
    "tuples of text": lambda n: Items(lambda i: (str(i), b"x", [i, (i, 2.0)]), n),
    "fetched together": lambda n: Together(lambda i: (i, np.int8(i % 100)), n),
    "list": lambda n: list(range(n)),
    "list of tensors": lambda n: [torch.tensor([float(i)]) for i in range(n)],
}


def same(one, other) -> bool:
    if isinstance(other, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(other, dict):
        return (
            type(one) is type(other)
            and list(one) == list(other)
            and all(same(one[k], other[k]) for k in other)
        )
    if isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def check_equal(make_dataset, epochs: int = 2, **options) -> None:
    """Compare whole epochs, and generators where there are any; `make` options are called once for each loader."""

    def arguments(dataset) -> dict:
        return {
            name: value(dataset) if getattr(value, "makes", False) else value
            for name, value in options.items()
        }

    theirs_data, ours_data = make_dataset(), make_dataset()
    torch.manual_seed(11)
    theirs = arguments(theirs_data)
    expected_loader = data.DataLoader(theirs_data, **theirs)
    expected = [list(expected_loader) for _ in range(epochs)]
    after = torch.get_rng_state()
    torch.manual_seed(11)
    ours = arguments(ours_data)
    loader = DataLoader(ours_data, **ours)
    before = torch.get_rng_state()
    found = [list(loader) for _ in range(epochs)]
    assert same(found, expected)
    if not isinstance(ours_data, data.IterableDataset):
        assert len(loader) == len(expected_loader)
    if "generator" in theirs:
        assert torch.equal(theirs["generator"].get_state(), ours["generator"].get_state())
    if getattr(options.get("sampler"), "draws_globally", False):
        assert torch.equal(torch.get_rng_state(), after)
    else:
        assert torch.equal(torch.get_rng_state(), before)


def made(function, draws_globally: bool = False):
    function.makes = True
    function.draws_globally = draws_globally
    return function


def generator(seed: int = 7):
    return made(lambda _: torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("n", [1, 7, 12])
def test_datasets_and_batch_sizes(name: str, n: int) -> None:
    for batch_size, drop_last in [(1, False), (4, False), (4, True), (50, False)]:
        if drop_last and n < batch_size:
            continue  # feedline warns, and is tested for it
        check_equal(lambda: DATASETS[name](n), batch_size=batch_size, drop_last=drop_last)


@pytest.mark.parametrize("name", DATASETS)
def test_datasets_in_torchs_own_shuffle(name: str) -> None:
    check_equal(lambda: DATASETS[name](12), epochs=3, batch_size=5, shuffle=True, generator=generator())


@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_generators_go_through_the_same_states(n: int, drop_last: bool, shuffle: bool) -> None:
    check_equal(
        lambda: table(n), epochs=3, batch_size=3, shuffle=shuffle, drop_last=drop_last, generator=generator()
    )


SAMPLERS = {
    "a list": [3, 1, 1, 0],
    "a range": range(5),
    "a tuple": (2, 4),
    "an array": np.array([5, 2, 0]),
    "a tensor": torch.tensor([5, 2, 0]),
    "sequential": made(data.SequentialSampler),
    "random": made(data.RandomSampler, draws_globally=True),
    "random, with a generator": made(
        lambda d: data.RandomSampler(d, generator=torch.Generator().manual_seed(1))
    ),
    "random, with replacement": made(
        lambda d: data.RandomSampler(
            d, replacement=True, num_samples=40, generator=torch.Generator().manual_seed(1)
        )
    ),
    "random, more than there are": made(lambda d: data.RandomSampler(d, num_samples=20), draws_globally=True),
    "weighted": made(lambda d: data.WeightedRandomSampler([1.0, 5.0, 2.0], 9), draws_globally=True),
    "weighted, with a generator": made(
        lambda d: data.WeightedRandomSampler([1.0, 5.0, 2.0], 9, generator=torch.Generator().manual_seed(1))
    ),
    "a random subset": made(lambda d: data.SubsetRandomSampler([7, 3, 5, 1]), draws_globally=True),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_samplers(name: str, batch_size: int | None) -> None:
    # With batch_size=None, torch gives the dataset a tensor's 0-d tensors as they are; feedline gives plain ints.
    dataset = "list" if name == "a tensor" else "arrays"
    check_equal(lambda: DATASETS[dataset](9), batch_size=batch_size, sampler=SAMPLERS[name])


@pytest.mark.parametrize("with_generator", [False, True])
@pytest.mark.parametrize("name", ["random", "random, with a generator", "weighted"])
def test_samplers_beside_a_generator_of_the_loader(name: str, with_generator: bool) -> None:
    options = {"generator": generator()} if with_generator else {}
    check_equal(lambda: table(9), epochs=3, batch_size=2, sampler=SAMPLERS[name], **options)


BATCH_SAMPLERS = {
    "lists": [[0, 2], [1], [3, 4, 5]],
    "tuples": [(0, 2), (1,)],
    "arrays": [np.array([0, 2]), np.array([1, 3])],
    "torch's": made(lambda d: data.BatchSampler(data.SequentialSampler(d), 4, False)),
    "torch's, random": made(
        lambda d: data.BatchSampler(
            data.RandomSampler(d, generator=torch.Generator().manual_seed(2)), 4, True
        )
    ),
}


@pytest.mark.parametrize("name", BATCH_SAMPLERS)
@pytest.mark.parametrize("dataset", ["tensors", "dicts", "fetched together"])
def test_batch_samplers(name: str, dataset: str) -> None:
    check_equal(lambda: DATASETS[dataset](9), batch_sampler=BATCH_SAMPLERS[name])


@pytest.mark.parametrize("dataset", ["tensors", "arrays", "dicts"])
def test_a_batch_sampler_as_sampler_gives_whole_lists_to_the_dataset(dataset: str) -> None:
    sampler = made(lambda d: data.BatchSampler(data.RandomSampler(d, generator=torch.Generator()), 4, False))
    check_equal(lambda: DATASETS[dataset](9), batch_size=None, sampler=sampler)


@pytest.mark.parametrize("collate_fn", [list, tuple, data.default_collate, lambda items: len(items)])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_collate_functions(collate_fn, batch_size: int | None) -> None:
    check_equal(lambda: DATASETS["fetched together"](7), batch_size=batch_size, collate_fn=collate_fn)


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("n", [0, 1, 6, 7])
@pytest.mark.parametrize(("batch_size", "drop_last"), [(None, False), (1, False), (3, False), (3, True)])
def test_streams(sized: bool, n: int, batch_size: int | None, drop_last: bool) -> None:
    if not (sized and n == 1 and drop_last):  # feedline warns then, and is tested for it
        check_equal(lambda: Stream(n, sized), batch_size=batch_size, drop_last=drop_last)
    if sized:
        assert len(DataLoader(Stream(n, True), batch_size, drop_last=drop_last)) == len(
            data.DataLoader(Stream(n, True), batch_size, drop_last=drop_last)
        )


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("rank", range(3))
def test_torchs_distributed_sampler_with_its_set_epoch(n: int, rank: int) -> None:
    def loader(kind):
        dataset = table(n)
        return kind(dataset, batch_size=2, sampler=data.DistributedSampler(dataset, 3, rank))

    theirs, ours = loader(data.DataLoader), loader(DataLoader)
    for epoch in (0, 1, 2, 1, 1, 0, 7):
        theirs.sampler.set_epoch(epoch)
        ours.sampler.set_epoch(epoch)
        assert len(ours) == len(theirs)
        assert same(list(ours), list(theirs))


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_in_threads_change_nothing(workers: int) -> None:
    options = {"worker_type": "thread"} if workers else {}
    expected = list(data.DataLoader(table(50), 4, shuffle=True, generator=torch.Generator().manual_seed(1)))
    loader = DataLoader(
        table(50), 4, shuffle=True, generator=torch.Generator().manual_seed(1), num_workers=workers, **options
    )
    assert same(list(loader), expected)


def test_torchs_errors_come_with_torchs_types() -> None:
    for dataset in ([np.ones(2), np.ones(3)], [{"a": 1}, {"b": 2}], [None, None]):
        with pytest.raises(Exception) as expected:
            list(data.DataLoader(dataset, 2))
        with pytest.raises(type(expected.value)):
            list(DataLoader(dataset, 2))


REFUSED = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"shuffle": True, "sampler": [0]},
    {"batch_sampler": [[0]], "batch_size": 2},
    {"batch_sampler": [[0]], "shuffle": True},
    {"batch_sampler": [[0]], "sampler": [0]},
    {"batch_sampler": [[0]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": -2},
    {"multiprocessing_context": "spawn"},
    {"num_workers": 1, "multiprocessing_context": "thread"},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_what_torch_refuses_is_refused(options) -> None:
    with pytest.raises(ValueError):
        data.DataLoader(table(3), **options)
    with pytest.raises(ValueError):
        DataLoader(table(3), **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}], ids=str)
def test_what_torch_refuses_for_streams_is_refused(options) -> None:
    with pytest.raises(ValueError):
        data.DataLoader(Stream(3), **options)
    with pytest.raises(ValueError):
        DataLoader(Stream(3), **options)


def test_lists_of_indices_that_do_not_fit_are_told_as_torch_tells_them() -> None:
    batches = [[0, 2], [1, 50], [-1, 0], [3, 4]]
    ours = iter(DataLoader(table(6), batch_size=None, sampler=batches))
    theirs = data.DataLoader(table(6), batch_size=None, sampler=[batches[0], batches[2], batches[3]])
    expected = list(theirs)
    found = [next(ours)]
    with pytest.raises(IndexError):
        next(ours)
    assert same(found + list(ours), expected)
