"""What the drop-in takes, shows, remembers and refuses, beyond the batches themselves."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import pickle
import random
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: scripts/test --all")

from torch.utils import data  # noqa: E402

import feedline  # noqa: E402
import feedline.loader.delivery  # noqa: E402
from feedline.errors import OptionError, StateError  # noqa: E402
from feedline.loader.options import LoaderOptions  # noqa: E402
from feedline.torch import DataLoader  # noqa: E402


def table(n: int = 10) -> data.TensorDataset:
    return data.TensorDataset(torch.arange(n))


def values(batches) -> list:
    return [batch[0].tolist() for batch in batches]


def flat(loader) -> list:
    return [value for batch in values(loader) for value in batch]


# -- arguments


def test_arguments_stand_in_torchs_order_with_torchs_defaults() -> None:
    theirs = list(inspect.signature(data.DataLoader.__init__).parameters.values())
    ours = list(inspect.signature(DataLoader.__init__).parameters.values())
    for one, other in zip(theirs, ours):
        assert (one.name, one.kind, one.default) == (other.name, other.kind, other.default)


def test_every_option_of_feedlines_loader_is_taken() -> None:
    said_otherwise = {"timeout": "item_timeout"}
    values_of = {
        "batch_size": 2,
        "sampler": [0, 1],
        "drop_last": True,
        "seed": 3,
        "transform": lambda item: item,
        "num_workers": 1,
        "worker_type": "thread",
        "item_concurrency": 2,
        "prefetch_depth": 3,
        "prefetch_bytes": 10**6,
        "in_order": False,
        "on_error": "skip",
        "max_failures": 3,
        "timeout": 9.0,
        "pin_memory": True,
    }
    assert values_of.keys() <= set(LoaderOptions.names())
    arguments = {said_otherwise.get(name, name): value for name, value in values_of.items()}
    loader = DataLoader(table(), **arguments)
    for name, value in values_of.items():
        assert getattr(loader.options, name) == value


def test_a_builder_means_what_it_means_everywhere() -> None:
    loader = (
        DataLoader.builder(table())
        .batch_size(3)
        .shuffle(seed=2)
        .num_workers(1, "thread")
        .timeout(9.0)
        .build()
    )
    assert (loader.options.timeout, loader.timeout) == (9.0, 0)
    assert values(loader) == values(DataLoader(table(), 3, shuffle=True, seed=2))
    loader.close()


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        DataLoader(table(), nonsense=1)


REFUSED = [
    ({"generator": 3}, TypeError, "generator"),
    ({"generator": torch.Generator(), "sampler": feedline.RandomSampler(0)}, OptionError, "contradict"),
    ({"timeout": 3}, OptionError, "item_timeout"),
    ({"timeout": float("nan"), "num_workers": 1}, OptionError, "timeout"),
    ({"timeout": "3"}, TypeError, "timeout"),
    ({"prefetch_factor": 0, "num_workers": 1}, OptionError, "prefetch_factor"),
    ({"prefetch_factor": 2.0, "num_workers": 1}, TypeError, "prefetch_factor"),
    ({"prefetch_factor": 2, "prefetch_depth": 2, "num_workers": 1}, OptionError, "prefetch_depth"),
    ({"worker_init_fn": 3, "num_workers": 1}, TypeError, "worker_init_fn"),
    (
        {"worker_init_fn": print, "num_workers": 1, "worker_type": "thread"},
        OptionError,
        "worker_type='process'",
    ),
    ({"multiprocessing_context": "fork", "num_workers": 1}, OptionError, "never forks"),
    ({"multiprocessing_context": 3, "num_workers": 1}, TypeError, "multiprocessing_context"),
    (
        {"multiprocessing_context": "spawn", "num_workers": 1, "worker_type": "thread"},
        OptionError,
        "worker_type",
    ),
    ({"pin_memory_device": "cuda"}, OptionError, "pin_memory=True"),
    ({"pin_memory_device": 3}, TypeError, "pin_memory_device"),
    ({"persistent_workers": 3, "num_workers": 1}, TypeError, "persistent_workers"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_can_mean_nothing_is_refused_with_a_reason(options, error, message) -> None:
    with pytest.raises(error, match=message):
        DataLoader(table(), **options)


@pytest.mark.parametrize("context", ["spawn", "forkserver", multiprocessing.get_context("spawn")], ids=str)
def test_contexts_that_workers_amount_to_are_taken(context) -> None:
    loader = DataLoader(table(), num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is context


@pytest.mark.parametrize(
    ("num_workers", "factor", "waiting"), [(0, None, 0), (1, None, 1), (3, None, 3), (3, 1, 0), (2, 4, 6)]
)
def test_prefetch_factor_counts_batches_per_worker(num_workers, factor, waiting) -> None:
    loader = DataLoader(table(), num_workers=num_workers, prefetch_factor=factor)
    assert loader.options.prefetch_depth == waiting
    assert loader.prefetch_factor == (2 if num_workers and factor is None else factor)


def test_no_more_batches_than_prefetch_factor_says_are_begun() -> None:
    gate, asked = threading.Event(), []

    class Slow:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            asked.append(index)
            if index == 0:
                gate.wait(30)
            return index

    loader = DataLoader(Slow(), 1, num_workers=2, prefetch_factor=3, worker_type="thread", timeout=0.2)
    iterator = iter(loader)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        next(iterator)
    assert max(asked) == 5
    gate.set()
    # The batch that was waited for too long is still the next one.
    loader.timeout = 0
    for _ in range(100):
        try:
            assert next(iterator).tolist() == [0]
            break
        except RuntimeError:
            continue
    iterator.close()


def test_pin_memory_device_is_told_to_have_no_effect() -> None:
    with pytest.warns(UserWarning, match="deprecated"):
        DataLoader(table(), pin_memory=True, pin_memory_device="cuda")


# -- what frameworks look at


def test_attributes_are_torchs() -> None:
    sampler = data.SequentialSampler(range(10))
    for options in ({}, {"batch_size": None}, {"batch_size": 3, "drop_last": True}, {"sampler": sampler}):
        theirs, ours = data.DataLoader(table(), **options), DataLoader(table(), **options)
        for name in ("batch_size", "num_workers", "drop_last", "pin_memory", "timeout", "generator", "in_order",
                     "prefetch_factor", "persistent_workers", "worker_init_fn", "multiprocessing_context"):  # fmt: skip
            assert getattr(ours, name) == getattr(theirs, name), name
        assert len(ours) == len(theirs)
        assert list(ours.sampler) == list(theirs.sampler)
        assert len(ours.sampler) == len(theirs.sampler)
        if theirs.batch_sampler is None:
            assert ours.batch_sampler is None
        else:
            assert list(ours.batch_sampler) == list(theirs.batch_sampler)
    batches = [[0, 1], [2]]
    ours = DataLoader(table(), batch_sampler=batches)
    assert (ours.batch_sampler, ours.batch_size, ours.drop_last) == (batches, None, False)


def test_the_sampler_shows_the_next_epochs_order_and_sets_epochs() -> None:
    loader = DataLoader(table(), 3, shuffle=True, seed=4)
    for _ in range(2):
        shown = list(loader.sampler)
        assert [i for batch in loader.batch_sampler for i in batch] == shown
        assert flat(loader) == shown
    loader.sampler.set_epoch(0)
    assert loader.epoch == loader.sampler.epoch == 0


def test_a_loader_can_be_made_again_from_its_attributes() -> None:
    loader = DataLoader(table(), 3, sampler=data.SubsetRandomSampler([3, 1, 2], generator=torch.Generator()))
    names = [
        name
        for name in inspect.signature(data.DataLoader.__init__).parameters
        if name not in ("self", "shuffle")
    ]
    given = {name: getattr(loader, name) for name in names if name not in ("batch_sampler",)}
    assert values(DataLoader(**given)) == values(
        DataLoader(table(), 3, sampler=data.SubsetRandomSampler([3, 1, 2], generator=torch.Generator()))
    )
    given = {
        "dataset": loader.dataset,
        "batch_sampler": loader.batch_sampler,
        "collate_fn": loader.collate_fn,
    }
    assert len(values(DataLoader(**given))) == 1


def test_a_loader_pickles_with_its_position() -> None:
    for options in ({"shuffle": True}, {"shuffle": True, "generator": torch.Generator().manual_seed(2)}):
        loader = DataLoader(table(), 3, **options)
        iterator = iter(loader)
        next(iterator)
        copy = pickle.loads(pickle.dumps(loader))
        assert values(copy) == values(iterator)


# -- order and global state


def test_global_generators_are_left_alone() -> None:
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    loader = DataLoader(table(), 3, shuffle=True)
    values(loader)
    values(DataLoader(table(), 3, shuffle=True, generator=torch.Generator().manual_seed(1)))
    loader.load_state_dict(loader.state_dict())
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_without_a_generator_the_order_is_feedlines() -> None:
    expected = feedline.DataLoader(np.arange(10), 3, shuffle=True, seed=5)
    loader = DataLoader(table(), 3, shuffle=True, seed=5)
    for _ in range(3):
        assert values(loader) == [batch.tolist() for batch in expected]


def test_replaying_a_batch() -> None:
    loader = DataLoader(table(), 3, shuffle=True)
    epochs = [values(loader) for _ in range(2)]
    assert loader.batch_at(1, 2)[0].tolist() == epochs[1][2]
    with pytest.raises(TypeError, match="only goes forward"):
        DataLoader(table(), 3, shuffle=True, generator=torch.Generator()).batch_at(1, 2)


# -- epochs that others set


def test_a_distributed_sampler_advances_by_itself_and_obeys_whoever_sets_its_epoch() -> None:
    def loader(rank: int) -> DataLoader:
        return DataLoader(table(8), 2, sampler=data.DistributedSampler(table(8), 2, rank))

    one, two = loader(0), loader(1)
    epochs = [(flat(one), flat(two)) for _ in range(3)]
    assert all(sorted(a + b) == list(range(8)) for a, b in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    for _ in range(2):
        one.sampler.set_epoch(0)
        assert flat(one) == epochs[0][0]
    assert flat(one) == epochs[1][0]
    one.set_epoch(0)
    assert one.sampler.epoch == 0
    assert flat(one) == epochs[0][0]


def test_an_epoch_that_was_set_within_a_batch_sampler_is_heard() -> None:
    sampler = data.DistributedSampler(table(8), 2, 0)
    loader = DataLoader(table(8), batch_sampler=data.BatchSampler(sampler, 2, False))
    first = values(loader)
    values(loader)
    loader.batch_sampler.sampler.set_epoch(0)
    assert loader.epoch == 0
    assert values(loader) == first


def test_a_sampler_that_keeps_plain_ints_is_heard_when_the_number_is_another_one() -> None:
    class Sampler:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = int(epoch)

        def __iter__(self):
            return iter([self.epoch, self.epoch + 1])

        def __len__(self) -> int:
            return 2

    loader = DataLoader(range(20), 2, sampler=Sampler())
    assert [next(iter(loader)).tolist() for _ in range(3)] == [[0, 1], [1, 2], [2, 3]]
    loader.sampler.set_epoch(7)
    assert [next(iter(loader)).tolist() for _ in range(2)] == [[7, 8], [8, 9]]


def test_an_epoch_set_in_mid_pass_is_the_next_ones() -> None:
    loader = DataLoader(table(8), 2, sampler=data.DistributedSampler(table(8), 1, 0))
    first = values(loader)
    iterator = iter(loader)
    head = values([next(iterator)])
    loader.sampler.set_epoch(0)
    assert values(loader) == first
    again = DataLoader(table(8), 2, sampler=data.DistributedSampler(table(8), 1, 0))
    again.set_epoch(1)
    assert head + values(iterator) == values(again)


# -- resume


def random_loaders() -> dict:
    def seeded(kind, *arguments, **options):
        return kind(*arguments, generator=torch.Generator().manual_seed(3), **options)

    return {
        "feedline's order": lambda: DataLoader(table(), 3, shuffle=True),
        "a generator": lambda: seeded(DataLoader, table(), 3, shuffle=True),
        "a generator, last batch full": lambda: seeded(DataLoader, table(9), 3, shuffle=True),
        "a generator, drop_last": lambda: seeded(DataLoader, table(), 3, shuffle=True, drop_last=True),
        "a generator, threads": lambda: seeded(
            DataLoader, table(), 3, shuffle=True, num_workers=2, worker_type="thread"
        ),
        "a generator, in order": lambda: seeded(DataLoader, table(), 3),
        "a weighted sampler": lambda: DataLoader(
            table(), 3, sampler=seeded(data.WeightedRandomSampler, [1.0, 2, 3], 10)
        ),
        "two generators": lambda: seeded(
            DataLoader, table(), 3, sampler=data.RandomSampler(range(10), generator=torch.Generator())
        ),
        "a batch sampler": lambda: DataLoader(
            table(), batch_sampler=data.BatchSampler(seeded(data.RandomSampler, range(10)), 3, False)
        ),
        "a distributed sampler": lambda: DataLoader(
            table(), 3, sampler=data.DistributedSampler(table(), 1, 0)
        ),
    }


@pytest.mark.parametrize("name", random_loaders())
def test_every_position_resumes_exactly_and_the_following_epochs_are_the_same(name: str) -> None:
    make = random_loaders()[name]
    unbroken = make()
    epochs = [values(unbroken) for _ in range(3)]
    for received in range(len(epochs[1]) + 2):
        loader = make()
        values(loader)
        iterator = iter(loader)
        head = [next(iterator, None) for _ in range(received)]
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        found = [values(resumed) for _ in range(2)]
        if received >= len(epochs[1]):
            assert found[0] == epochs[2]
        else:
            assert values(head) + found[0] == epochs[1]
            assert found[1] == epochs[2]


def test_a_sampler_that_draws_from_the_global_generator_resumes_and_leaves_it_as_it_was() -> None:
    def make() -> DataLoader:
        return DataLoader(table(), 3, sampler=data.WeightedRandomSampler([1.0, 2, 3, 4], 10))

    torch.manual_seed(5)
    loader = make()
    iterator = iter(loader)
    head = values([next(iterator)])
    state = loader.state_dict()
    torch.rand(3)
    rest = values(iterator)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    resumed = make()
    resumed.load_state_dict(state)
    assert values(resumed) == rest
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    assert head + rest == values(data.DataLoader(table(), 3, sampler=loader.sampler))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("stream"),
        lambda state: state["stream"]["state"].pop("generators"),
        lambda state: state["stream"]["state"].update(generators=[]),
        lambda state: state["stream"]["state"].update(generators=["AAAA"]),
        lambda state: state["stream"]["state"].update(generators=["?"]),
        lambda state: state.update(stream=3),
    ],
)
def test_a_state_whose_generators_do_not_fit_is_refused_and_nothing_is_changed(spoil) -> None:
    loader = DataLoader(table(), 3, shuffle=True, generator=torch.Generator().manual_seed(1))
    before = loader.state_dict()
    state = json.loads(json.dumps(before))
    spoil(state)
    with pytest.raises(StateError):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_states_with_and_without_a_generator_do_not_mix() -> None:
    with_one = DataLoader(table(), 3, shuffle=True, generator=torch.Generator())
    without = DataLoader(table(), 3, shuffle=True)
    with pytest.raises(StateError, match="generators"):
        without.load_state_dict(with_one.state_dict())
    with pytest.raises(StateError, match="generators"):
        with_one.load_state_dict(without.state_dict())


def test_a_state_of_feedlines_own_loader_loads() -> None:
    dataset = feedline.ArrayDataset(np.arange(10))
    plain = feedline.DataLoader(dataset, 3, shuffle=True)
    iterator = iter(plain)
    next(iterator)
    loader = DataLoader(dataset, 3, shuffle=True)
    loader.load_state_dict(plain.state_dict())
    assert values(loader) == values(iterator)


# -- streams


class Stream(data.IterableDataset):
    def __init__(self, n: int, told: int | None = None) -> None:
        self.n = n
        self.told = n if told is None else told

    def __iter__(self):
        assert data.get_worker_info() is None
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.told


def test_a_stream_is_read_once_whatever_the_workers_and_not_dealt_out_unasked(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for workers in (0, 2):
        loader = DataLoader(Stream(7), 3, num_workers=workers, worker_type="thread")
        assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
        assert loader.sampler is None
        assert loader.batch_sampler is None
    shared = DataLoader(Stream(7), 3, rank=1, world_size=2)
    assert [batch.tolist() for batch in shared] == [[1, 3, 5]]


def test_a_stream_that_is_longer_than_it_says_is_told_of_where_somebody_has_asked() -> None:
    assert len(list(DataLoader(Stream(7, told=3), 3))) == 3
    loader = DataLoader(Stream(7, told=3), 3)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="too small"):
        assert len(list(loader)) == 3


# -- tensors out


def test_datasets_of_feedline_give_tensors() -> None:
    rows = feedline.ArrayDataset({"x": np.ones((5, 2), np.float32), "y": np.arange(5)})
    for options in ({}, {"num_workers": 2, "worker_type": "thread"}, {"transform": lambda item: item}):
        first = next(iter(DataLoader(rows, 2, **options)))
        assert {name: (part.dtype, part.tolist()) for name, part in first.items()} == {
            "x": (torch.float32, [[1, 1], [1, 1]]),
            "y": (torch.int64, [0, 1]),
        }


def test_rows_that_torch_has_no_dtype_for_are_refused_as_torch_refuses_them() -> None:
    rows = feedline.ArrayDataset(np.array(["2020-01-01"], "M8[D]"))
    with pytest.raises(TypeError):
        list(DataLoader(rows, 1))


def test_masks_come_as_tensors() -> None:
    sampler = feedline.DistributedSampler(feedline.SequentialSampler(), 1, 2, tail="mask")
    batches = list(DataLoader(table(3), 2, sampler=sampler))
    assert [type(batch) for batch in batches] == [feedline.MaskedBatch]
    assert batches[0].data[0].tolist() == [1, 0]
    assert batches[0].mask.tolist() == [True, False]
    assert batches[0].mask.dtype == torch.bool


def test_tensors_that_are_put_in_place_of_others_are_seen() -> None:
    dataset = table(4)
    loader = DataLoader(dataset, 4)
    list(loader)
    dataset.tensors = (torch.arange(4) + 10,)
    assert values(loader) == [[10, 11, 12, 13]]


def test_a_subclass_of_a_tensor_dataset_keeps_its_own_items() -> None:
    class Doubled(data.TensorDataset):
        def __getitem__(self, index):
            return tuple(part * 2 for part in super().__getitem__(index))

    assert values(DataLoader(Doubled(torch.arange(3)), 3)) == [[0, 2, 4]]


# -- page-locked memory


class Own:
    def __init__(self) -> None:
        self.is_pinned = False

    def pin_memory(self):
        pinned = Own()
        pinned.is_pinned = True
        return pinned


def test_without_cuda_pinning_changes_nothing() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    items = [{"x": torch.ones(2), "s": "a", "n": None}] * 2
    plain = next(iter(DataLoader(items, None)))
    pinned = next(iter(DataLoader(items, None, pin_memory=True)))
    assert type(plain) is type(pinned)
    assert torch.equal(plain["x"], pinned["x"])
    own = Own()
    assert next(iter(feedline.DataLoader([own], None, pin_memory=True))) is own


def test_pinning_keeps_structure_and_types_and_asks_objects_that_pin_themselves(monkeypatch) -> None:
    from collections import OrderedDict, namedtuple
    from dataclasses import dataclass

    point = namedtuple("point", ["x", "y"])

    class Row(dict):
        def __init__(self, *arguments, unit: str = "m") -> None:
            super().__init__(*arguments)
            self.unit = unit

    @dataclass(frozen=True)
    class Box:
        side: object
        name: str

    class Pinned(torch.Tensor):
        pass

    pinned = []

    def pin(tensor):
        pinned.append(tensor)
        return tensor.clone().as_subclass(Pinned)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    batch = {
        "point": point(torch.ones(2), "text"),
        "row": Row({"a": torch.tensor(1)}, unit="cm"),
        "ordered": OrderedDict(b=torch.zeros(0), a=None),
        "box": Box(torch.ones(1), "name"),
        "list": [torch.ones(1), b"bytes", 3],
        "tuple": (torch.ones(1),),
        "own": Own(),
        "array": np.ones(2),
    }
    loader = feedline.DataLoader([batch], None, pin_memory=True)
    for found in (next(iter(loader)), loader.batch_at(0, 0), next(loader.iter_with_indices())[1]):
        assert list(found) == list(batch)
        assert type(found["point"]) is point
        assert isinstance(found["point"].x, Pinned)
        assert found["point"].y == "text"
        assert type(found["row"]) is Row
        assert found["row"].unit == "cm"
        assert isinstance(found["row"]["a"], Pinned)
        assert found["row"]["a"].shape == ()
        assert type(found["ordered"]) is OrderedDict
        assert list(found["ordered"]) == ["b", "a"]
        assert found["ordered"]["a"] is None
        assert type(found["box"]) is Box
        assert isinstance(found["box"].side, Pinned)
        assert found["list"][1:] == [b"bytes", 3]
        assert isinstance(found["tuple"][0], Pinned)
        assert found["own"].is_pinned
        assert found["array"] is batch["array"]
    assert not isinstance(batch["point"].x, Pinned), "the batch that was given is left as it was"
    assert not batch["own"].is_pinned
