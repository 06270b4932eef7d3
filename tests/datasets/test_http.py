"""Items over HTTP, from a server on loopback that answers as each test says."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.http import HttpDataset
from feedline.errors import FetchError, OptionError
from servers.fault_server import CLOSE, RESET, FaultServer, Hold, Request, Trickle, redirect, respond

pytest.importorskip("pycurl", reason="pycurl is not installed")

ONCE = Retry(0)
QUICK = Retry(2, 0.001, 0.01)
DATA = bytes(index % 251 for index in range(100_000))
DEADLINE = 60.0


def fetch(dataset: HttpDataset, index: int = 0) -> Any:
    """Return the item, or its error; the loop's connections are closed."""

    async def bounded() -> Any:
        async with asyncio.timeout(DEADLINE):
            try:
                return await dataset[index]
            except FetchError as error:
                return error
            finally:
                await dataset.aclose()

    return asyncio.run(bounded())


def item(answer: Any, target: str = "/item", **options: Any) -> bytes:
    with FaultServer(answer) as server:
        result = fetch(HttpDataset([server.url(target)], **{"retry": ONCE, **options}))
    assert isinstance(result, bytes), result
    return result


def failure(answer: Any, target: str = "/item?secret", **options: Any) -> tuple[FetchError, list[Request]]:
    with FaultServer(answer) as server:
        result = fetch(HttpDataset([server.url(target)], **{"retry": QUICK, **options}))
    assert isinstance(result, FetchError), result
    assert "secret" not in str(result)
    return result, server.requests


def in_turn(*answers: Any) -> Callable[[Request], Any]:
    """Give the answers one after another, and the last one for ever."""
    remaining = itertools.chain(answers, itertools.repeat(answers[-1]))
    lock = threading.Lock()

    def answer(request: Request) -> Any:
        with lock:
            return next(remaining)

    return answer


def test_an_item_is_the_body() -> None:
    assert item(respond(DATA)) == DATA
    assert item(respond(b"")) == b""


@pytest.mark.parametrize(
    "target",
    [
        "/a%2Fb",
        "/a%27b%28c%29",
        "/%3A%7E%2B",
        "/caf%c3%a9",
        "/%C3%A9?x=%c3",
        "/a+b",
        "//a//b/",
        "/a/../b/./c",
        "/..",
        "/?a=b=c&X-Amz-Signature=AbC%2fdEf%3D%3D&x=",
        "/p?",
        "/%zz%",
        "/a\\b^`{}|\"<>'",
        "/*",
    ],
)
def test_the_url_goes_out_byte_for_byte_also_after_a_redirect(target: str) -> None:
    def answer(request: Request) -> bytes:
        to = f"http://{request.header('host')}{target}"
        return redirect(to) if request.target == "/first" else respond(request.target.encode("latin-1"))

    assert item(answer, target) == target.encode()
    assert item(answer, "/first") == target.encode()
    assert item(answer, target + "#fragment") == target.encode()


def test_a_url_without_a_path_asks_for_the_root() -> None:
    answer: Callable[[Request], bytes] = lambda request: respond(request.target.encode())  # noqa: E731
    assert item(answer, "") == b"/"
    assert item(answer, "?a=%2f") == b"/?a=%2f"


def test_a_request_has_few_headers_and_the_users_own() -> None:
    with FaultServer(respond(b"x")) as server:
        fetch(HttpDataset([server.url()], {"X-Token": "t\xe9st", "X-Empty": ""}))
        fetch(HttpDataset([server.url()], {"User-Agent": "mine", "accept-encoding": "gzip"}))
    first, second = (dict(request.headers) for request in server.requests)
    assert first == {
        "Host": f"127.0.0.1:{server.port}",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": "feedline",
        "X-Token": "t\xe9st",
        "X-Empty": "",
    }
    assert second["User-Agent"] == "mine"
    assert second["accept-encoding"] == "gzip"
    assert "Accept-Encoding" not in second


