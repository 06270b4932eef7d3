"""The builder hands every option on, under its own name."""

from __future__ import annotations

import inspect

import pytest

from feedline import DataLoader, OptionError
from feedline.loader.builder import LoaderBuilder
from feedline.loader.options import LoaderOptions

VALUES = {
    "batch_size": 7,
    "shuffle": True,
    "sampler": [0, 1],
    "batch_sampler": [[0, 1]],
    "drop_last": True,
    "seed": 9,
    "transform": str,
    "collate_fn": list,
    "num_workers": 2,
    "worker_type": "thread",
    "item_concurrency": 3,
    "prefetch_depth": 5,
    "prefetch_bytes": 100,
    "in_order": False,
    "on_error": "skip",
    "max_failures": 4,
    "timeout": 2.5,
    "reseed_globals": True,
}


@pytest.mark.parametrize("name", VALUES)
def test_each_option_is_handed_on(name) -> None:
    loader = getattr(DataLoader.builder([1, 2, 3]), name)(VALUES[name]).build()
    assert getattr(loader.options, name) == VALUES[name]
    others = [other for other in VALUES if other != name]
    assert all(
        getattr(loader.options, other) == getattr(LoaderOptions(), other)
        for other in others
        if other != "seed"
    )


def test_every_option_has_a_method() -> None:
    methods = {name for name, _ in inspect.getmembers(LoaderBuilder, inspect.isfunction)}
    missing = set(LoaderOptions.names()) - methods - {"world_size"}  # given beside the rank
    assert not missing


def test_a_chain_gives_what_the_constructor_gives() -> None:
    built = DataLoader.builder(range(10)).batch_size(3).shuffle(seed=4).num_workers(0).drop_last().build()
    made = DataLoader(range(10), 3, shuffle=True, seed=4, drop_last=True)
    assert built.options == made.options
    assert [b.tolist() for b in built] == [b.tolist() for b in made]


def test_the_last_word_counts_and_nothing_is_checked_before_the_end() -> None:
    builder = DataLoader.builder([1, 2, 3]).batch_size(0)
    with pytest.raises(OptionError, match="batch_size must be at least 1"):
        builder.build()
    assert builder.batch_size(2).build().options.batch_size == 2


def test_a_rank_of_a_stream() -> None:
    loader = DataLoader.builder(iter(range(6))).batch_size(3).rank(1, 2).build()
    assert [batch.tolist() for batch in loader] == [[1, 3, 5]]


def test_a_subclass_builds_itself() -> None:
    class Own(DataLoader):
        pass

    assert type(Own.builder([1]).build()) is Own
