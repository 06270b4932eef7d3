"""Items that are begun by a call, and answers that are not watched: the same as the long way, to the last byte."""

from __future__ import annotations

import asyncio
import gzip
import threading
from typing import Any

import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.http import HttpDataset
from feedline.errors import FetchError
from feedline.loader.dataloader import DataLoader
from feedline.loader.execution.feeder import Feeder
from feedline.loader.execution.quick_feeder import QuickFeeder, make_feeder
from servers.fault_server import CLOSE, RESET, FaultServer, Hold, Request, redirect, respond

pytest.importorskip("pycurl", reason="pycurl is not installed")

QUICK = Retry(1, 0.001, 0.01)
BODY = b"hello"
KEPT = respond(BODY)
ANSWERS: dict[str, Any] = {
    "plain": KEPT,
    "empty": respond(b""),
    "large": respond(b"x" * 300_000),
    "no length": [b"HTTP/1.1 200 OK\r\n\r\nhello", CLOSE],
    "announced close": [respond(BODY, headers=["Connection: close"]), CLOSE],
    "gzip": respond(gzip.compress(BODY), headers=["Content-Encoding: gzip"]),
    "no content": respond(b"", 204, length="none"),
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early\r\nContent-Length: 3\r\n\r\n" + KEPT,
    "not found": respond(b"no", 404),
    "slow down": respond(b"", 503, ["Retry-After: 0"]),
    "cut": [respond(b"hel", length=5), CLOSE],
    "reset": RESET,
    "longer": respond(b"hello, world", length=5),
    "longer, then closed": [respond(b"hello, world", length=5, headers=["Connection: close"]), CLOSE],
    "too large": respond(b"x" * 400_001),
    "too large, chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + (b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n") * 8
    + b"0\r\n\r\n",
    "too large, encoded": respond(gzip.compress(b"\0" * 400_001), headers=["Content-Encoding: gzip"]),
    "redirect": redirect("/plain"),
    "nowhere": redirect(None),
}


def answer(request: Request) -> Any:
    return ANSWERS[request.target.lstrip("/").replace("%20", " ")]


def dataset_of(server: FaultServer, names: list[str]) -> HttpDataset:
    urls = [server.url("/" + name.replace(" ", "%20")) for name in names]
    return HttpDataset(urls, retry=QUICK, max_bytes=400_000, timeout=20)


def told(outcome: Any) -> Any:
    if not isinstance(outcome, FetchError):
        return outcome
    return outcome.kind, outcome.attempts, outcome.status, outcome.index, outcome.location, str(outcome)


@pytest.mark.parametrize("before", [0, 1], ids=["watched", "not watched"])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_loader_gives_the_item_or_the_error_that_awaiting_gives(name: str, before: int) -> None:
    """Servers are watched until they have kept a connection, as after the one plain item before."""
    names = ["plain"] * before + [name]

    async def awaited(dataset: HttpDataset) -> list[Any]:
        found = []
        for index in range(len(dataset)):
            try:
                found.append(await dataset[index])
            except FetchError as error:
                found.append(error)
        await dataset.aclose()
        return found

    def loaded(dataset: HttpDataset) -> list[Any]:
        found = []
        with DataLoader(dataset, batch_size=1, collate_fn=list) as loader, iter(loader) as batches:
            for _ in range(len(dataset)):
                try:
                    found.extend(next(batches))
                except FetchError as error:
                    found.append(error)
        return found

    with FaultServer(answer) as server:
        by_hand = asyncio.run(awaited(dataset_of(server, names)))
        asked = len(server.requests)
        by_loader = loaded(dataset_of(server, names))
        assert [told(item) for item in by_loader] == [told(item) for item in by_hand]
        assert len(server.requests) == 2 * asked


@pytest.mark.parametrize("before", [0, 1], ids=["watched", "not watched"])
@pytest.mark.parametrize("name", ["longer", "longer, then closed"])
def test_a_body_that_is_too_long_is_found_whether_its_server_is_watched_or_not(
    name: str, before: int
) -> None:
    async def fetch(dataset: HttpDataset) -> Any:
        for index in range(before):
            assert await dataset[index] == BODY
        with pytest.raises(FetchError) as caught:
            await dataset[before]
        await dataset.aclose()
        return caught.value

    with FaultServer(answer) as server:
        error = asyncio.run(fetch(dataset_of(server, ["plain"] * before + [name])))
    assert (error.kind, error.attempts) == ("truncated", 2)