def test_user_and_password_of_a_url_are_sent_as_basic_authentication() -> None:
    with FaultServer(respond(b"x")) as server:
        assert fetch(HttpDataset([server.url(user="us%20er:p%40ss@")], {"authorization": "Bearer x"})) == b"x"
    assert server.requests[0].header("authorization") == "Basic dXMgZXI6cEBzcw=="


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_headers_and_credentials_stay_at_their_origin(host: str) -> None:
    """Another port, and another name of the same machine, are other origins."""
    with FaultServer(respond(b"there")) as other:
        to = other.url("/there", host=host)
        with FaultServer(lambda request: redirect(to)) as server:
            dataset = HttpDataset(
                [server.url(user="u:p@"), server.url()], {"Authorization": "secret", "X-Key": "secret"}
            )
            assert [fetch(dataset, 0), fetch(dataset, 1)] == [b"there", b"there"]
    assert all(request.header("authorization") for request in server.requests)
    assert all(request.header("x-key") == "secret" for request in server.requests)
    for request in other.requests:
        assert request.header("authorization") is None
        assert request.header("x-key") is None
        assert request.header("host") == f"{host}:{other.port}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_with_the_headers(status: int) -> None:
    def answer(request: Request) -> bytes:
        return redirect("next?x", status) if request.target == "/a/first" else respond(b"ok")

    with FaultServer(answer) as server:
        assert fetch(HttpDataset([server.url("/a/first")], {"X-Key": "k"})) == b"ok"
    assert [request.target for request in server.requests] == ["/a/first", "/a/next?x"]
    assert [request.header("x-key") for request in server.requests] == ["k", "k"]
    assert {request.method for request in server.requests} == {"GET"}


def test_a_location_with_spaces_and_unicode_is_encoded() -> None:
    answer: Callable[[Request], bytes] = lambda request: (  # noqa: E731
        redirect("/a b/\u00fc") if request.target == "/" else respond(request.target.encode())
    )
    assert item(answer, "/") == b"/a%20b/%C3%BC"


def test_redirects_that_never_end_are_one_attempt() -> None:
    error, requests = failure(lambda request: redirect(request.target + "x"))
    assert (error.kind, error.attempts, len(requests)) == ("redirect", 1, 11)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "status"), (401, "denied"), (403, "denied"), (404, "not_found"), (304, "status")],
)
def test_a_lasting_status_is_one_request(status: int, kind: str) -> None:
    error, requests = failure(respond(b"", status, length="none" if status == 304 else None))
    assert (error.kind, error.status, error.attempts, len(requests)) == (kind, status, 1, 1)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_status_is_tried_again(status: int) -> None:
    with FaultServer(in_turn(respond(b"no", status), respond(b"no", status), respond(b"yes"))) as server:
        assert fetch(HttpDataset([server.url()], retry=QUICK)) == b"yes"
    error, requests = failure(respond(b"no", status))
    assert (error.kind, error.status, error.attempts, len(requests)) == ("status", status, 3, 3)
    assert "3 attempts" in str(error)


def test_waits_between_attempts_grow_and_differ_between_clients() -> None:
    with FaultServer(lambda request: respond(b"", 503)) as server:
        dataset = HttpDataset([server.url(f"/{number}") for number in range(2)], retry=Retry(3, 0.04, 10.0))
        assert [fetch(dataset, number).attempts for number in range(2)] == [4, 4]
    gaps = []
    for number in range(2):
        times = [request.arrived for request in server.requests if request.target == f"/{number}"]
        gaps.append([later - earlier for earlier, later in itertools.pairwise(times)])
    for waits in gaps:
        assert all(wait >= least for wait, least in zip(waits, [0.02, 0.04, 0.08], strict=True))
    assert gaps[0] != gaps[1]


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "abc", "", "9" * 4000, "Fri, 31 Dec 99999 23:59:59 GMT"])
def test_no_retry_after_loses_an_item(value: str) -> None:
    with FaultServer(in_turn(respond(b"", 429, [f"Retry-After: {value}"]), respond(b"ok"))) as server:
        assert fetch(HttpDataset([server.url()], retry=Retry(1, 0.001, 0.01))) == b"ok"
    assert len(server.requests) == 2


