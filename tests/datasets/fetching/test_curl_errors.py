"""What libcurl's codes mean."""

from __future__ import annotations

import errno

import pytest

from feedline.datasets.fetching.curl_errors import describe
from feedline.datasets.fetching.http_body import Receiver


def receiver(*lines: bytes, body: bytes = b"") -> Receiver:
    made = Receiver(100)
    for line in lines:
        made.on_header(line)
    if body:
        made.on_body(body)
    return made


ANSWERING = (b"HTTP/1.1 200 OK\r\n", b"Content-Length: 10\r\n", b"\r\n")


@pytest.mark.parametrize(
    ("code", "os_error", "kind", "passing"),
    [
        (3, 0, "location", False),
        (5, 0, "connection", True),
        (6, 0, "connection", True),
        (7, errno.ECONNREFUSED, "connection", True),
        (8, 0, "connection", True),
        (28, 0, "timeout", True),
        (35, 0, "connection", False),
        (35, errno.ECONNRESET, "connection", True),
        (52, 0, "connection", True),
        (55, errno.EPIPE, "connection", True),
        (56, errno.ECONNRESET, "connection", True),
        (60, 0, "connection", False),
        (77, 0, "connection", False),
        (97, 0, "connection", True),
    ],
)
def test_a_code_has_a_kind_and_may_pass_or_not(code: int, os_error: int, kind: str, passing: bool) -> None:
    failure = describe(code, "libcurl's text", os_error, receiver(), 30.0)
    assert (failure.kind, failure.passing) == (kind, passing)


@pytest.mark.parametrize("code", [18, 56])
def test_what_breaks_in_the_body_is_truncated_and_says_how_far_it_came(code: int) -> None:
    failure = describe(code, "text", 0, receiver(*ANSWERING, body=b"abc"), 30.0)
    assert (failure.kind, failure.passing) == ("truncated", True)
    assert "3 of 10 bytes" in failure.message


def test_a_time_out_tells_the_limit_and_how_far_it_came() -> None:
    assert "after 1.5 s, with no answer" in describe(28, "", 0, receiver(), 1.5).message
    assert "with 3 of 10 bytes" in describe(28, "", 0, receiver(*ANSWERING, body=b"abc"), None).message
    unsized = (b"HTTP/1.1 200 OK\r\n", b"\r\n")
    assert "with 3 bytes" in describe(28, "", 0, receiver(*unsized, body=b"abc"), None).message


def test_too_large_tells_the_limit_and_the_size() -> None:
    failure = describe(
        63, "text", 0, receiver(b"HTTP/1.1 200 OK\r\n", b"Content-Length: 1000\r\n", b"\r\n"), 30.0
    )
    assert (failure.kind, failure.passing) == ("too_large", False)
    assert "max_bytes=100" in failure.message
    assert "1000 bytes" in failure.message


def test_a_code_without_text_is_still_told() -> None:
    assert "libcurl error 97" in describe(97, "", 0, receiver(), None).message