def test_after_a_close_that_leaves_a_doubt_answers_are_watched_and_asked_for_once() -> None:
    async def fetch(dataset: HttpDataset) -> None:
        for index in range(len(dataset)):
            assert await dataset[index] == BODY
        await dataset.aclose()

    names = ["plain", *["announced close"] * 5, "plain"]
    with FaultServer(answer) as server:
        asyncio.run(fetch(dataset_of(server, names)))
    # The first answer was kept, so the next one was not watched: it alone has to be looked at again.
    assert len(server.requests) == len(names) + 1


def test_kept_answers_are_asked_for_once() -> None:
    with FaultServer(answer) as server:
        with DataLoader(
            dataset_of(server, ["plain"] * 200), 16, item_concurrency=8, collate_fn=list
        ) as loader:
            assert [item for batch in loader for item in batch] == [BODY] * 200
        assert len(server.requests) == 200


class Shouted(HttpDataset):
    async def __getitem__(self, index: Any) -> bytes:
        return (await super().__getitem__(index)).upper()


def test_items_of_a_subclass_are_awaited() -> None:
    with FaultServer(answer) as server:
        with DataLoader(Shouted([server.url("/plain")] * 4), 2, collate_fn=list) as loader:
            assert [item for batch in loader for item in batch] == [b"HELLO"] * 4


def test_only_items_that_need_no_limit_and_no_batch_are_begun_by_a_call() -> None:
    dataset = HttpDataset(["http://host/"])
    assert type(make_feeder(dataset, 4, 1, None)) is QuickFeeder
    assert type(make_feeder(dataset, 4, 1, 5.0)) is Feeder
    assert type(make_feeder(Shouted(["http://host/"]), 4, 1, None)) is Feeder


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_the_first_error_by_position_is_raised_and_what_comes_behind_it_is_dropped(concurrency: int) -> None:
    names = ["plain", "plain", "not found", "plain", "too large", "plain", "plain", "plain"]
    with FaultServer(answer) as server:
        dataset = dataset_of(server, names)
        with DataLoader(dataset, 4, item_concurrency=concurrency, collate_fn=list) as loader:
            batches = iter(loader)
            with pytest.raises(FetchError, match=r"item 2: .*status 404"):
                next(batches)
            with pytest.raises(FetchError, match=r"item 4: .*max_bytes"):
                next(batches)


def test_failed_items_are_left_out_or_replaced_as_for_every_dataset() -> None:
    names = ["plain", "not found", "plain", "cut", "large", "plain"]
    with FaultServer(answer) as server:
        dataset = dataset_of(server, names)
        with DataLoader(dataset, 3, item_concurrency=3, collate_fn=list, on_error="skip") as loader:
            assert [[len(item) for item in batch] for batch in loader] == [[5, 5], [300_000, 5]]
            assert [failure.index for failure in loader.failures] == [1, 3]


def test_leaving_a_loader_drops_its_requests_and_the_next_epoch_is_whole() -> None:
    never = threading.Event()
    hold = {"on": True}

    def held(request: Request) -> Any:
        number = int(request.target.rpartition("/")[2])
        return [Hold(never), KEPT] if hold["on"] and number >= 8 else KEPT

    with FaultServer(held) as server:
        dataset = HttpDataset([server.url(f"/{number}") for number in range(40)], timeout=20)
        with DataLoader(dataset, 4, num_workers=2, item_concurrency=4, collate_fn=list) as loader:
            batches = iter(loader)
            assert next(batches) == [BODY] * 4
            batches.close()
            hold["on"] = False
            assert [item for batch in loader for item in batch] == [BODY] * 40
        never.set()


def test_a_location_that_can_not_be_had_is_the_error_of_its_item() -> None:
    def locate(index: int) -> str:
        if index == 1:
            raise KeyError("no such name")
        return "http://127.0.0.1:1/" if index else "no url"

    dataset = HttpDataset.from_function(locate, 3, retry=Retry(0), timeout=5)
    with DataLoader(dataset, 1, item_concurrency=2, collate_fn=list) as loader, iter(loader) as batches:
        with pytest.raises(FetchError) as caught:
            next(batches)
        assert caught.value.kind == "location"
        with pytest.raises(KeyError, match="no such name"):
            next(batches)
        with pytest.raises(FetchError) as caught:
            next(batches)
        assert (caught.value.kind, caught.value.attempts) == ("connection", 1)
