"""Object stores under a loader: the contract of datasets, epochs on bad days, resume, and leaving early."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from feedline import DataLoader
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.object_store import ObjectStoreDataset
from feedline.errors import FetchError
from feedline.testing.dataset_contract import AsyncDatasetContract
from servers.s3_faults import FaultyStore, answer, cut, drop, hang, key_of, slow_down

obstore = pytest.importorskip("obstore", reason="obstore is not installed")
pytest_plugins = ("servers.object_store_fixtures",)

QUICK = Retry(3, 0.001, 0.01)


class TestObjectStoreDataset(AsyncDatasetContract):
    @pytest.fixture(autouse=True, params=["keys", "ranges", "template", "function"])
    def _folder(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        for index in range(7):
            (tmp_path / f"{index}.bin").write_bytes(bytes([index]) * 10)
        url, names = tmp_path.as_uri(), [f"{index}.bin" for index in range(7)]
        self.make_dataset = {
            "keys": lambda: ObjectStoreDataset(url, names),
            "ranges": lambda: ObjectStoreDataset(url, ranges=[(name, 2, 5) for name in names]),
            "template": lambda: ObjectStoreDataset.from_template(url, "{index}.bin", length=7),
            "function": lambda: ObjectStoreDataset.from_function(url, _name_of, 7),
        }[request.param]


def _name_of(index: int) -> str:
    return f"{index}.bin"


def dataset_of(store: FaultyStore, keys: list[str], **options: Any) -> ObjectStoreDataset:
    server = store.s3()
    return ObjectStoreDataset(server.url, keys, retry=QUICK, **{**server.options, **options})


def filled(store: FaultyStore, count: int) -> list[str]:
    keys = [f"{index:04}" for index in range(count)]
    store.objects.update({key: random.Random(key).randbytes(2_000) for key in keys})
    return keys


@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_an_epoch_on_a_bad_day_is_the_epoch_of_a_good_one(
    faulty_store: FaultyStore, num_workers: int
) -> None:
    keys = filled(faulty_store, 400)
    bad = [slow_down(), answer(500), drop(), cut(0.5, "reset"), cut(0.7, "close"), cut(0, "close")]
    chance = random.Random(11)
    for key in keys:
        for fault in bad:
            if chance.random() < 0.05:
                faulty_store.fail(key, fault)
    dataset = dataset_of(faulty_store, keys)
    options = {"shuffle": True, "seed": 5, "collate_fn": list, "batch_size": 32, "item_concurrency": 16}
    with DataLoader(dataset, num_workers=num_workers, **options) as loader:
        bad_day = list(loader)
    assert faulty_store.faults_left == 0
    with DataLoader(
        [faulty_store.objects[key] for key in keys], shuffle=True, seed=5, collate_fn=list, batch_size=32
    ) as loader:
        assert bad_day == list(loader)


def test_worker_processes_make_stores_of_their_own(tmp_path: Path) -> None:
    for index in range(24):
        (tmp_path / _name_of(index)).write_bytes(bytes([index]) * 3)
    dataset = ObjectStoreDataset.from_template(tmp_path.as_uri(), "{index}.bin", length=24)
    options: dict[str, Any] = {
        "shuffle": True,
        "seed": 3,
        "collate_fn": list,
        "batch_size": 4,
        "item_concurrency": 4,
    }
    with DataLoader(dataset, **options) as loader:
        here = list(loader)
    with DataLoader(dataset, num_workers=2, worker_type="process", **options) as loader:
        assert list(loader) == here


def test_resume_fetches_only_what_is_left(faulty_store: FaultyStore) -> None:
    keys = filled(faulty_store, 40)
    options: dict[str, Any] = {
        "shuffle": True,
        "seed": 5,
        "collate_fn": list,
        "batch_size": 8,
        "item_concurrency": 4,
    }
    with DataLoader(dataset_of(faulty_store, keys), **options) as loader:
        batches = iter(loader)
        first = [next(batches), next(batches)]
        state = loader.state_dict()
        whole = first + list(batches)
    faulty_store.requests.clear()
    with DataLoader(dataset_of(faulty_store, keys), num_workers=2, **options) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert first + rest == whole
    assert len(faulty_store.requests) == 24


def test_ranges_that_touch_come_by_one_request(faulty_store: FaultyStore) -> None:
    data = random.Random(1).randbytes(64 * 100)
    faulty_store.objects["shard"] = data
    server = faulty_store.s3()
    spans = [("shard", index * 100, index * 100 + 100) for index in range(64)]
    dataset = ObjectStoreDataset(server.url, ranges=spans, **server.options)
    with DataLoader(dataset, batch_size=16, collate_fn=list) as loader:
        assert [item for batch in loader for item in batch] == [data[start:end] for _, start, end in spans]
    assert len(faulty_store.requests) == 4
    with DataLoader(dataset, batch_size=16, collate_fn=list, item_concurrency=4) as loader:
        assert [item for batch in loader for item in batch] == [data[start:end] for _, start, end in spans]
    assert len(faulty_store.requests) == 4 + 64


def test_an_item_that_fails_is_skipped_and_told(faulty_store: FaultyStore) -> None:
    keys = filled(faulty_store, 20)
    keys[3] = "nowhere"
    faulty_store.fail(keys[5], *[slow_down()] * 10)
    with DataLoader(
        dataset_of(faulty_store, keys), batch_size=4, collate_fn=list, item_concurrency=4, on_error="skip"
    ) as loader:
        assert [len(batch) for batch in loader] == [3, 3, 4, 4, 4]
        failures = loader.failures
    assert [(failure.index, failure.location) for failure in failures] == [
        (3, "s3://b/nowhere"),
        (5, "s3://b/0005"),
    ]
    assert "there is no such object (NoSuchKey)" in failures[0].error


def test_an_error_belongs_to_its_batch(faulty_store: FaultyStore) -> None:
    keys = filled(faulty_store, 12)
    keys[6] = "nowhere"
    with DataLoader(
        dataset_of(faulty_store, keys), batch_size=4, collate_fn=list, item_concurrency=4
    ) as loader:
        batches = iter(loader)
        assert next(batches) == [faulty_store.objects[key] for key in keys[:4]]
        with pytest.raises(FetchError) as caught:
            next(batches)
        assert (caught.value.index, caught.value.kind) == (6, "not_found")
        assert next(batches) == [faulty_store.objects[key] for key in keys[8:]]


def test_a_loader_that_is_left_drops_its_requests(faulty_store: FaultyStore) -> None:
    keys = filled(faulty_store, 64)
    for key in keys[8:]:
        faulty_store.fail(key, hang())
    dataset = dataset_of(faulty_store, keys)
    with DataLoader(dataset, batch_size=8, collate_fn=list, item_concurrency=8, num_workers=2) as loader:
        assert next(iter(loader)) == [faulty_store.objects[key] for key in keys[:8]]
        deadline, pause = time.monotonic() + 30, threading.Event()  # the pause is never ended early
        while not any(key_of(request) in keys[8:] for request in faulty_store.requests):
            assert time.monotonic() < deadline
            pause.wait(0.001)
    faulty_store.released.set()
    assert faulty_store.wait_until_closed()
