"""The drop-in's worker processes: what they know, how they begin, and that they change nothing."""

from __future__ import annotations

import random
from collections import namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: scripts/test --all")
pytest.importorskip("cloudpickle", reason="needs cloudpickle")

from torch.utils import data  # noqa: E402

from feedline.torch import DataLoader, get_worker_info  # noqa: E402

Pair = namedtuple("Pair", ["x", "y"])


class Facts(data.Dataset):
    """Items that tell who has made them."""

    def __init__(self) -> None:
        self.epoch = 0
        self.prepared: int | None = None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int):
        info = data.get_worker_info()
        assert info is get_worker_info()
        assert info is not None
        assert info.dataset is self
        assert info.seed == torch.initial_seed()
        return {
            "x": torch.full((2,), float(index), dtype=torch.bfloat16),
            "index": index,
            "worker": info.id,
            "workers": info.num_workers,
            "seed": info.seed,
            "prepared": self.prepared,
            "threads": torch.get_num_threads(),
            "drawn": (random.random(), np.random.rand(), torch.rand(()).item()),
            "epoch": self.epoch,
        }


def prepare(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.prepared = number + 100


def items_of(batches) -> list[dict]:
    """Return the single items of batches made by `collate_fn=list`."""
    return sorted((item for batch in batches for item in batch), key=lambda item: item["index"])


def test_workers_begin_and_know_what_torchs_do_and_see_what_was_changed_between_epochs() -> None:
    dataset = Facts()
    generator = torch.Generator().manual_seed(4)
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(4)))
    with DataLoader(
        dataset, 2, num_workers=2, collate_fn=list, worker_init_fn=prepare, generator=generator, timeout=100
    ) as loader:
        items = items_of(loader)
        assert [item["index"] for item in items] == list(range(12))
        for item in items:
            assert item["x"].dtype == torch.bfloat16
            assert item["x"].tolist() == [item["index"]] * 2
            assert item["workers"] == 2
            assert item["worker"] in (0, 1)
            assert item["seed"] == (seed + item["worker"]) % 2**63
            assert item["prepared"] == item["worker"] + 100
            assert item["threads"] == 1
        assert len({item["drawn"] for item in items}) == 12, "each draw is another one"
        # Another attribute: new workers, which see it.
        dataset.epoch = 5
        assert {item["epoch"] for item in items_of(loader)} == {5}


def test_batches_are_those_of_torchs_loader_and_resume_exactly() -> None:
    rows = [Pair({"x": torch.randn(50, 60), "y": np.float32(i)}, [i, f"n{i}"]) for i in range(20)]

    def check(found, expected) -> None:
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert type(one) is type(other)
            assert torch.equal(one.x["x"], other.x["x"])
            assert torch.equal(one.x["y"], other.x["y"])
            assert torch.equal(one.y[0], other.y[0])
            assert one.y[1] == other.y[1]

    expected = list(data.DataLoader(rows, 4, shuffle=True, generator=torch.Generator().manual_seed(1)))
    with DataLoader(
        rows, 4, shuffle=True, generator=torch.Generator().manual_seed(1), num_workers=2
    ) as loader:
        iterator = iter(loader)
        head = [next(iterator), next(iterator)]
        state = loader.state_dict()
        check(head + list(iterator), expected)
        loader.load_state_dict(state)
        check(list(loader), expected[2:])


def test_tensors_in_memory_are_gathered_as_a_whole_and_errors_come_with_their_batch() -> None:
    dataset = data.TensorDataset(torch.arange(3000.0).reshape(1000, 3), torch.arange(1000))
    with DataLoader(dataset, 100, sampler=[*range(300), 5000, *range(300, 600)], num_workers=2) as loader:
        batches = []
        iterator = iter(loader)
        with pytest.raises(IndexError):
            batches.extend(iterator)
        assert len(batches) == 3
        batches.extend(iterator)
        assert torch.equal(torch.cat([x for x, _ in batches[:3]]), dataset.tensors[0][:300])
        assert [len(y) for _, y in batches] == [100] * 3 + [100, 100, 1]


def test_what_can_not_be_pickled_is_told_with_what_to_do() -> None:
    class Locked(list):
        def __init__(self, values) -> None:
            import threading

            super().__init__(values)
            self.lock = threading.Lock()

    with (
        DataLoader(Locked([1, 2]), num_workers=1) as loader,
        pytest.raises(TypeError, match="worker_type='thread'"),
    ):
        list(loader)
