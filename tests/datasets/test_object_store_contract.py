"""What an `ObjectStoreDataset` promises, held against every kind of store."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feedline.datasets.object_store import ObjectStoreDataset
from feedline.errors import FetchError
from servers.s3_faults import run_faulty_store
from servers.stores import StoreServer

obstore = pytest.importorskip("obstore", reason="obstore is not installed")
pytest_plugins = ("servers.object_store_fixtures",)

ODD_KEYS = [
    "plain",
    "in/a/folder.bin",
    "a%2Fb",
    "a%252Fb",
    "%2e%2e/b",
    "a b",
    " begins and ends with a space ",
    "a+b",
    "a&b=c;d",
    "a?b",
    "a#b",
    "a*b:c~d",
    "quote'\"()<>[]{}|^`",
    "é数据🎈",
    "...",
    "..a",
    "k" * 200,
]


def _memory() -> StoreServer:
    store = obstore.store.MemoryStore()
    return StoreServer(
        "memory", "memory:/", lambda key, data: obstore.put(store, key, data) and None, store=store
    )


def _local(folder: Path) -> StoreServer:
    store = obstore.store.LocalStore(folder)
    return StoreServer(
        "local", str(folder), lambda key, data: obstore.put(store, key, data) and None, folder.as_uri()
    )


@pytest.fixture(params=["memory", "local", "http", "s3", "azure", "gcs"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreServer]:
    if request.param == "memory":
        yield _memory()
    elif request.param == "local":
        yield _local(tmp_path)
    elif request.param == "http":
        with run_faulty_store() as web:
            yield web.http()
    else:
        yield request.getfixturevalue(f"{request.param}_emulator").place()


def dataset_of(server: StoreServer, *args: Any, **options: Any) -> ObjectStoreDataset:
    return ObjectStoreDataset(server.source, *args, **server.options, **options)


def fetch(dataset: ObjectStoreDataset, *indices: int) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(dataset[index] for index in indices), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_items_are_the_objects_bytes_in_any_order(server: StoreServer) -> None:
    contents = {f"item-{index}": bytes([index]) * (index * 1000) for index in range(5)}
    for key, data in contents.items():
        server.put(key, data)
    dataset = dataset_of(server, list(contents))
    assert len(dataset) == 5
    items = fetch(dataset, 3, 0, 4, 1, 2, 3, -1)
    assert [len(item) for item in items] == [3000, 0, 4000, 1000, 2000, 3000, 4000]
    assert items == [contents[f"item-{index}"] for index in (3, 0, 4, 1, 2, 3, 4)]
    assert all(type(item) is bytes for item in items)


def test_sixty_four_fetches_at_once_get_their_own_objects(server: StoreServer) -> None:
    for index in range(64):
        server.put(f"{index:02}", f"object {index}".encode() * 100)
    dataset = dataset_of(server, [f"{index:02}" for index in range(64)])
    assert fetch(dataset, *range(64)) == [f"object {index}".encode() * 100 for index in range(64)]


def test_a_key_is_an_opaque_string(server: StoreServer) -> None:
    for key in ODD_KEYS:
        server.put(key, key.encode())
    got = fetch(dataset_of(server, ODD_KEYS), *range(len(ODD_KEYS)))
    assert {key: item for key, item in zip(ODD_KEYS, got, strict=True) if item != key.encode()} == {}


def test_a_backslash_is_an_ordinary_character_except_on_azure(server: StoreServer) -> None:
    if server.name == "azure":
        with pytest.raises(ValueError, match="Azure takes it for '/'"):
            dataset_of(server, ["a\\b"])
        return
    server.put("a\\b", b"backslash")
    server.put("a/b", b"slash")
    assert fetch(dataset_of(server, ["a\\b"]), 0) == [b"backslash"]


def test_an_object_that_is_not_there_is_not_found(server: StoreServer) -> None:
    server.put("there", b"x")
    [error] = fetch(dataset_of(server, ["there", "not there"]), 1)
    assert isinstance(error, FetchError)
    assert isinstance(error, OSError)
    assert (error.kind, error.index, error.attempts) == ("not_found", 1, 1)
    assert error.location == f"{server.place}/not there"
    assert str(error).startswith(f"item 1: {server.place}/not there: there is no such object")
    assert error.__cause__ is None
    assert error.__context__ is None
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.kind, copy.index, copy.location) == (str(error), error.kind, 1, error.location)


def test_a_folder_of_keys_is_no_object(server: StoreServer) -> None:
    server.put("folder/key", b"x")
    [error, beyond] = fetch(dataset_of(server, ["folder", "folder/key/more"]), 0, 1)
    assert (error.kind, beyond.kind) == ("not_found", "not_found")


def test_ranges_are_half_open(server: StoreServer) -> None:
    data = bytes(range(200))
    server.put("object", data)
    spans = [(0, 200), (0, 1), (199, 200), (50, 150), (7, 7), (200, 200)]
    dataset = dataset_of(server, ranges=[("object", start, end) for start, end in spans])
    assert fetch(dataset, *range(len(spans))) == [data[start:end] for start, end in spans]


def test_an_empty_range_makes_no_request(server: StoreServer) -> None:
    assert fetch(dataset_of(server, ranges=[("not there", 5, 5)]), 0) == [b""]


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (5, 11, "goes past the object's end: it has 10 bytes"),
        (9, 1000, "goes past the object's end: it has 10 bytes"),
        (10, 11, "begins at or past the object's end"),
        (11, 12, "begins at or past the object's end"),
    ],
)
def test_a_range_past_the_end_is_an_error(server: StoreServer, start: int, end: int, message: str) -> None:
    server.put("object", bytes(10))
    [error] = fetch(dataset_of(server, ranges=[("object", start, end)]), 0)
    assert isinstance(error, FetchError)
    assert error.kind == "location"
    assert message in str(error)
    assert error.location == f"{server.place}/object[{start}:{end}]"


def test_a_range_of_an_empty_object_is_an_error(server: StoreServer) -> None:
    server.put("empty", b"")
    [error] = fetch(dataset_of(server, ranges=[("empty", 0, 1)]), 0)
    assert error.kind == "location"
    assert "past the object's end" in str(error)


def test_ranges_may_be_fetched_together(server: StoreServer) -> None:
    data = {key: bytes(range(200)) + key.encode() for key in ("one", "two")}
    for key, content in data.items():
        server.put(key, content)
    spans = [("one", 0, 10), ("two", 5, 9), ("one", 10, 30), ("one", 7, 7), ("two", 100, 203), ("one", 5, 15)]
    dataset = dataset_of(server, ranges=spans)
    get_many = dataset.__getitems__
    assert get_many is not None

    async def both(indices: list[int]) -> tuple[list[bytes], list[bytes]]:
        return await get_many(indices), [await dataset[index] for index in indices]

    together, one_by_one = asyncio.run(both([5, 0, 3, 1, -1, 2, 0, 4]))
    assert together == one_by_one
    assert all(type(item) is bytes for item in together)
    assert dataset_of(server, ["one"]).__getitems__ is None


def test_a_wrong_range_among_good_ones_is_told(server: StoreServer) -> None:
    server.put("k", bytes(100))
    dataset = dataset_of(server, ranges=[("k", 0, 10), ("k", 10, 20), ("k", 95, 101)])
    get_many = dataset.__getitems__
    assert get_many is not None

    async def fetch_all() -> list[bytes]:
        return await get_many([0, 1, 2])

    with pytest.raises(FetchError, match="it has 100 bytes") as caught:
        asyncio.run(fetch_all())
    assert (caught.value.index, caught.value.kind) == (2, "location")


def test_a_range_of_a_missing_object_is_not_found(server: StoreServer) -> None:
    server.put("there", b"x")
    [error] = fetch(dataset_of(server, ranges=[("not there", 0, 1)]), 0)
    assert error.kind == "not_found"


def test_an_object_may_have_max_bytes_and_not_one_more(server: StoreServer) -> None:
    server.put("full", bytes(1000))
    server.put("over", bytes(1001))
    fits, over = fetch(dataset_of(server, ["full", "over"], max_bytes=1000), 0, 1)
    assert fits == bytes(1000)
    assert isinstance(over, FetchError)
    assert (over.kind, over.index) == ("too_large", 1)
    assert "it has 1001 bytes, more than max_bytes=1000" in str(over)


def test_templates_and_functions_say_where_items_lie(server: StoreServer) -> None:
    for split in ("train", "test"):
        server.put(f"{split}/000007.bin", split.encode())
    columns = {"split": ["train", "test"], "number": [7, 7]}
    template = ObjectStoreDataset.from_template(
        server.source, "{split}/{number:06}.bin", columns, **server.options
    )
    assert fetch(template, 0, 1) == [b"train", b"test"]
    function = ObjectStoreDataset.from_function(
        server.source, lambda index: ("train/000007.bin", index, index + 2), 3, **server.options
    )
    assert fetch(function, 0, 1, 2) == [b"tr", b"ra", b"ai"]


def test_a_copy_that_went_through_a_pickle_fetches_the_same(server: StoreServer) -> None:
    server.put("key", b"value")
    dataset = dataset_of(server, ["key"], max_bytes=5)
    if server.name == "memory":
        with pytest.raises(
            TypeError, match=r"MemoryStore can't be sent to another process.*worker_type='thread'"
        ):
            pickle.dumps(dataset)
        return
    copy = pickle.loads(pickle.dumps(dataset))
    assert fetch(copy, 0) == [b"value"]
    assert (len(copy), repr(copy)) == (1, repr(dataset))


def test_one_dataset_serves_one_event_loop_after_another(server: StoreServer) -> None:
    server.put("key", b"value")
    dataset = dataset_of(server, ["key"])

    async def once() -> bytes:
        try:
            return await dataset[0]
        finally:
            await dataset.aclose()

    assert [asyncio.run(once()) for _ in range(3)] == [b"value"] * 3
