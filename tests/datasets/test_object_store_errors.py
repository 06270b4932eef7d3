"""How a store client's exceptions become faults: told in words of our own, and without secrets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from feedline.datasets.fetching.store_errors import error_document, read_fault, scrub
from feedline.datasets.object_store import ObjectStoreDataset
from feedline.errors import FetchError

obstore = pytest.importorskip("obstore", reason="obstore is not installed")

SECRET = "vErY-sEcReT"


def generic(prose: str, debug: str = "") -> Exception:
    error: Exception = obstore.exceptions.GenericError(f"Generic S3 error: {prose}\n\nDebug source:\n{debug}")
    return error


def test_a_machine_without_credentials_says_what_to_pass() -> None:
    error = generic(
        "Error performing PUT http://169.254.169.254/latest/api/token in 1s, after 3 retries, max_retries: 3"
    )
    fault = read_fault(error, in_body=False)
    assert (fault.kind, fault.attempts, fault.passing) == ("denied", 4, False)
    assert "skip_signature=True" in fault.reason


def test_an_unknown_failure_is_told_in_one_line_without_urls_and_secrets() -> None:
    prose = f"strange thing at https://user:{SECRET}@host/key?sig={SECRET}, x-amz-security-token={SECRET} &c\n{SECRET}"
    fault = read_fault(generic(prose, f'source: "{SECRET}"'), in_body=False)
    assert fault.kind == "store"
    assert fault.reason == "Generic S3 error: strange thing at <URL> <secret> &c"


def test_a_field_of_the_error_is_not_read_out_of_an_answers_body() -> None:
    debug = 'inner: Status {\n    status: 503,\n    body: Some(\n        "\\n    status: 404,\\n    retries: 7,\\n",\n'
    fault = read_fault(
        generic("Server returned non-2xx status code: 503", "retries: 2,\n" + debug), in_body=False
    )
    assert (fault.kind, fault.status, fault.attempts) == ("status", 503, 3)


def test_the_prose_tells_where_the_debug_form_does_not() -> None:
    prose = "Error performing GET REDACTED in 1s, after 2 retries, max_retries: 2, retry_timeout: 1s  - Server returned non-2xx status code: 429 Too Many Requests: "
    fault = read_fault(obstore.exceptions.GenericError(prose), in_body=False)
    assert (fault.kind, fault.status, fault.attempts) == ("status", 429, 3)
    assert fault.reason == "the store answered 429 Too Many Requests"


@pytest.mark.parametrize(
    ("debug", "kind", "passing"),
    [
        ("source: HttpError {\n    kind: Timeout,\n", "timeout", True),
        (
            "source: RetryError(\n    inner: Http(\n        HttpError {\n            kind: Timeout,\n",
            "timeout",
            False,
        ),
        ("HttpError {\n error: IncompleteBody,\n", "truncated", True),
        ("HttpError {\n  source: TooManyRedirects,\n", "redirect", False),
        ("HttpError {\n  InvalidCertificate(\n      UnknownIssuer,\n", "connection", True),
        ("kind: PermissionDenied,\n", "denied", False),
        ("kind: NotADirectory,\n", "not_found", False),
    ],
)
def test_causes_are_read_from_the_debug_form(debug: str, kind: str, passing: bool) -> None:
    fault = read_fault(generic("something", debug), in_body=False)
    assert (fault.kind, fault.passing) == (kind, passing)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET https://host/a?b=c failed", "GET <URL> failed"),
        ("s3://bucket/key: no", "<URL> no"),
        ("AWSSecretKey=abc and more", "<secret> and more"),
        ("Configuration key: 'bogus' is not valid", "Configuration key: 'bogus' is not valid"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_scrubbing_leaves_the_words(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"<Error><Code>SlowDown</Code></Error>", "SlowDown"),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\r\n<Error>\n<Code>ServerBusy</Code>', "ServerBusy"),
        (b'<?xml version="1.0"?><Error xmlns="x"><Message>m</Message><Code>A.B</Code></Error>', "A.B"),
        (b"", None),
        (b"<?xml version='1.0'?><Data><Error><Code>X</Code></Error></Data>", None),
        (b"<Errors><Code>X</Code></Errors>", None),
        (b"<Error></Error>", None),
        (b"no <Error><Code>X</Code></Error>", None),
        (b"<Error><Code>X</Code></Error>" + bytes(70_000), None),
    ],
)
def test_an_error_document_is_told_from_data(data: bytes, code: str | None) -> None:
    assert error_document(data) == code


class Result:
    """An answer whose body is not as long as its head says."""

    meta = {"size": 10, "e_tag": None}

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def bytes_async(self) -> bytes:
        return self.body


@pytest.mark.parametrize("body", [bytes(9), bytes(11)])
def test_a_body_of_another_length_than_told_is_never_an_item(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    async def get(store: Any, key: str) -> Result:
        return Result(body)

    monkeypatch.setattr(obstore, "get_async", get)
    dataset = ObjectStoreDataset(obstore.store.MemoryStore(), ["k"])
    with pytest.raises(FetchError, match=f"{len(body)} of 10 bytes came") as caught:
        asyncio.run(dataset.__getitem__(0))
    assert caught.value.kind == "truncated"
