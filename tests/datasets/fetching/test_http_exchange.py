"""What an HTTP fetch does next, without a network and without a clock that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from feedline.datasets.fetching.attempts import Failure, Wait, drive
from feedline.datasets.fetching.http_exchange import HttpRules, Reply, Send, http_fetch
from feedline.datasets.fetching.retry import Retry
from feedline.errors import FetchError

NOW = 1_700_000_000.0
LOST = Failure("connection", "the connection failed", passing=True)


class Headers:
    def __init__(self, *pairs: tuple[str, str]) -> None:
        self.headers = [(name.encode(), value.encode("utf-8")) for name, value in pairs]


def reply(status: int = 200, body: bytes = b"", *headers: tuple[str, str]) -> Reply:
    return Reply(status, Headers(*headers), body)


def moved(location: str, status: int = 302) -> Reply:
    return reply(status, b"", ("location", location))


class World:
    """Answers what is sent, and lets time pass only when somebody waits or an answer takes it."""

    def __init__(self, answer: Callable[[Send], Any] | list[Any], seconds_per_answer: float = 0.0) -> None:
        self._answer = answer
        self._seconds = seconds_per_answer
        self.time = 100.0
        self.sent: list[Send] = []
        self.waits: list[float] = []

    def fetch(self, url: str, retry: Retry = Retry(3, 1.0, 10.0), timeout: float | None = 30.0) -> bytes:
        rules = HttpRules(
            (b"X-Mine: 1", b"Authorization: Mine"), (b"A: b",), timeout, retry, lambda: self.time, lambda: NOW
        )
        return drive(http_fetch(url, 7, rules), self._perform)

    def failure(self, url: str = "http://host/a?secret", **options: Any) -> FetchError:
        with pytest.raises(FetchError) as caught:
            self.fetch(url, **options)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        return caught.value

    def _perform(self, step: Any) -> Any:
        if isinstance(step, Wait):
            self.waits.append(step.seconds)
            self.time += step.seconds
            return None
        self.sent.append(step)
        self.time += self._seconds
        return self._answer(step) if callable(self._answer) else self._answer[len(self.sent) - 1]


def test_a_body_is_returned_after_one_request() -> None:
    world = World([reply(200, b"data")])
    assert world.fetch("http://host/a") == b"data"
    assert len(world.sent) == 1
    assert world.waits == []


@pytest.mark.parametrize(("status", "body"), [(201, b"x"), (203, b"x"), (204, b""), (205, b"")])
def test_other_statuses_of_success_are_items(status: int, body: bytes) -> None:
    assert World([reply(status, body)]).fetch("http://host/") == body


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (206, "status"),
        (300, "status"),
        (304, "status"),
        (400, "status"),
        (401, "denied"),
        (403, "denied"),
        (404, "not_found"),
        (407, "denied"),
        (410, "not_found"),
        (416, "status"),
        (418, "status"),
        (600, "status"),
    ],
)
def test_a_lasting_status_fails_after_one_request(status: int, kind: str) -> None:
    world = World([reply(status)])
    error = world.failure()
    assert (error.kind, error.status, error.attempts, error.index) == (kind, status, 1, 7)
    assert error.location == "http://host/a"
    assert len(world.sent) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 501, 502, 503, 504, 507, 599])
def test_a_passing_status_is_tried_again_until_the_retries_are_used_up(status: int) -> None:
    world = World([reply(status)] * 4)
    error = world.failure()
    assert (error.kind, error.status, error.attempts) == ("status", status, 4)
    assert [1, 2, 4] >= world.waits >= [0.5, 1, 2]
    assert "4 attempts" in str(error)


def test_no_retries_means_one_request() -> None:
    world = World([LOST])
    assert world.failure(retry=Retry(0)).attempts == 1
    assert world.waits == []


def test_a_passing_failure_then_success_is_an_item() -> None:
    world = World([LOST, reply(503), Failure("truncated", "cut", passing=True), reply(200, b"whole")])
    assert world.fetch("http://host/") == b"whole"


def test_a_lasting_failure_is_not_tried_again() -> None:
    world = World([Failure("connection", "the TLS handshake failed")])
    assert world.failure().attempts == 1


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([("retry-after", "3")], 3.0),
        ([("retry-after", "0")], 0.0),
        ([("retry-after", "Tue, 14 Nov 2023 22:13:25 GMT")], 5.0),
        ([("retry-after", "Tue, 14 Nov 2000 22:13:25 GMT")], 0.0),
        ([("retry-after", "86400")], 10.0),
        ([("retry-after", "9" * 5000)], 10.0),
        ([("retry-after", "2"), ("retry-after", "4")], 4.0),
        ([("retry-after", "soon")], None),
        ([("retry-after", "-5")], None),
        ([("retry-after", "1.5")], None),
        ([("retry-after", "")], None),
        ([("retry-after", "Fri, 31 Dec 99999 23:59:59 GMT")], None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured_where_it_can_be_read(
    status: int, headers: list[tuple[str, str]], wait: float | None
) -> None:
    world = World([reply(status, b"", *headers), reply(200, b"ok")])
    assert world.fetch("http://host/") == b"ok"
    if wait is None:
        assert 0.5 <= world.waits[0] <= 1.0
    else:
        assert world.waits == [wait]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_byte_for_byte(status: int) -> None:
    world = World([moved("/b%2f../?x=%27&y", status), reply(200, b"ok")])
    assert world.fetch("http://host/a") == b"ok"
    assert world.sent[1].url.address == "http://host/b%2f../?x=%27&y"


def test_ten_redirects_are_followed_and_an_eleventh_is_not() -> None:
    def counted(limit: int) -> Callable[[Send], Reply]:
        def answer(step: Send) -> Reply:
            hop = int(step.url.target[1:])
            return reply(200, b"end") if hop == limit else moved(f"/{hop + 1}")

        return answer

    assert World(counted(10)).fetch("http://host/0") == b"end"
    world = World(counted(11))
    error = world.failure("http://host/0")
    assert (error.kind, error.attempts, len(world.sent)) == ("redirect", 1, 11)


@pytest.mark.parametrize(
    "answer",
    [
        moved("/a?secret"),
        moved("#top"),
        reply(302),
        reply(302, b"", ("location", "")),
        reply(302, b"", ("location", "/x"), ("location", "/y")),
        moved("ftp://host/x?secret"),
        moved("http://user:secret@host:99999/"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_a_lasting_error(answer: Reply) -> None:
    world = World([answer])
    error = world.failure("http://host/a?secret")
    assert (error.kind, error.status, len(world.sent)) == ("redirect", 302, 1)


def test_a_loop_of_two_is_a_lasting_error() -> None:
    world = World(lambda step: moved("/b" if step.url.target == "/a" else "/a"))
    assert world.failure("http://host/a").kind == "redirect"
    assert len(world.sent) == 2


def test_a_redirect_from_https_to_http_is_refused_and_the_other_way_followed() -> None:
    assert World([moved("http://host/")]).failure("https://host/a").kind == "redirect"
    assert World([moved("https://host/"), reply(200, b"ok")]).fetch("http://host/a") == b"ok"


def headers_of(step: Send) -> list[bytes]:
    return [line for line in step.headers if line != b"A: b"]


MINE = [b"X-Mine: 1", b"Authorization: Mine"]


@pytest.mark.parametrize(
    ("location", "kept"),
    [
        ("/b", True),
        ("b", True),
        ("http://host/b", True),
        ("http://HOST:80/b", True),
        ("http://host:81/b", False),
        ("http://other/b", False),
        ("https://host/b", False),
        ("//other/b", False),
        ("http://host.evil/b", False),
    ],
)
def test_headers_go_to_their_origin_only(location: str, kept: bool) -> None:
    world = World([moved(location), reply()])
    world.fetch("http://host/a")
    assert headers_of(world.sent[0]) == MINE
    assert headers_of(world.sent[1]) == (MINE if kept else [])


def test_headers_dropped_at_a_foreign_origin_stay_dropped_until_the_next_attempt() -> None:
    world = World([moved("http://other/"), moved("http://host/b"), LOST, reply()])
    world.fetch("http://host/a")
    assert [headers_of(step) for step in world.sent] == [MINE, [], [], MINE]
    assert world.sent[3].url.target == "/a"


def test_user_and_password_go_to_their_origin_only() -> None:
    basic = b"Authorization: Basic dTpw"
    world = World(
        [moved("/b"), moved("http://host/c"), moved("http://other/"), moved("http://host/d"), reply()]
    )
    world.fetch("http://u:p@host/a")
    assert [basic in step.headers for step in world.sent] == [True, True, True, False, False]
    assert all(b"Authorization: Mine" not in step.headers for step in world.sent)


def test_a_password_in_a_location_goes_to_its_own_origin() -> None:
    world = World([moved("http://x:y@other/"), moved("/c"), moved("http://host/"), reply()])
    world.fetch("http://host/a")
    assert headers_of(world.sent[1]) == headers_of(world.sent[2]) == [b"Authorization: Basic eDp5"]
    assert headers_of(world.sent[3]) == []


def test_the_limit_per_attempt_covers_its_redirects_and_not_the_waits() -> None:
    world = World([moved("/b"), moved("/c"), moved("/d"), LOST, reply(200, b"ok")], seconds_per_answer=4.0)
    assert world.fetch("http://host/a", timeout=30.0) == b"ok"
    assert [step.seconds for step in world.sent] == pytest.approx([30.0, 26.0, 22.0, 18.0, 30.0])


def test_an_attempt_whose_time_is_used_up_by_redirects_times_out() -> None:
    world = World([moved("/b"), moved("/c"), moved("/d")] * 2, seconds_per_answer=4.0)
    error = world.failure("http://host/a", timeout=8.0, retry=Retry(1, 1.0, 1.0))
    assert (error.kind, error.attempts, len(world.sent)) == ("timeout", 2, 4)


def test_without_a_limit_none_is_sent() -> None:
    world = World([reply()])
    world.fetch("http://host/a", timeout=None)
    assert world.sent[0].seconds is None


def test_an_error_document_of_a_store_is_no_item() -> None:
    document = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code></Error>'
    xml, request_id = ("content-type", "application/xml"), ("x-amz-request-id", "1")
    world = World([reply(200, document, xml, request_id), reply(200, b"item")])
    assert world.fetch("http://host/") == b"item"
    for own in ([xml], [request_id], [("content-type", "text/html"), request_id]):
        assert World([reply(200, document, *own)]).fetch("http://host/") == document
    data = b"<?xml version='1.0'?><Errors/>"
    assert World([reply(200, data, xml, request_id)]).fetch("http://host/") == data
