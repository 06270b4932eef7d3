"""What an HTTP fetch does next: redirects, statuses, credentials and retries. Pure; `curl_session.py` sends.

| the server answers | the fetch |
| --- | --- |
| 200 and other 2xx | is done; 204 and 205 are `b""` |
| 206, 304 | fails: nobody asked for a part, nor whether something changed |
| 301, 302, 303, 307, 308 | goes on at `Location`, at most 10 times |
| 408, 429, 5xx | is tried again, after `Retry-After` if it can be read |
| 401, 403, 407 | fails: `"denied"` |
| 404, 410 | fails: `"not_found"` |
| anything else | fails: `"status"` |

A retry starts at the original URL, with all headers. Headers of the dataset, and `user:password@`, go to the origin
(scheme, host, port) of the original URL; once a redirect has left it they stay dropped for the rest of the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from feedline.datasets.fetching.attempts import Failure, Steps, with_retries
from feedline.datasets.fetching.retry import Retry, parse_retry_after
from feedline.datasets.fetching.urls import Url, parse_url, resolve_redirect
from feedline.errors import OptionError

__all__ = [
    "MAX_REDIRECTS",
    "HttpRules",
    "Reply",
    "Send",
    "Unsure",
    "first_request",
    "http_fetch",
    "plain_body",
]

MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_DENIED = frozenset({401, 403, 407})
_MISSING = frozenset({404, 410})
_MAX_DOCUMENT_BYTES = 65536
_REASONS = {206: "a part, which nobody asked for", 304: "'not modified', which nobody asked for"}


class Send(NamedTuple):
    """A step: ask for `url` once; the result is a `Reply`, a `Failure`, or `Unsure`.

    Attributes:
        url: what to ask for, without following redirects.
        headers: lines `Name: value`, as bytes.
        seconds: the time that is left for it; `None` for no limit.
        watched: look at every byte that comes, so that the result is never `Unsure`.
    """

    url: Url
    headers: tuple[bytes, ...]
    seconds: float | None
    watched: bool = False


class Unsure:
    """An answer came, and nobody can tell whether its body went on behind its `Content-Length`: to be asked for again."""


class HasHeaders(Protocol):
    """Tells the headers of an answer, if anybody asks."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Pairs of name (lower case) and value."""
        ...


