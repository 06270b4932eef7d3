"""The short way to an item (its first request, and a plain answer) is what the rules would do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from feedline.datasets.fetching.attempts import Failure, Wait, adrive, drive
from feedline.datasets.fetching.http_exchange import (
    HttpRules,
    Reply,
    Send,
    Unsure,
    first_request,
    http_fetch,
    plain_body,
)
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.fetching.urls import parse_url
from feedline.errors import FetchError

XML = b"<?xml version='1.0'?>\n<Error><Code>InternalError</Code></Error>"


class Headers:
    def __init__(self, *pairs: tuple[bytes, bytes]) -> None:
        self.headers = list(pairs)


def rules(timeout: float | None = 30.0, retries: int = 0) -> HttpRules:
    return HttpRules(
        (b"X-Mine: 1",), (b"A: b",), timeout, Retry(retries, 0.0, 0.0), lambda: 100.0, lambda: 0.0
    )


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize(
    "text",
    [
        "http://host/a?b",
        "https://user:pass@host:8443/%c3",
        "http://host",
        "http://[::1]:81/x#y",
        "HTTP://Host/",
    ],
)
def test_the_first_step_of_a_fetch_is_the_first_request(text: str, timeout: float | None) -> None:
    assert next(http_fetch(text, 0, rules(timeout))) == first_request(parse_url(text), rules(timeout))


@pytest.mark.parametrize(
    "body", [b"", b"x", b"x" * 100_000, XML, b"<Error>", b"y" * 300 + b"<Error>", XML + b"z" * 65536]
)
@pytest.mark.parametrize("status", [200, 201, 204, 206, 301, 304, 404, 503])
@pytest.mark.parametrize(
    "pairs",
    [[], [(b"content-type", b"application/xml"), (b"x-amz-request-id", b"1")]],
    ids=["plain", "store"],
)
def test_a_plain_body_is_the_item_that_the_rules_make_of_the_answer(
    body: bytes, status: int, pairs: list[tuple[bytes, bytes]]
) -> None:
    reply = Reply(status, Headers(*pairs), body)
    try:
        item: Any = drive(http_fetch("http://host/", 0, rules()), lambda step: reply)
    except FetchError:
        item = None
    assert plain_body(reply) in (item, None)
    if status == 200 and b"<Error>" not in body[:256]:
        assert plain_body(reply) is body


def test_a_failure_and_an_unsure_answer_are_never_plain() -> None:
    assert plain_body(Failure("timeout", "late")) is None
    assert plain_body(Unsure()) is None


def test_an_unsure_answer_is_asked_for_once_more_and_watched() -> None:
    answers = [Unsure(), Reply(200, Headers(), b"whole")]
    sent: list[Send] = []

    def perform(step: Send) -> Any:
        sent.append(step)
        return answers[len(sent) - 1]

    assert drive(http_fetch("http://user:pass@host/", 0, rules()), perform) == b"whole"
    assert [step.watched for step in sent] == [False, True]
    assert sent[0] == sent[1]._replace(watched=False)


def test_an_unsure_answer_is_no_attempt() -> None:
    answers = [Unsure(), Failure("truncated", "too long", passing=True)] * 2
    with pytest.raises(FetchError) as caught:
        drive(
            http_fetch("http://host/", 0, rules(retries=1)),
            lambda step: None if isinstance(step, Wait) else answers.pop(0),
        )
    assert (caught.value.kind, caught.value.attempts, answers) == ("truncated", 2, [])


def test_what_is_known_of_the_first_step_is_not_asked_for_again() -> None:
    sent: list[Any] = []

    async def perform(step: Any) -> Any:
        sent.append(step)
        return None if isinstance(step, Wait) else Reply(200, Headers(), b"second")

    refused = Reply(503, Headers(), b"")
    steps = http_fetch("http://host/", 0, rules(retries=1), began=99.0)
    assert asyncio.run(adrive(steps, perform, (refused,))) == b"second"
    assert [type(step) for step in sent] == [Wait, Send]


def test_the_time_of_the_first_request_counts_for_what_follows() -> None:
    redirect = Reply(302, Headers((b"location", b"/b")), b"")
    sent: list[Any] = []

    async def perform(step: Any) -> Any:
        sent.append(step)
        return Reply(200, Headers(), b"there")

    assert asyncio.run(adrive(http_fetch("http://host/", 0, rules(), 90.0), perform, (redirect,))) == b"there"
    assert sent[0].seconds == 20.0
    with pytest.raises(FetchError, match="timed out after 30 s"):
        asyncio.run(adrive(http_fetch("http://host/", 0, rules(), 60.0), perform, (redirect,)))


def test_a_retry_after_a_first_request_that_took_all_the_time_has_all_of_it_again() -> None:
    sent: list[Any] = []

    async def perform(step: Any) -> Any:
        sent.append(step)
        return None if isinstance(step, Wait) else Reply(200, Headers(), b"second")

    late = Failure("timeout", "late", passing=True)
    steps = http_fetch("http://host/", 0, rules(retries=1), began=0.0)
    assert asyncio.run(adrive(steps, perform, (late,))) == b"second"
    assert sent[-1].seconds == 30.0


@pytest.mark.parametrize("target", ["/", "/a b", "/é", "/x#y", "/\x7f", "/ok?q=/", "", "?q=/a"])
@pytest.mark.parametrize(
    "server", ["http://host", "https://host:8443", "http://[::1]", "http://user:pw@host"]
)
def test_a_url_of_a_known_server_is_read_as_the_first_one_of_it(server: str, target: str) -> None:
    def reading(text: str) -> Any:
        try:
            return parse_url(text)
        except ValueError as error:
            return str(error)

    first = reading(f"{server}{target}")
    parse_url(f"{server}/known")
    assert reading(f"{server}{target}") == first
