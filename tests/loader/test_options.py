"""What a loader is asked for is checked when it is built, and the message names it."""

from __future__ import annotations

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    OptionError,
    RandomSampler,
    SequentialSampler,
    Transform,
)
from feedline.loader.options import LoaderOptions
from loading import AsyncSquares, CountingStream, SeekableStream, Squares

INTEGERS = {
    "batch_size": 1,
    "num_workers": 0,
    "item_concurrency": 1,
    "prefetch_depth": 0,
    "prefetch_bytes": 1,
    "seed": 0,
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [2.5, "4", True, np.True_, [4], np.array([4, 5]), 4.0])
def test_what_is_no_integer_is_refused_by_name(name, value) -> None:
    # Of a number of workers, there is one text that is allowed.
    kind = OptionError if name == "num_workers" and isinstance(value, str) else TypeError
    with pytest.raises(kind, match=f"{name} must be an int"):
        DataLoader([1, 2], **{name: value})


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_out_of_range_is_an_option_error_by_name(name) -> None:
    with pytest.raises(OptionError, match=rf"{name} must be .*not {INTEGERS[name] - 1}"):
        DataLoader([1, 2], **{name: INTEGERS[name] - 1})


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array, int])
def test_whatever_is_an_integer_is_taken_as_one(name, kind) -> None:
    loader = DataLoader([1, 2], **{name: kind(4)})
    assert getattr(loader.options, name) == 4
    assert type(getattr(loader.options, name)) is int


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
def test_seeds_have_64_bits(seed) -> None:
    assert len(list(DataLoader(range(5), seed=seed, shuffle=True))) == 5
    with pytest.raises(OptionError, match=r"seed must be between 0 and 2\*\*64 - 1"):
        DataLoader(range(5), seed=2**64)


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "in_order", "reseed_globals"])
@pytest.mark.parametrize("value", [1, 0, "yes", None, np.int64(1)])
def test_flags_are_bools(name, value) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        DataLoader([1, 2], **{name: value})


def test_a_numpy_bool_is_a_bool() -> None:
    assert DataLoader([1, 2], shuffle=np.True_).options.shuffle is True


REFUSED = [
    ({"timeout": 0}, OptionError, "timeout must be a positive, finite number of seconds, not 0"),
    ({"timeout": -1.5}, OptionError, r"timeout must be .*not -1\.5"),
    ({"timeout": float("nan")}, OptionError, "timeout must be .*not nan"),
    ({"timeout": float("inf")}, OptionError, "timeout must be .*not inf"),
    ({"timeout": "3"}, TypeError, "timeout must be a number of seconds, not '3'"),
    ({"timeout": True}, TypeError, "timeout must be a number of seconds, not True"),
    ({"max_failures": -1}, OptionError, "max_failures must be at least 0, not -1"),
    ({"max_failures": 1.5}, OptionError, r"max_failures as a fraction must be between 0 and 1, not 1\.5"),
    ({"max_failures": float("nan")}, OptionError, "fraction must be between 0 and 1, not nan"),
    ({"max_failures": True}, TypeError, "max_failures must be an int, not True"),
    (
        {"on_error": "ignore"},
        OptionError,
        "on_error must be one of raise, skip, substitute or a callable, not 'ignore'",
    ),
    ({"on_error": None}, TypeError, "on_error must be a str or a callable, not NoneType"),
    ({"worker_type": "fiber"}, OptionError, "worker_type must be one of thread.*not 'fiber'"),
    ({"worker_type": None}, TypeError, "worker_type must be a str, not NoneType"),
    ({"collate_fn": 3}, TypeError, "collate_fn must be callable, not int"),
    ({"transform": 3}, TypeError, "a transform must be callable, not int 3"),
    (
        {"transform": Transform},
        TypeError,
        r"Transform is a class; a step is an instance: Transform\(\.\.\.\)",
    ),
    ({"transform": lambda a, b, c: a}, TypeError, "one required positional argument .* or two"),
    ({"transform": lambda *, key: key}, TypeError, "one required positional argument .* or two"),
    ({"transform": lambda: 3}, TypeError, "one required positional argument .* or two"),
    ({"sampler": 3}, TypeError, "sampler must have order.* or be iterable; int is neither"),
    ({"sampler": "abc"}, TypeError, "sampler must be a sampler or an iterable of indices, not 'abc'"),
    ({"sampler": {0: 1}}, TypeError, "sampler must be a sampler or an iterable of indices"),
    ({"sampler": RandomSampler}, TypeError, "sampler must be a sampler or an iterable of indices"),
    (
        {"sampler": BatchSampler(SequentialSampler(), 2)},
        OptionError,
        "is a batch sampler: pass it as batch_sampler=",
    ),
    ({"batch_sampler": SequentialSampler()}, TypeError, "batch_sampler must have batches"),
    ({"batch_sampler": "ab"}, TypeError, "batch_sampler must have batches"),
    ({"shuffle": True, "sampler": [0]}, OptionError, "shuffle=True and sampler= contradict each other"),
    (
        {"batch_sampler": [[0]], "sampler": [0]},
        OptionError,
        "batch_sampler= and sampler= contradict each other",
    ),
    ({"batch_sampler": [[0]], "shuffle": True}, OptionError, "batch_sampler= and shuffle= contradict"),
    ({"batch_sampler": [[0]], "drop_last": True}, OptionError, "batch_sampler= and drop_last= contradict"),
    ({"batch_sampler": [[0]], "batch_size": 2}, OptionError, "batch_sampler= and batch_size= contradict"),
    (
        {"batch_size": None, "drop_last": True},
        OptionError,
        r"drop_last=True without batches \(batch_size=None\)",
    ),
    (
        {"reseed_globals": True, "num_workers": 1},
        OptionError,
        r"reseed_globals=True with worker threads: .*draw from context\.rng",
    ),
    (
        {"reseed_globals": True, "item_concurrency": 2},
        OptionError,
        "reseed_globals=True with item_concurrency=2",
    ),
    (
        {"seed": None, "sampler": DistributedSampler(RandomSampler(1), 0, 2)},
        OptionError,
        "seed=None with world_size > 1: .*give all ranks one seed",
    ),
    ({"rank": 0, "world_size": 2}, OptionError, "a map-style loader never shards by itself"),
    ({"rank": 0}, OptionError, "rank= and world_size= go together; world_size is missing"),
    ({"world_size": 2}, OptionError, "rank= and world_size= go together; rank is missing"),
    ({"rank": 2, "world_size": 2}, OptionError, "rank must be below world_size=2, not 2"),
    ({"rank": -1, "world_size": 2}, OptionError, "rank must be at least 0, not -1"),
    ({"batchsize": 3}, TypeError, "batchsize"),
]