class Reply(NamedTuple):
    """A whole answer.

    Attributes:
        status: the HTTP status.
        head: what has the headers.
        body: the body, decoded; empty where the status is not 2xx.
    """

    status: int
    head: HasHeaders
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of the header `name` (lower case), in order."""
        return [value for key, value in self.head.headers if key == name]


@dataclass(frozen=True)
class HttpRules:
    """What is the same for all fetches of a dataset.

    Attributes:
        headers: lines `Name: value` for the origin of the original URL.
        foreign_headers: lines for other origins, where a redirect may lead.
        timeout: seconds per attempt with its redirects; `None` for no limit.
        retry: how often an attempt is made again.
        clock: seconds, monotonic.
        now: seconds since 1970, for `Retry-After` dates.
    """

    headers: tuple[bytes, ...]
    foreign_headers: tuple[bytes, ...]
    timeout: float | None
    retry: Retry
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time


def first_request(url: Url, rules: HttpRules) -> Send:
    """Return the first step of every fetch of `url`: what nearly all of them need, and nothing else."""
    return Send(url, _headers(url, rules, True), rules.timeout)


def plain_body(outcome: Reply | Failure | Unsure) -> bytes | None:
    """Return the body of an answer that leaves nothing to judge; `None` where `http_fetch` has to look at it."""
    if type(outcome) is not Reply or outcome.status != 200:
        return None
    body = outcome.body
    return body if len(body) > _MAX_DOCUMENT_BYTES or b"<Error>" not in body[:256] else None


def http_fetch(text: str, index: int, rules: HttpRules, began: float | None = None) -> Steps[bytes]:
    """Fetch the URL `text`, item `index`: yields `Send` and `Wait`, returns the body.

    The first step is always `first_request`.

    Args:
        text: what to fetch.
        index: for messages.
        rules: of the dataset.
        began: when the first request went out, by `rules.clock`, where it has been sent already.

    Raises:
        FetchError: as the module's table tells, after the retries.
    """
    url = parse_url(text)
    starts = iter([] if began is None else [began])
    return with_retries(
        lambda: _attempt(url, rules, next(starts, None)), rules.retry, index, lambda: url.shown
    )


def _attempt(url: Url, rules: HttpRules, began: float | None) -> Steps[bytes | Failure]:
    deadline = _Deadline(rules, began)
    first, trusted = url, True
    seen: set[str] = set()
    for hop in range(MAX_REDIRECTS + 1):
        outcome = yield from _ask(url, _headers(url, rules, trusted), deadline)
        if isinstance(outcome, Failure):
            return outcome
        if outcome.status not in _REDIRECTS:
            return _judge(outcome, rules.now())
        if hop == MAX_REDIRECTS:
            return _redirect_failure(f"redirected more than {MAX_REDIRECTS} times", outcome.status)
        following = _follow(url, outcome)
        if isinstance(following, Failure):
            return following
        seen.add(url.address)
        if following.address in seen:
            return _redirect_failure(f"redirected in a loop: back to {following.shown}", outcome.status)
        trusted = trusted and following.origin == first.origin
        if trusted and following.credentials is None:
            following = following._replace(credentials=first.credentials)
        url = following
    raise AssertionError("the last redirect is not followed")


def _ask(url: Url, headers: tuple[bytes, ...], deadline: _Deadline) -> Steps[Reply | Failure]:
    """Ask for `url`; once more, and watched, if it is not sure that the answer was whole."""
    for watched in (False, True):
        left = deadline.left()
        if left is not None and left <= 0:
            return deadline.failure()
        outcome = yield Send(url, headers, left, watched)
        if type(outcome) is not Unsure:
            return outcome  # type: ignore[no-any-return]
    raise AssertionError("what is watched is sure")


class _Deadline:
    """When an attempt has to be over, with all its requests."""

    def __init__(self, rules: HttpRules, began: float | None) -> None:
        self._rules = rules
        self._began = rules.clock() if began is None else began
        self._is_fresh = True

    def left(self) -> float | None:
        """Return the seconds that are left; the first request has all of them, whenever it went out."""
        timeout, fresh = self._rules.timeout, self._is_fresh
        self._is_fresh = False
        return timeout if timeout is None or fresh else self._began + timeout - self._rules.clock()

    def failure(self) -> Failure:
        """Tell that none are left."""
        return Failure("timeout", f"timed out after {self._rules.timeout:g} s in redirects", passing=True)


def _headers(url: Url, rules: HttpRules, trusted: bool) -> tuple[bytes, ...]:
    lines = rules.headers if trusted else rules.foreign_headers
    if url.credentials is None:
        return lines
    authorization = url.authorization or ""
    kept = tuple(line for line in lines if not line.lower().startswith(b"authorization:"))
    return (*kept, b"Authorization: " + authorization.encode("ascii"))


def _follow(url: Url, reply: Reply) -> Url | Failure:
    locations = set(reply.values(b"location"))
    if len(locations) != 1 or not next(iter(locations)):
        found = "no Location" if not any(locations) else "several different Locations"
        return _redirect_failure(f"status {reply.status} with {found}", reply.status)
    message = ""
    try:
        following = resolve_redirect(url, locations.pop())
    except OptionError as error:
        message = str(error)
    # Outside of the handler: the error that is raised in the end must not chain to what parsed the URL.
    if message:
        return _redirect_failure(
            f"status {reply.status} with a Location that can't be followed: {message}", reply.status
        )
    if url.scheme == "https" and following.scheme == "http":
        return _redirect_failure(f"redirected from https to http: {following.shown}", reply.status)
    return following


def _redirect_failure(message: str, status: int) -> Failure:
    return Failure("redirect", message, status=status)


def _judge(reply: Reply, now: float) -> bytes | Failure:
    status = reply.status
    if status in _REASONS:
        return Failure("status", f"the server sent {_REASONS[status]} (status {status})", status=status)
    if 200 <= status < 300:
        return _error_document(reply) or reply.body
    if status in (408, 429) or 500 <= status < 600:
        asked = [value.decode("latin-1") for value in reply.values(b"retry-after")]
        return Failure(
            "status",
            f"the server answered with status {status}",
            passing=True,
            status=status,
            retry_after=parse_retry_after(asked, now),
        )
    kind = "denied" if status in _DENIED else "not_found" if status in _MISSING else "status"
    return Failure(kind, f"the server answered with status {status}", status=status)


def _error_document(reply: Reply) -> Failure | None:
    """Tell an error of an S3-like store that came with a success status: its document, its type and its request id."""
    body = reply.body
    if (
        len(body) > _MAX_DOCUMENT_BYTES
        or b"<Error>" not in body[:256]
        or not body.lstrip().startswith((b"<?xml", b"<Error>"))
    ):
        return None
    is_xml = any(
        value.partition(b";")[0].strip().endswith(b"/xml") for value in reply.values(b"content-type")
    )
    if not is_xml or not reply.values(b"x-amz-request-id"):
        return None
    return Failure(
        "status",
        f"the store sent an error document with status {reply.status}",
        passing=True,
        status=reply.status,
    )