HALF = [respond(DATA[:50_000], length=100_000)]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([*HALF, RESET], id="half then reset"),
        pytest.param([*HALF, CLOSE], id="half then closed"),
        pytest.param([respond(DATA[:400], length=1000, headers=["Connection: close"]), CLOSE], id="not kept"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n", CLOSE], id="chunked without its end"),
        pytest.param([CHUNKED + b"5\r\nhel", CLOSE], id="chunk cut"),
        pytest.param([CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n"], id="chunk size no number"),
        pytest.param([respond(b"helloXXXXX", length=5)], id="longer, kept"),
        pytest.param(
            [respond(b"helloX", length=5, headers=["Connection: close"]), CLOSE], id="longer, not kept"
        ),
        pytest.param([respond(gzip.compress(DATA)[:-9], headers=["Content-Encoding: gzip"])], id="gzip cut"),
    ],
)
def test_a_body_that_is_too_short_or_too_long_is_a_fault_and_tried_again(broken: list[Any]) -> None:
    with FaultServer(in_turn(broken, broken, respond(DATA))) as server:
        assert fetch(HttpDataset([server.url()], retry=QUICK)) == DATA
    assert len(server.requests) == 3
    error, requests = failure(broken)
    assert (error.kind, error.attempts, len(requests)) == ("truncated", 3, 3)


def test_a_cut_body_says_what_came_and_what_was_promised() -> None:
    error, _ = failure([*HALF, RESET])
    assert "50000 of 100000 bytes" in str(error)
    assert "3 attempts" in str(error)
    assert error.location.endswith("/item")
    assert error.status == 200


def test_a_second_version_is_never_mixed_with_the_first() -> None:
    other = DATA[::-1]
    answer = in_turn(
        [respond(DATA[:50_000], length=100_000, headers=["ETag: 1"]), RESET],
        respond(other, headers=["ETag: 2"]),
    )
    assert item(answer, retry=QUICK) == other


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\nhello", CLOSE], id="no length, closed"),
        pytest.param([b"HTTP/1.0 200 OK\r\n\r\nhello", CLOSE], id="HTTP/1.0"),
        pytest.param(
            [CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n"], id="chunked with trailers"
        ),
        pytest.param(
            [CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n") + b"5\r\nhello\r\n0\r\n\r\n"]
        ),
        pytest.param(
            [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" + respond(b"hello")], id="1xx"
        ),
        pytest.param([respond(b"hello", headers=["Connection: close"]), CLOSE], id="announced close"),
        pytest.param([respond(gzip.compress(b"hello"), headers=["Content-Encoding: gzip"])], id="gzip"),
    ],
)
def test_whole_bodies_of_every_form_are_items(answer: Any) -> None:
    assert item(answer) == b"hello"


def test_a_status_without_content_is_an_empty_item() -> None:
    assert item(respond(b"", 204, length="none")) == b""


def test_a_part_that_nobody_asked_for_is_an_error() -> None:
    part = respond(b"x" * 100, 206, ["Content-Range: bytes 0-99/1000"])
    error, requests = failure(part)
    assert (error.kind, error.status, len(requests)) == ("status", 206, 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(CLOSE, id="closed without an answer"),
        pytest.param(RESET, id="reset without an answer"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-", RESET], id="reset in the headers"),
        pytest.param([b"hello, this is no HTTP\r\n\r\n", CLOSE], id="no HTTP"),
        pytest.param([respond(b"ok", headers=["Content-Length: 5"]), CLOSE], id="two lengths"),
    ],
)
def test_a_connection_that_breaks_is_tried_again(answer: Any) -> None:
    error, requests = failure([answer] if isinstance(answer, str) else answer)
    assert (error.kind, error.attempts, len(requests)) in {("connection", 3, 3), ("truncated", 3, 3)}
    with FaultServer(in_turn(answer, respond(b"ok"))) as server:
        assert fetch(HttpDataset([server.url()], retry=QUICK)) == b"ok"


def test_a_refused_connection_and_an_unknown_host_are_connection_errors() -> None:
    with FaultServer(respond(b"")) as server:
        refused = server.url("/x?secret", user="user:secret@")
    for url in (refused, "http://no-such-host.invalid/x?secret"):
        error = fetch(HttpDataset([url], retry=QUICK))
        assert (error.kind, error.attempts) == ("connection", 3)
        assert "secret" not in str(error)


def test_a_body_over_the_cap_is_refused_with_limit_and_size_and_not_tried_again() -> None:
    error, requests = failure(respond(b"x" * 1001), max_bytes=1000)
    assert (error.kind, error.attempts, len(requests)) == ("too_large", 1, 1)
    assert "max_bytes=1000" in str(error)
    assert "1001" in str(error)
    assert item(respond(b"x" * 1000), max_bytes=1000) == b"x" * 1000


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(respond(b"", length=1001), id="promised, nothing sent"),
        pytest.param(respond(b"x" * 1001, length=5000), id="promised, a little sent"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, id="not promised"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001, id="chunked"
        ),
    ],
)
def test_a_body_over_the_cap_is_not_waited_for(answer: bytes) -> None:
    error, requests = failure([answer, Hold(threading.Event())], max_bytes=1000, timeout=None)
    assert (error.kind, error.attempts, len(requests)) == ("too_large", 1, 1)


