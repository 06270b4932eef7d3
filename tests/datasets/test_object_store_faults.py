"""What becomes of an item when its store fails: tried again, or an error that says why; never wrong or mixed bytes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.object_store import ObjectStoreDataset
from feedline.errors import FetchError
from servers.emulator_processes import free_port
from servers.fault_server import CLOSE, Request
from servers.s3_faults import (
    Fault,
    FaultyStore,
    Steps,
    answer,
    cut,
    drop,
    endless,
    hang,
    key_of,
    raw,
    run_faulty_store,
    slow_down,
)
from servers.stores import StoreServer

pytest.importorskip("obstore", reason="obstore is not installed")
pytest_plugins = ("servers.object_store_fixtures",)

QUICK = Retry(3, 0.001, 0.01)
DATA = bytes(index % 251 for index in range(100_000))
OTHER = DATA[::-1]


@pytest.fixture(params=["s3", "http"])
def kind(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


def dataset_of(server: StoreServer, *args: Any, retry: Retry = QUICK, **options: Any) -> ObjectStoreDataset:
    return ObjectStoreDataset(server.source, *args, retry=retry, **{**server.options, **options})


def fetch(dataset: ObjectStoreDataset, index: int = 0) -> Any:
    """Return the item or its error; a fetch that hangs is an error of the test."""

    async def bounded() -> Any:
        async with asyncio.timeout(60):
            try:
                return await dataset[index]
            except FetchError as error:
                return error

    return asyncio.run(bounded())


def on(faulty_store: FaultyStore, kind: str) -> StoreServer:
    return faulty_store.s3() if kind == "s3" else faulty_store.http()


def test_three_slow_downs_and_then_the_object(faulty_store: FaultyStore, kind: str) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", slow_down(), slow_down(), slow_down())
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == DATA
    assert len(faulty_store.requests) == 4


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_status_is_tried_again_as_often_as_told(faulty_store: FaultyStore, status: int) -> None:
    faulty_store.fail("k", *[answer(status)] * 10)
    error = fetch(dataset_of(faulty_store.s3(), ["k"], retry=Retry(2, 0.001, 0.01)))
    assert (error.kind, error.status, error.attempts) == ("status", status, 3)
    assert len(faulty_store.requests) == 3
    assert f"item 0: s3://b/k: the store answered {status} " in str(error)
    assert "(3 attempts)" in str(error)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "status"),
        (401, "denied"),
        (403, "denied"),
        (404, "not_found"),
        (405, "status"),
        (410, "status"),
        (412, "status"),
    ],
)
def test_a_lasting_status_is_asked_once(
    faulty_store: FaultyStore, kind: str, status: int, expected: str
) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", answer(status, b"<Error><Code>OfTheTests</Code></Error>"))
    error = fetch(dataset_of(on(faulty_store, kind), ["k"]))
    assert (error.kind, error.status, error.attempts) == (expected, status, 1)
    assert len(faulty_store.requests) == 1
    assert "(OfTheTests)" in str(error)


def test_without_retries_one_failure_is_the_error(faulty_store: FaultyStore) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", slow_down())
    error = fetch(dataset_of(faulty_store.s3(), ["k"], retry=Retry(0)))
    assert (error.kind, error.status, error.attempts) == ("status", 503, 1)
    assert "(SlowDown)" in str(error)


@pytest.mark.parametrize("backoff", [(0.0, 0.0), (0.0, 1.0), (0.002, 0.001)])
def test_waits_of_nothing_are_allowed(faulty_store: FaultyStore, backoff: tuple[float, float]) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", slow_down(), slow_down())
    assert fetch(dataset_of(faulty_store.s3(), ["k"], retry=Retry(2, *backoff))) == DATA


@pytest.mark.parametrize("then", ["reset", "close"])
@pytest.mark.parametrize("ranges", [True, False], ids=["resumable", "not resumable"])
@pytest.mark.parametrize("etags", [True, False], ids=["etags", "no etags"])
def test_a_body_cut_short_is_completed_or_begun_anew(
    faulty_store: FaultyStore, kind: str, then: Any, ranges: bool, etags: bool
) -> None:
    faulty_store.supports_ranges, faulty_store.sends_etags = ranges, etags
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", cut(0.5, then), cut(0.3, then))
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == DATA


@pytest.mark.parametrize("then", ["reset", "close"])
def test_a_body_that_is_always_cut_short_is_an_error_with_its_key(
    faulty_store: FaultyStore, kind: str, then: Any
) -> None:
    faulty_store.supports_ranges = False
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", *[cut(0.5, then)] * 100)
    error = fetch(dataset_of(on(faulty_store, kind), ["k"], retry=Retry(2, 0.001, 0.01)))
    assert isinstance(error, FetchError)
    assert error.kind in ("truncated", "connection", "store")
    assert error.location.endswith("/k")
    assert error.attempts == 3
    # Each of the three tries is taken up at most twice.
    assert 3 <= len(faulty_store.requests) <= 9


@pytest.mark.parametrize("etags", [True, False], ids=["etags", "no etags"])
@pytest.mark.parametrize("then", ["reset", "close"])
def test_an_object_that_changes_between_two_tries_is_never_mixed(
    faulty_store: FaultyStore, kind: str, then: Any, etags: bool
) -> None:
    faulty_store.sends_etags = etags
    faulty_store.objects["k"] = DATA
    cut_in_half = cut(0.5, then)

    def cut_and_change(store: FaultyStore, request: Request) -> Steps:
        steps = list(cut_in_half(store, request))
        store.objects["k"] = OTHER
        return steps

    faulty_store.fail("k", cut_and_change)
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == OTHER


@pytest.mark.parametrize("length", [0, 10, 50_000])
def test_an_object_that_shrinks_between_two_tries_is_read_anew(
    faulty_store: FaultyStore, kind: str, length: int
) -> None:
    faulty_store.objects["k"] = DATA
    cut_in_half = cut(0.5, "close")

    def cut_and_shrink(store: FaultyStore, request: Request) -> Steps:
        steps = list(cut_in_half(store, request))
        store.objects["k"] = OTHER[:length]
        return steps

    faulty_store.fail("k", cut_and_shrink)
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == OTHER[:length]


@pytest.mark.parametrize(("status", "expected"), [(403, "denied"), (404, "not_found"), (410, "status")])
def test_a_lasting_answer_to_taking_up_a_body_is_the_error(
    faulty_store: FaultyStore, status: int, expected: str
) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", cut(0.5, "close"), answer(status))
    error = fetch(dataset_of(faulty_store.s3(), ["k"]))
    assert (error.kind, error.status, error.attempts) == (expected, status, 2)
    assert len(faulty_store.requests) == 2


def test_a_server_that_does_not_answer_is_a_timeout(faulty_store: FaultyStore, kind: str) -> None:
    faulty_store.fail("k", *[hang()] * 3)
    error = fetch(dataset_of(on(faulty_store, kind), ["k"], retry=Retry(1, 0.001, 0.01), timeout=0.2))
    assert (error.kind, error.attempts) == ("timeout", 2)
    assert "no whole answer in time" in str(error)


def test_a_body_that_stops_coming_is_taken_up_by_another_request(faulty_store: FaultyStore) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", cut(0.5, "hang"))
    assert fetch(dataset_of(faulty_store.s3(), ["k"], timeout=0.5)) == DATA
    assert [request.header("range") for request in faulty_store.requests] == [None, "bytes=50000-99999"]


def test_a_connection_closed_before_the_answer_is_tried_again(faulty_store: FaultyStore, kind: str) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", drop(), drop())
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == DATA
    faulty_store.fail("k", *[drop()] * 10)
    error = fetch(dataset_of(on(faulty_store, kind), ["k"]))
    assert (error.kind, error.attempts) == ("connection", 4)


def test_a_port_where_nobody_listens_is_a_connection_error() -> None:
    options = {"client_options": {"allow_http": True}}
    dataset = ObjectStoreDataset(f"http://127.0.0.1:{free_port()}/b", ["k"], retry=QUICK, **options)
    error = fetch(dataset)
    assert (error.kind, error.attempts) == ("connection", 4)
    assert "the connection was refused" in str(error)


def test_a_host_that_does_not_exist_is_a_connection_error() -> None:
    options = {"client_options": {"allow_http": True}}
    error = fetch(ObjectStoreDataset("http://no-such-host.invalid/b", ["k"], retry=Retry(0), **options))
    assert error.kind == "connection"
    assert "the host's name can't be resolved" in str(error)


def test_an_endpoint_without_tls_says_how_to_allow_it(faulty_store: FaultyStore) -> None:
    error = fetch(dataset_of(faulty_store.s3(), ["k"], client_options={}))
    assert error.kind == "store"
    assert 'client_options={"allow_http": True}' in str(error)


def test_an_answer_that_is_no_http_is_a_connection_error(faulty_store: FaultyStore) -> None:
    faulty_store.fail("k", raw(b"220 mail.example ESMTP\r\n\r\n", CLOSE))
    assert fetch(dataset_of(faulty_store.s3(), ["k"], retry=Retry(0))).kind == "connection"


def test_a_redirect_loop_is_an_error(faulty_store: FaultyStore) -> None:
    faulty_store.fail("k", *[answer(302, b"", "Location: /b/k")] * 100)
    error = fetch(dataset_of(faulty_store.s3(), ["k"]))
    assert error.kind == "redirect"
    assert len(faulty_store.requests) <= 11


def test_a_signature_does_not_follow_a_redirect_to_another_host(faulty_store: FaultyStore, kind: str) -> None:
    with run_faulty_store() as elsewhere:
        elsewhere.objects["k"] = DATA
        faulty_store.fail("k", answer(302, b"", f"Location: {elsewhere.endpoint}/b/k"))
        headers = {"Authorization": "Bearer of the tests", "Cookie": "a=b"} if kind == "http" else {}
        client = {"allow_http": True, "default_headers": headers}
        assert fetch(dataset_of(on(faulty_store, kind), ["k"], client_options=client)) == DATA
        assert faulty_store.requests[0].header("authorization") is not None
        [foreign] = elsewhere.requests
        assert (foreign.header("authorization"), foreign.header("cookie")) == (None, None)


def test_a_body_without_a_length_is_an_error_not_data(faulty_store: FaultyStore) -> None:
    faulty_store.fail("k", raw(b"HTTP/1.1 200 OK\r\n\r\nhalf of it", CLOSE))
    error = fetch(dataset_of(faulty_store.s3(), ["k"], retry=Retry(0)))
    assert error.kind == "store"
    assert "Content-Length" in str(error)


ERROR_DOCUMENT = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InternalError</Code><Message>x</Message></Error>'
)


def _error_with_200(*headers: str) -> Fault:
    return answer(200, ERROR_DOCUMENT, "Content-Type: application/xml", *headers)


def test_an_error_document_with_status_200_is_not_data(faulty_store: FaultyStore, kind: str) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", _error_with_200(), _error_with_200())
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == DATA
    faulty_store.fail("k", *[_error_with_200()] * 10)
    error = fetch(dataset_of(on(faulty_store, kind), ["k"]))
    assert (error.kind, error.attempts) == ("store", 4)
    assert "an error document (InternalError) came in the object's place" in str(error)


def test_an_object_that_is_an_error_document_is_data(faulty_store: FaultyStore, kind: str) -> None:
    faulty_store.objects["k"] = ERROR_DOCUMENT
    assert fetch(dataset_of(on(faulty_store, kind), ["k"])) == ERROR_DOCUMENT


def _partial(data: bytes, *headers: str) -> Fault:
    return answer(206, data, *headers)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (answer(200, DATA[:1000]), ""),
        (_partial(DATA[:100], "Content-Range: bytes 0-99/1000"), ""),
        (_partial(DATA[100:200]), ""),
        (_partial(DATA[100:150], "Content-Range: bytes 100-199/1000"), "50 of 100 bytes came"),
        (_partial(DATA[100:150], "Content-Range: bytes 100-149/1000"), ""),
        (_partial(DATA[100:600], "Content-Range: bytes 100-199/1000"), "500 bytes came for a range of 100"),
        (_partial(DATA[100:600], "Content-Range: bytes 100-599/1000"), ""),
        (_partial(b"--x\r\n\r\n", "Content-Type: multipart/byteranges; boundary=x"), ""),
    ],
    ids=["200 whole", "other range", "no range", "short", "told short", "long", "told long", "multipart"],
)
def test_a_wrong_answer_to_a_range_is_never_taken_for_the_slice(
    faulty_store: FaultyStore, kind: str, wrong: Fault, message: str
) -> None:
    faulty_store.objects["k"] = DATA[:1000]
    dataset = dataset_of(on(faulty_store, kind), ranges=[("k", 100, 200)], retry=Retry(0))
    faulty_store.fail("k", wrong)
    error = fetch(dataset)
    assert isinstance(error, FetchError)
    assert error.kind in ("store", "truncated")
    assert error.location.endswith("/k[100:200]")
    assert str(error).startswith(f"item 0: {error.location}: {message}")
    assert fetch(dataset) == DATA[100:200]


@pytest.mark.parametrize("then", ["reset", "close"])
def test_a_range_cut_short_is_completed(faulty_store: FaultyStore, kind: str, then: Any) -> None:
    faulty_store.objects["k"] = DATA
    faulty_store.fail("k", cut(0.5, then))
    assert fetch(dataset_of(on(faulty_store, kind), ranges=[("k", 1000, 90_000)])) == DATA[1000:90_000]


def test_an_object_over_the_cap_is_not_read(faulty_store: FaultyStore, kind: str) -> None:
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\nETag: "x"\r\n\r\n'
    faulty_store.fail("k", endless(head))
    error = fetch(dataset_of(on(faulty_store, kind), ["k"], max_bytes=1000))
    assert (error.kind, error.attempts) == ("too_large", 1)
    assert "it has 1000000000000 bytes, more than max_bytes=1000" in str(error)
    assert faulty_store.wait_until_closed()
    # What was on the way already: the buffers of both sides.
    assert faulty_store.zeros_sent < 32 * 1024 * 1024


def test_a_cancelled_fetch_drops_its_request(faulty_store: FaultyStore) -> None:
    faulty_store.fail("*", *[hang()] * 16, *[cut(0.5, "hang")] * 16)
    keys = [f"{index}" for index in range(32)]
    faulty_store.objects.update(dict.fromkeys(keys, DATA))
    dataset = dataset_of(faulty_store.s3(), keys)

    async def cancel_all() -> list[Any]:
        fetches = [asyncio.create_task(dataset[index]) for index in range(32)]
        async with asyncio.timeout(30):
            while len(faulty_store.requests) < 32:
                await asyncio.sleep(0)
        for task in fetches:
            task.cancel()
        return await asyncio.gather(*fetches, return_exceptions=True)

    assert {type(result) for result in asyncio.run(cancel_all())} == {asyncio.CancelledError}
    faulty_store.released.set()
    assert faulty_store.wait_until_closed()
    assert fetch(dataset) == DATA


def test_an_epoch_on_a_bad_day_delivers_every_object_right(faulty_store: FaultyStore, kind: str) -> None:
    keys = [f"{index:03}" for index in range(300)]
    contents = {key: random.Random(key).randbytes(20_000) for key in keys}
    faulty_store.objects.update(contents)
    bad = [
        slow_down(),
        answer(500),
        drop(),
        cut(0.5, "reset"),
        cut(0.9, "close"),
        cut(0, "close"),
        _error_with_200(),
    ]
    chance = random.Random(7)
    for key in keys:
        for fault in bad:
            if chance.random() < 0.05:
                faulty_store.fail(key, fault)
    faulty_store.fail("000", cut(0.5, "hang"))
    faulty_store.fail("001", hang())
    dataset = dataset_of(on(faulty_store, kind), keys, timeout=1.0)

    async def epoch() -> list[bytes]:
        gate = asyncio.Semaphore(32)

        async def one(index: int) -> bytes:
            async with gate:
                return await dataset[index]

        return await asyncio.gather(*(one(index) for index in range(len(keys))))

    items = asyncio.run(epoch())
    assert [item == contents[key] for key, item in zip(keys, items, strict=True)] == [True] * 300
    assert faulty_store.faults_left == 0
    assert max(Counter(key_of(request) for request in faulty_store.requests).values()) > 1
