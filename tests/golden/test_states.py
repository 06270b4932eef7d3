"""States of version 1 load for ever: each file here was saved by a release, with what was to come."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    DistributedSampler,
    LengthBucketSampler,
    RandomSampler,
    WeightedSampler,
    shuffle_buffer,
)
from loading import Broken, SeekableStream

FOLDER = Path(__file__).parent / "states"
ROWS = ArrayDataset(np.arange(40))

LOADERS = {
    "in_order": lambda: DataLoader(ROWS, 6),
    "shuffled": lambda: DataLoader(ROWS, 6, shuffle=True, seed=11),
    "unseeded": lambda: DataLoader(ROWS, 6, shuffle=True, seed=None),
    "constant_memory": lambda: DataLoader(
        ROWS, 6, sampler=RandomSampler(3, memory="constant"), drop_last=True
    ),
    "weighted": lambda: DataLoader(ROWS, 6, sampler=WeightedSampler(np.arange(1.0, 41), 30, seed=2)),
    "rank": lambda: DataLoader(ROWS, 3, sampler=DistributedSampler(RandomSampler(5), 1, 4, tail="exact")),
    "chunks": lambda: DataLoader(ROWS, batch_sampler=BatchSampler(RandomSampler(5), 7)),
    "buckets": lambda: DataLoader(
        ROWS, batch_sampler=LengthBucketSampler(np.arange(1, 41), max_tokens=90, seed=3)
    ),
    "a_list": lambda: DataLoader(ROWS, 4, sampler=[5, 3, 1] * 6),
    "failures": lambda: DataLoader(Broken(40, bad=(4, 9, 30)), 6, shuffle=True, on_error="substitute"),
    "ahead": lambda: DataLoader(ROWS, 6, shuffle=True, in_order=False),
    "stream": lambda: DataLoader(SeekableStream(40), 6),
    "shuffled_stream": lambda: DataLoader(shuffle_buffer(SeekableStream(40), 7, seed=4), 6),
    "rank_of_a_stream": lambda: DataLoader(SeekableStream(40), 3, rank=1, world_size=3),
}


def items_of(batch):
    """The numbers that tell the items of a batch apart."""
    if isinstance(batch, tuple):
        return batch[0].tolist()
    return (batch["index"] if isinstance(batch, dict) else batch[:, 0]).tolist()


def told(iterator):
    return [[list(indices), items_of(batch)] for indices, batch in iterator]


def rest(loader):
    """Indices and items of the rest of this epoch and of the whole next one."""
    return [told(loader.iter_with_indices()) for _ in range(2)]


def saved(name):
    """What stands in the file of `name`, made now: a run of one epoch and three batches."""
    loader = LOADERS[name]()
    if name == "ahead":
        state = {**loader.state_dict(), "position": 6, "batch": 1, "ahead": [2, 4]}
        loader.load_state_dict(state)
        return {"state": state, "rest": rest(loader)}
    list(loader)
    iterator = loader.iter_with_indices()
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    return {"state": state, "rest": [told(iterator), told(loader.iter_with_indices())]}


@pytest.mark.parametrize("name", LOADERS)
def test_a_state_of_version_1_goes_on_as_it_did_when_it_was_saved(name) -> None:
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert document["state"]["version"] == 1
    loader = LOADERS[name]()
    loader.load_state_dict(document["state"])
    assert rest(loader) == document["rest"]


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "unseeded"])
def test_states_are_still_written_as_they_were(name) -> None:
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(saved(name))) == document


def test_every_file_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(LOADERS)
