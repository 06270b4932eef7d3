"""What holds for any length, batch size, sampler and number of workers."""

from __future__ import annotations

import json
import warnings
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline import ArrayDataset, DataLoader, DistributedSampler, RandomSampler
from loading import Squares, draw_with_context

lengths = st.one_of(st.integers(0, 40), st.sampled_from([0, 1, 7, 8, 9, 100]))
batch_sizes = st.one_of(st.integers(1, 12), st.sampled_from([101]))
workers = st.sampled_from([0, 0, 1, 3, 7])
seeds = st.integers(0, 2**64 - 1)


@settings(max_examples=80)
@given(lengths, batch_sizes, workers, st.booleans(), st.booleans(), seeds, st.booleans())
def test_as_many_batches_as_promised_all_full_but_the_last_and_every_index_once(
    length, batch_size, num_workers, drop_last, shuffle, seed, rows
) -> None:
    dataset = ArrayDataset(np.arange(length)) if rows else Squares(length)
    loader = DataLoader(
        dataset, batch_size, num_workers=num_workers, drop_last=drop_last, shuffle=shuffle, seed=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "drop_last=True leaves nothing")
        found = [indices for indices, _ in loader.iter_with_indices()]
    assert len(found) == len(loader) == (length // batch_size if drop_last else -(-length // batch_size))
    assert all(len(indices) == batch_size for indices in found[:-1])
    order = [index for indices in found for index in indices]
    assert len(set(order)) == len(order) == (length // batch_size * batch_size if drop_last else length)
    assert shuffle or order == list(range(len(order)))
    loader.close()


@settings(max_examples=40)
@given(st.integers(1, 60), batch_sizes, seeds, st.integers(0, 2**63), workers, st.integers(1, 4))
def test_batches_depend_on_nothing_but_seed_epoch_and_number(
    length, batch_size, seed, epoch, num_workers, concurrency
) -> None:
    def run(**options):
        loader = DataLoader(
            Squares(length), batch_size, shuffle=True, seed=seed, transform=draw_with_context, **options
        )
        loader.set_epoch(epoch)
        found = [(indices, batch["draw"].tolist()) for indices, batch in loader.iter_with_indices()]
        loader.close()
        return found, loader

    one, loader = run()
    two, _ = run(num_workers=num_workers, item_concurrency=concurrency, prefetch_depth=concurrency)
    assert one == two
    loader = DataLoader(Squares(length), batch_size, shuffle=True, seed=seed, transform=draw_with_context)
    number = epoch % len(one)
    assert loader.batch_at(epoch, number)["draw"].tolist() == one[number][1]


@settings(max_examples=60)
@given(st.integers(0, 30), batch_sizes, st.integers(0, 12), seeds, st.booleans())
def test_a_state_from_anywhere_goes_on(length, batch_size, stop, seed, drop_last) -> None:
    def make():
        return DataLoader(Squares(length), batch_size, shuffle=True, seed=seed, drop_last=drop_last)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "drop_last=True leaves nothing")
        loader = make()
        iterator = loader.iter_with_indices()
        for _ in range(stop):
            next(iterator, None)
        resumed = make()
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = [indices for indices, _ in iterator]
        again = [indices for indices, _ in resumed.iter_with_indices()]
        if not rest:
            rest = [indices for indices, _ in loader.iter_with_indices()]
        assert again == rest


@settings(max_examples=60)
@given(
    st.integers(0, 25),
    st.integers(1, 20),
    st.sampled_from(["pad", "drop", "exact", "mask"]),
    st.integers(1, 4),
)
def test_ranks_together_see_what_the_tail_promises(length, world_size, tail, batch_size) -> None:
    loaders = [
        DataLoader(
            Squares(length), batch_size, sampler=DistributedSampler(RandomSampler(1), rank, world_size, tail)
        )
        for rank in range(world_size)
    ]
    runs = [list(loader.iter_with_indices()) for loader in loaders]
    assert [len(run) for run in runs] == [len(loader) for loader in loaders]
    seen = Counter(index for run in runs for indices, _ in run for index in indices)
    if tail != "exact":
        assert len({len(run) for run in runs}) == 1
    if tail == "exact":
        assert seen == Counter(range(length))
    elif tail == "drop":
        assert sum(seen.values()) == length // world_size * world_size
        assert not seen or max(seen.values()) == 1
    else:
        assert set(seen) == set(range(length))
    if tail == "mask":
        real = Counter(i for run in runs for indices, batch in run for i, m in zip(indices, batch.mask) if m)
        assert real == Counter(range(length))