@pytest.mark.parametrize(
    ("options", "kind", "message"), REFUSED, ids=[str(options)[:50] for options, _, _ in REFUSED]
)
def test_refused_when_it_is_built(options, kind, message) -> None:
    with pytest.raises(kind, match=message):
        DataLoader([1, 2, 3], **options)


STREAM_REFUSED = [
    ({"shuffle": True}, r"shuffle= is not for streams: use feedline\.shuffle_buffer\(stream, size, seed\)"),
    ({"sampler": [1]}, "sampler= is not for streams: a stream has an order of its own"),
    ({"batch_sampler": [[1]]}, "batch_sampler= is not for streams"),
    (
        {"on_error": "substitute"},
        'on_error="substitute" is not for streams: a stream has no other items to take; use on_error="skip"',
    ),
    ({"max_failures": 0.5}, "a fraction of an epoch's items, and nobody knows how many"),
    ({"seed": None, "rank": 0, "world_size": 2}, "seed=None with world_size > 1"),
]


@pytest.mark.parametrize(("options", "message"), STREAM_REFUSED, ids=str)
def test_refused_for_streams(options, message) -> None:
    with pytest.raises(OptionError, match=message):
        DataLoader(CountingStream(5), **options)


def test_a_fraction_of_failures_is_for_streams_with_a_length() -> None:
    assert len(list(DataLoader(SeekableStream(5), max_failures=0.5))) == 5


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (None, "NoneType lacks __getitem__ and __len__"),
        (3, "int lacks __getitem__ and __len__"),
        ("rows.ndf", r"the dataset is the str 'rows\.ndf'; for a file use NdfDataset\(path\)"),
        (b"rows", "the dataset is the bytes"),
        (Squares, "the dataset is the class Squares; give an instance of it"),
        (IterableDataset, "the dataset is the class IterableDataset"),
        (type("Half", (), {"__getitem__": lambda self, index: index})(), "Half lacks __len__"),
    ],
)
def test_what_is_no_dataset_is_refused(dataset, message) -> None:
    with pytest.raises(TypeError, match=message):
        DataLoader(dataset)


def test_awaited_items_and_global_generators_do_not_go_together() -> None:
    with pytest.raises(OptionError, match="reseed_globals=True with an AsyncDataset"):
        DataLoader(AsyncSquares(3), reseed_globals=True)


def test_options_are_frozen_and_named() -> None:
    options = DataLoader([1], 3, shuffle=True).options
    with pytest.raises(AttributeError):
        options.batch_size = 4
    assert "batch_size" in LoaderOptions.names()


def test_a_loader_shows_what_differs_from_the_defaults() -> None:
    assert repr(DataLoader(ArrayDataset(np.zeros(3)), 3, shuffle=True, seed=2)) == (
        "DataLoader(ArrayDataset, batch_size=3, shuffle=True, seed=2)"
    )


def test_ranks_of_the_environment_are_for_streams_alone(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [batch.tolist() for batch in DataLoader(range(5), 5)] == [[0, 1, 2, 3, 4]]
    stream = DataLoader(CountingStream(5), 5)
    assert [indices for indices, _ in stream.iter_with_indices()] == [[1, 3]]
    assert [i for i, _ in DataLoader(CountingStream(5), 5, rank=0, world_size=1).iter_with_indices()] == [
        [0, 1, 2, 3, 4]
    ]
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(OptionError, match="RANK='1' but no WORLD_SIZE"):
        DataLoader(CountingStream(5), 5)
    assert len(DataLoader(range(5))) == 5
