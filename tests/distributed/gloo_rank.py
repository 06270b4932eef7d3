"""One rank of a job over torch.distributed; run by tests, as `gloo_rank.py RANK WORLD_SIZE FOLDER WHAT`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler as TorchSampler
from torch.utils.data import TensorDataset

import feedline
from feedline.torch import DataLoader

rank, world_size, folder, what = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]


def on_all_ranks(value: object) -> list:
    gathered: list = [None] * world_size
    dist.all_gather_object(gathered, value)
    return gathered


def loader(n: int, tail: str, batch_size: int = 3, **options: object) -> DataLoader:
    # Neither rank nor world size is told: they are those of the process group.
    sampler = feedline.DistributedSampler(tail=tail)
    return DataLoader(TensorDataset(torch.arange(n)), batch_size, sampler=sampler, **options)


def real_rows(batch: object) -> list[int]:
    if isinstance(batch, feedline.MaskedBatch):
        return batch.data[0][batch.mask].tolist()
    return batch[0].tolist()


def check_tails() -> None:
    """All tails: the right items, and ranks that agree on two epochs without `set_epoch`."""
    for n, tail in product((0, 1, 3, 10, 41), ("pad", "drop", "exact", "mask")):
        epochs = []
        for batches in [list(one) for one in [loader(n, tail)] for _ in range(2)]:
            steps, ranks = zip(*on_all_ranks((len(batches), [real_rows(batch) for batch in batches])))
            assert tail == "exact" or len(set(steps)) == 1, (n, tail, steps)
            rows = sorted(row for one in ranks for batch in one for row in batch)
            if tail in ("exact", "mask"):
                assert rows == list(range(n)), (n, tail, rows)
            elif tail == "pad":
                assert set(rows) == set(range(n)), (n, tail, rows)
                assert len(rows) == -(-n // world_size) * world_size
            else:
                assert len(rows) == len(set(rows)) == n // world_size * world_size
            epochs.append(ranks)
        if n == 41:
            one = loader(n, tail)
            first, second = list(one), list(one)
            assert list(map(real_rows, first)) != list(map(real_rows, second)), (
                "epochs have orders of their own"
            )
            one.set_epoch(0)
            assert list(map(real_rows, one)) == list(map(real_rows, first))


def check_steps() -> None:
    """Equal lengths on all ranks, equal to what is delivered."""
    found = []
    for n, size, drop_last, workers in product(range(1, 41), (1, 3, 8), (False, True), (0, 2)):
        if drop_last and n < size * world_size:
            continue  # nothing is left there, and told with a warning
        for tail in ("pad", "mask"):
            one = loader(n, tail, size, drop_last=drop_last, num_workers=workers, worker_type="thread")
            delivered = sum(1 for _ in one)
            assert len(one) == delivered
            found.append(delivered)
            one.close()
    assert all(other == found for other in on_all_ranks(found))
    # A step over all ranks for each batch: with unequal numbers, it would never end.
    for batch in loader(22, "mask"):
        count = batch.mask.sum()
        dist.all_reduce(count)
        assert count > 0


def check_torchs_sampler() -> None:
    dataset = TensorDataset(torch.arange(12))
    one = DataLoader(dataset, 2, sampler=TorchSampler(dataset))
    epochs = [sorted(sum(on_all_ranks([x for [rows] in one for x in rows.tolist()]), [])) for _ in range(2)]  # noqa: RUF017
    assert epochs == [list(range(12))] * 2
    before = [rows.tolist() for [rows] in one]
    one.sampler.set_epoch(2)
    assert [rows.tolist() for [rows] in one] == before, "it went on to epoch 2 by itself"


class Bad:
    """Every seventh item can't be had."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> int:
        if index % 7 == 3:
            raise ValueError(f"item {index} is bad")
        return index


def check_failures() -> None:
    one = feedline.DataLoader(Bad(), 4, sampler=feedline.DistributedSampler(tail="exact"), on_error="skip")
    assert len(list(one)) > 0
    everywhere = feedline.gather_failures(one)
    assert sorted(failure.index for failure in everywhere) == [3, 10, 17, 24]
    assert len(one.failures) < 4
    assert all(other == everywhere for other in on_all_ranks(everywhere))
    # In a state that all ranks load, they are known to all, and are not counted twice.
    state = one.state_dict()
    state["failures"] = [failure.as_dict() for failure in everywhere]
    one.load_state_dict(on_all_ranks(state)[0])
    assert feedline.gather_failures(one) == everywhere


def save() -> None:
    """Stop in mid-epoch, after as many steps on every rank; every rank saves the state it has."""
    for tail in ("exact", "mask"):
        one = loader(50, tail, 2, seed=9)
        list(one)
        iterator = iter(one)
        rows = [row for _ in range(3) for row in real_rows(next(iterator))]
        seen = sum(on_all_ranks(rows), [])  # noqa: RUF017
        states = on_all_ranks(one.state_dict())
        assert all(state == states[0] for state in states), "any rank's state is every rank's"
        if rank == 0:
            (folder / f"{tail}.json").write_text(json.dumps({"state": states[0], "seen": seen}))


def resume() -> None:
    """Go on with another number of ranks: what was not seen comes exactly once."""
    for tail in ("exact", "mask"):
        saved = json.loads((folder / f"{tail}.json").read_text())
        one = loader(50, tail, 2, seed=9)
        one.load_state_dict(saved["state"])
        batches = list(one)
        steps, ranks = zip(
            *on_all_ranks((len(batches), [row for batch in batches for row in real_rows(batch)]))
        )
        assert tail == "exact" or len(set(steps)) == 1
        rest = [row for rows in ranks for row in rows]
        assert sorted(saved["seen"] + rest) == list(range(50)), (tail, saved["seen"], rest)
        following = sum(on_all_ranks([row for batch in one for row in real_rows(batch)]), [])  # noqa: RUF017
        assert sorted(following) == list(range(50))


dist.init_process_group(
    "gloo",
    init_method=f"file://{folder}/store-{what}-{world_size}",
    rank=rank,
    world_size=world_size,
    timeout=timedelta(seconds=60),
)
if what == "all":
    check_tails()
    check_steps()
    check_torchs_sampler()
    check_failures()
    save()
else:
    resume()
dist.barrier()
dist.destroy_process_group()