def test_an_error_page_that_never_ends_is_not_waited_for() -> None:
    page = respond(b"x" * 100_000, 404, length=10**9)
    error, _ = failure([page, Hold(threading.Event())], timeout=None)
    assert (error.kind, error.status, error.attempts) == ("not_found", 404, 1)


def endless(piece: bytes, sent: list[int], head: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Iterator[bytes]:
    yield head
    while True:
        yield piece
        sent.append(len(piece))


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_without_end_is_stopped_at_the_cap(chunked: bool) -> None:
    sent: list[int] = []
    piece = b"4000\r\n" + b"x" * 0x4000 + b"\r\n" if chunked else b"x" * 0x4000
    head = CHUNKED if chunked else b"HTTP/1.1 200 OK\r\n\r\n"
    error, _ = failure(lambda request: endless(piece, sent, head), max_bytes=100_000)
    assert (error.kind, error.attempts) == ("too_large", 1)
    # What the sockets' buffers hold is sent beyond the cap, no more.
    assert sum(sent) < 30_000_000


def test_a_compressed_bomb_is_stopped_at_the_cap() -> None:
    bomb = gzip.compress(b"\0" * 30_000_000)
    error, _ = failure(respond(bomb, headers=["Content-Encoding: gzip"]), max_bytes=100_000)
    assert error.kind == "too_large"
    assert "100000" in str(error)


def test_an_error_page_without_end_is_still_the_status() -> None:
    sent: list[int] = []
    head = b"HTTP/1.1 404 Not Found\r\n\r\n"
    error, _ = failure(lambda request: endless(b"x" * 0x4000, sent, head), max_bytes=100_000)
    assert (error.kind, error.status) == ("not_found", 404)


def test_an_unknown_coding_is_an_encoding_error() -> None:
    error, requests = failure(respond(b"x", headers=["Content-Encoding: zstd"]))
    assert (error.kind, len(requests)) == ("encoding", 1)


def test_an_attempt_that_takes_too_long_is_a_time_out_and_tried_again() -> None:
    never = threading.Event()
    with FaultServer(in_turn([Hold(never)], respond(b"ok"))) as server:
        assert fetch(HttpDataset([server.url()], timeout=0.2, retry=QUICK)) == b"ok"
    error, requests = failure([Hold(never)], timeout=0.05)
    assert (error.kind, error.attempts, len(requests)) == ("timeout", 3, 3)
    assert "0.05 s" in str(error)


def test_a_trickle_is_ended_by_the_limit_per_attempt_and_not_by_the_idle_limit() -> None:
    answer = [Trickle(respond(b"x" * 10_000), 0.01)]
    error, _ = failure(answer, timeout=0.4, read_timeout=30.0, retry=ONCE)
    assert (error.kind, error.attempts) == ("timeout", 1)


def test_silence_in_the_middle_of_a_body_is_ended_by_the_idle_limit() -> None:
    never = threading.Event()
    error, requests = failure([respond(b"x", length=2), Hold(never)], timeout=50.0, read_timeout=0.1)
    assert (error.kind, error.attempts, len(requests)) == ("timeout", 3, 3)
    assert "no byte came for 0.1 s" in str(error)


def test_a_kept_connection_is_used_again() -> None:
    with FaultServer(respond(b"x")) as server:
        dataset = HttpDataset([server.url()] * 5)

        async def main() -> None:
            for index in range(5):
                assert await dataset[index] == b"x"
            await dataset.aclose()

        asyncio.run(main())
    assert {request.connection for request in server.requests} == {1}


@pytest.mark.parametrize("closing", [CLOSE, RESET])
def test_a_kept_connection_that_the_server_closed_costs_no_attempt(closing: str) -> None:
    """The server closes after each answer, without saying so: a kept connection is looked at before it is used."""

    def answer(request: Request) -> Iterator[Any]:
        yield respond(b"x")
        yield closing

    with FaultServer(answer) as server:
        dataset = HttpDataset([server.url()] * 4, retry=ONCE)

        async def main() -> None:
            for index in range(4):
                assert await dataset[index] == b"x"
                deadline = asyncio.get_running_loop().time() + DEADLINE
                while server.connections and asyncio.get_running_loop().time() < deadline:
                    await asyncio.sleep(0.001)
            await dataset.aclose()

        asyncio.run(main())
    assert len(server.requests) == 4


def test_a_request_is_never_repeated_in_silence() -> None:
    """The second request on a connection gets no answer: it went out, so it counts as an attempt."""
    per_connection: dict[int, int] = {}

    def answer(request: Request) -> Any:
        per_connection[request.connection] = per_connection.get(request.connection, 0) + 1
        return respond(b"x") if per_connection[request.connection] == 1 else RESET

    with FaultServer(answer) as server:
        dataset = HttpDataset([server.url()] * 2, retry=ONCE)

        async def main() -> Any:
            assert await dataset[0] == b"x"
            try:
                return await dataset[1]
            except FetchError as error:
                return error
            finally:
                await dataset.aclose()

        error = asyncio.run(main())
    assert isinstance(error, FetchError)
    assert (error.kind, error.attempts) == ("connection", 1)
    assert len(server.requests) == 2


def test_bytes_that_nobody_asked_for_never_become_an_item() -> None:
    """After a whole answer the server sends another one, unasked, on the kept connection."""
    released = threading.Event()
    done = threading.Event()

    def answer(request: Request) -> Iterator[Any]:
        if request.target != "/first":
            yield respond(b"right")
            return
        yield respond(b"first")
        yield Hold(released)
        yield respond(b"WRONG")
        done.set()

    with FaultServer(answer) as server:
        dataset = HttpDataset([server.url("/first"), server.url("/second")], retry=ONCE)

        async def main() -> list[bytes]:
            first = await dataset[0]
            released.set()
            await asyncio.to_thread(done.wait, DEADLINE)
            second = await dataset[1]
            await dataset.aclose()
            return [first, second]

        assert asyncio.run(main()) == [b"first", b"right"]


def test_many_items_at_once_share_at_most_max_connections() -> None:
    count = 200
    with FaultServer(lambda request: respond(request.target.encode())) as server:
        dataset = HttpDataset([server.url(f"/{number}") for number in range(count)], max_connections=7)

        async def main() -> list[bytes]:
            async with asyncio.timeout(DEADLINE):
                items = await asyncio.gather(*(dataset[index] for index in range(count)))
            await dataset.aclose()
            return items

        assert asyncio.run(main()) == [f"/{number}".encode() for number in range(count)]
    assert len({request.connection for request in server.requests}) <= 7


def test_cancelling_an_item_drops_its_connection_and_nothing_else() -> None:
    never = threading.Event()

    def answer(request: Request) -> Any:
        return [Hold(never)] if request.target == "/slow" else respond(b"fast")

    with FaultServer(answer) as server:
        dataset = HttpDataset([server.url("/slow"), server.url("/fast")], retry=QUICK, max_connections=1)

        async def main() -> None:
            async with asyncio.timeout(DEADLINE):
                slow = asyncio.create_task(dataset[0])
                waiting = asyncio.create_task(dataset[0])
                fast = asyncio.create_task(dataset[1])
                while not server.requests:
                    await asyncio.sleep(0.001)
                waiting.cancel()
                slow.cancel()
                for task in (slow, waiting):
                    with pytest.raises(asyncio.CancelledError):
                        await task
                assert await fast == b"fast"
                await dataset.aclose()

        asyncio.run(main())
        never.set()
    assert [request.target for request in server.requests] == ["/slow", "/fast"]


def test_closing_ends_what_is_in_flight_and_the_dataset_works_again() -> None:
    never = threading.Event()
    with FaultServer(lambda request: [Hold(never)] if request.target == "/slow" else respond(b"x")) as server:
        dataset = HttpDataset([server.url("/slow"), server.url("/fast")], retry=ONCE)

        async def main() -> None:
            async with asyncio.timeout(DEADLINE):
                slow = asyncio.create_task(dataset[0])
                while not server.requests:
                    await asyncio.sleep(0.001)
                await dataset.aclose()
                with pytest.raises(FetchError, match="closed"):
                    await slow
                assert await dataset[1] == b"x"
                await dataset.aclose()
                await dataset.aclose()

        asyncio.run(main())


def test_requests_that_pass_leave_no_timers_with_the_loop() -> None:
    """Each has a limit of 30 seconds; one alarm serves them all."""
    timers: list[float] = []

    class Loop(asyncio.SelectorEventLoop):
        def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return super().call_at(when, *arguments, **options)

    with FaultServer(respond(b"x")) as server:
        dataset = HttpDataset([server.url()], read_timeout=20.0)

        async def main() -> None:
            await asyncio.gather(*(dataset[0] for _ in range(20)))
            kept = [asyncio.create_task(dataset[0]) for _ in range(500)]
            await asyncio.gather(*kept)
            await dataset.aclose()

        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(main())
    assert len(server.requests) == 520
    assert len(timers) < 100


@pytest.mark.usefixtures("nothing_left")
def test_closing_leaves_nothing_behind() -> None:
    with FaultServer(respond(b"x")) as server:
        dataset = HttpDataset([server.url(f"/{number}") for number in range(20)])

        async def main() -> None:
            await asyncio.gather(*(dataset[index] for index in range(20)))
            await dataset.aclose()

        asyncio.run(main())


@pytest.mark.usefixtures("nothing_left")
def test_loops_that_end_without_closing_leave_nothing_behind() -> None:
    with FaultServer(respond(b"x")) as server:
        dataset = HttpDataset([server.url()])
        for _ in range(5):
            assert asyncio.run(dataset[0]) == b"x"  # type: ignore[arg-type]
        del dataset


def test_one_dataset_serves_several_loops_in_several_threads() -> None:
    count = 40
    with FaultServer(lambda request: respond(request.target.encode())) as server:
        dataset = HttpDataset([server.url(f"/{number}") for number in range(count)])
        results: list[list[bytes]] = []

        async def main() -> None:
            items = await asyncio.gather(*(dataset[index] for index in range(count)))
            await dataset.aclose()
            results.append(items)

        threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    assert results == [[f"/{number}".encode() for number in range(count)]] * 4


def test_a_dataset_pickles_small_and_fetches_again() -> None:
    with FaultServer(respond(b"x")) as server:
        dataset = HttpDataset.from_template(server.url("/{index}"), length=10**6)
        assert fetch(dataset) == b"x"
        data = pickle.dumps(dataset)
        assert len(data) < 2000
        assert fetch(pickle.loads(data), -1) == b"x"
    assert server.requests[-1].target == "/999999"


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_connections_of_its_own() -> None:
    import os

    with FaultServer(lambda request: respond(str(request.connection).encode())) as server:
        dataset = HttpDataset([server.url()] * 2)

        async def main() -> None:
            mine = await dataset[0]
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    thread = threading.Thread(target=lambda: asyncio.run(child()))
                    thread.start()
                    thread.join(DEADLINE)
                    code = 0 if theirs and theirs[0] != mine else 2
                finally:
                    os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert await dataset[1] == mine
            await dataset.aclose()

        theirs: list[bytes] = []

        async def child() -> None:
            theirs.append(await dataset[0])
            await dataset.aclose()

        asyncio.run(main())


def test_locations_come_from_functions_and_templates_too() -> None:
    with FaultServer(lambda request: respond(request.target.encode())) as server:
        columns = {"split": ["train", "t\u00e9st"], "name": ["a/b", "c"]}
        dataset = HttpDataset.from_template(server.url("/{split}/{name}?i={index:03}"), columns)
        assert len(dataset) == 2
        assert [fetch(dataset, 0), fetch(dataset, -1)] == [b"/train/a%2Fb?i=000", b"/t%C3%A9st/c?i=001"]
        called = HttpDataset.from_function(
            lambda index: server.url(f"/{index}") if index else "no URL?secret", 3
        )
        assert fetch(called, 2) == b"/2"
    error = fetch(called, 0)
    assert (error.kind, error.attempts, error.index) == ("location", 0, 0)
    assert "secret" not in f"{error}{error.location}"


def test_a_dataset_shows_how_many_items_it_has_and_no_location() -> None:
    assert repr(HttpDataset(["http://u:p@host/?secret"] * 3)) == "HttpDataset(3 items)"


def test_an_index_out_of_range_is_an_index_error() -> None:
    dataset = HttpDataset(["http://host/"])
    for index in (1, -2):
        with pytest.raises(IndexError, match=str(index)):
            asyncio.run(dataset[index])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        (("http://host/",), TypeError, r"write \[URL\]"),
        ((["http://host/", "http://ho st/"],), OptionError, r"urls\[1\]"),
        ((["http://host/?secret secret"],), OptionError, "%20"),
        (([], [("a", "b")]), TypeError, "headers"),
        (([], {"a": 1}), TypeError, "str"),
        (([], {"a b": "1"}), OptionError, "'a b'"),
        (([], {"a": "1\r\nb: 2"}), OptionError, "'a'"),
        (([], {"a": "\u4e2d"}), OptionError, "Latin-1"),
        (([], {"A": "1", "a": "2"}), OptionError, "twice"),
        (([], {"Range": "bytes=0-9"}), OptionError, "ObjectStoreDataset"),
        (([], {"Content-Length": "3"}), OptionError, "no body"),
    ],
)
def test_mistakes_are_found_when_built(
    arguments: tuple[Any, ...], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named) as caught:
        HttpDataset(*arguments)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, OptionError),
        ({"timeout": -1.0}, OptionError),
        ({"timeout": "30"}, TypeError),
        ({"read_timeout": float("nan")}, OptionError),
        ({"max_bytes": 0}, OptionError),
        ({"max_bytes": 1.5}, TypeError),
        ({"max_bytes": True}, TypeError),
        ({"retry": 3}, TypeError),
        ({"retry": None}, TypeError),
        ({"max_connections": 0}, OptionError),
        ({"verify": None}, TypeError),
        ({"verify": 1}, TypeError),
        ({"verify": "/no/such/file.pem"}, OptionError),
    ],
)
def test_options_are_checked_by_name_when_built(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        HttpDataset([], **options)


def test_no_secret_shows_in_a_traceback_or_a_pickled_error() -> None:
    with FaultServer(in_turn(redirect("/x?secret"), respond(b"", 404))) as server:
        dataset = HttpDataset(
            [server.url("/item?secret=secret", user="user:secret@")], {"X-Key": "secret"}, retry=QUICK
        )
        error = fetch(dataset)
    shown = "".join(traceback.format_exception(error))
    assert "secret=" not in shown
    assert "user:" not in shown
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.status, again.index, again.attempts) == ("not_found", 404, 0, 1)
    assert again.location == error.location == server.url("/item")
    assert str(again) == str(error)
    assert b"secret" not in pickle.dumps(error)
