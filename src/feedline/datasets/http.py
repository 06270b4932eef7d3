"""Bytes from http and https URLs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from feedline.datasets.fetching.attempts import Wait, adrive
from feedline.datasets.fetching.curl_handle import SessionOptions, import_pycurl
from feedline.datasets.fetching.curl_session import CurlSession
from feedline.datasets.fetching.curl_transfer import Outcome
from feedline.datasets.fetching.event_loops import PerLoop
from feedline.datasets.fetching.http_exchange import (
    HttpRules,
    Send,
    first_request,
    http_fetch,
    plain_body,
)
from feedline.datasets.fetching.http_headers import default_lines, header_lines
from feedline.datasets.fetching.limits import DEFAULT_MAX_BYTES, check_limit, check_positive, check_retry
from feedline.datasets.fetching.locations import Locations
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.fetching.tls import read_verify
from feedline.datasets.fetching.urls import UrlRules, parse_url
from feedline.datasets.kind import Named
from feedline.datasets.protocol import AsyncDataset

__all__ = ["HttpDataset"]

_RULES = UrlRules()
_DEFAULT_RETRY = Retry(max_retries=3, initial_backoff=0.2, max_backoff=10.0)
# More sockets than this at once are closer to a mistake than to a faster epoch, and to the limit of descriptors.
_MAX_CONNECTIONS = 512


class HttpDataset(Named, AsyncDataset):
    """An item is the `bytes` of the body that a URL answers with.

    Args:
        urls: a list of http or https URLs, checked now. They go out byte for byte as given, also after a redirect
            (presigned URLs); only the fragment is dropped. `user:password@` is sent as Basic authentication, to that
            origin only.
        headers: sent with every request, and dropped when a redirect leaves the origin.
        timeout: seconds per attempt, redirects included; `None` for no limit.
        read_timeout: seconds without a byte after which an attempt is given up, found at most a quarter later; `None`
            for no limit beside `timeout`.
        max_bytes: the largest body, decoded; a larger one is an error, and is read no further.
        retry: retried are connection errors, time-outs, bodies cut short or longer than their `Content-Length`, and the
            statuses 408, 429 and 5xx, after the `Retry-After` that they ask for, up to `retry.max_backoff`.
        verify: True for certifi's roots, False for no check, a path to roots in PEM form (a file or a folder), or an
            `ssl.SSLContext`, of which roots, `verify_mode`, `check_hostname` and versions are taken.
        max_connections: requests in flight on one event loop; more wait their turn, before their `timeout` starts.

    Requests are HTTP/1.1 GET over kept connections, through the proxies of the environment (`http_proxy`,
    `https_proxy`, `all_proxy`, `no_proxy`). No cookies are kept, `.netrc` is not read. `Accept-Encoding: identity` is
    asked for; a body that comes as gzip or deflate all the same is decoded whole.

    Raises:
        TypeError: a value of a wrong type; one bare URL instead of a list.
        OptionError: a URL that is none, or has raw spaces, control or non-ASCII characters; limits below their interval.
        MissingExtraError: pycurl or certifi is not installed.

    Awaiting an item raises `IndexError` for an index out of range, and `FetchError` for all else; no message and no
    attribute of it shows a URL's query, user or password.

    Concurrency: any number of items at once; connections belong to the event loop that awaits, and are closed by
    `aclose()` there. One dataset may serve several loops. Cancelling an `await` drops its connection. Pickles as its
    locations and options; a forked or unpickled dataset makes connections of its own.

    Example:
        >>> dataset = HttpDataset(["https://example.com/cat.jpg?signature=abc"])
        >>> len(dataset)
        1
    """

    def __init__(
        self,
        urls: Any,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = 30.0,
        read_timeout: float | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retry: Retry = _DEFAULT_RETRY,
        verify: Any = True,
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        self._options = _Options.of(headers, timeout, read_timeout, max_bytes, retry, verify, max_connections)
        self._open(Locations.listed(_RULES, urls, "urls"))

    @classmethod
    def from_function(cls, function: Callable[[int], str], length: int, **options: Any) -> HttpDataset:
        """Make a dataset whose item `i` lies at `function(i)`, for `i` from 0 to `length - 1`.

        The function is called when an item is fetched, on the event loop; what it raises is the error of that item,
        and a URL that is none is a `FetchError` (`"location"`) of that item. `options` are those of the class.
        """
        return cls._made(Locations.from_function(_RULES, function, length), options)

    @classmethod
    def from_template(
        cls,
        template: str,
        columns: Mapping[str, Any] | None = None,
        *,
        length: int | None = None,
        **options: Any,
    ) -> HttpDataset:
        """Make a dataset whose URLs are a template filled from columns, such as `"https://host/{split}/{name}.jpg"`.

        Args:
            template: text with `{index}` and the names of columns in braces; `{{` and `}}` for braces.
            columns: a sequence of ints or strings (`Column`) for each name, all of one length; strings are
                percent-encoded, so that they can't add a path segment, a query or a fragment.
            length: number of items, if only `{index}` is used.
            options: those of the class.

        Raises:
            TypeError, OptionError: as the class does, and for the template; with the byte offset or the column.
        """
        return cls._made(Locations.from_template(_RULES, template, columns, length), options)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._locations)

    def location(self, index: Any) -> str:
        """Return the URL of item `index`, without query, user or password; nothing is fetched."""
        return self._locations.show(self._locations.locate(index)[1])

    async def __getitem__(self, index: Any) -> bytes:
        """Return the bytes of item `index`; negative indices count from the end.

        Raises:
            IndexError: there is no such item.
            FetchError: the bytes did not come, after all retries.
        """
        place, text = self._locations.locate(index)
        session, rules = self._sessions.get(), self._options.rules
        began = rules.clock()
        outcome = await session.send(first_request(parse_url(text), rules))
        body = plain_body(outcome)
        if body is not None:
            return body
        # What is not simply there is left to the rules, which begin with the same request.
        return await adrive(http_fetch(text, place, rules, began), _performer(session), (outcome,))

    def begin_item(
        self, index: Any, done: Callable[[Any, Callable[[], Awaitable[Any]] | None], None]
    ) -> Callable[[], None]:
        """Begin to fetch item `index` on the running event loop, without a coroutine; for executors.

        Args:
            index: as `__getitem__` takes it.
            done: called later, once: with the item and `None`, or, if there is more to do than to take it, with `None`
                and a function, of which the result is to be awaited for the item.

        Returns:
            What drops the request, as long as `done` has not been called.

        Raises:
            IndexError, FetchError: as `__getitem__` does, if no request can be made.
        """
        place, text = self._locations.locate(index)
        session, rules = self._sessions.get(), self._options.rules
        began = rules.clock()

        def deliver(outcome: Outcome) -> None:
            body = plain_body(outcome)
            if body is not None:
                done(body, None)
                return
            steps = http_fetch(text, place, rules, began)
            done(None, lambda: adrive(steps, _performer(session), (outcome,)))

        return partial(session.abandon, session.start(first_request(parse_url(text), rules), deliver))

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Whoever has items of its own must be awaited for them.
        if "__getitem__" in cls.__dict__ and "begin_item" not in cls.__dict__:
            cls.begin_item = None  # type: ignore[assignment, method-assign]

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the dataset may be used again."""
        self._sessions.close()

    @classmethod
    def _made(cls, locations: Locations[str], options: dict[str, Any]) -> HttpDataset:
        dataset = cls([], **options)
        dataset._open(locations)
        return dataset

    def _open(self, locations: Locations[str]) -> None:
        import_pycurl()
        self._locations = locations
        # Made of the options alone: a session that held the dataset would keep it alive as long as its loop.
        options = self._options.session
        self._sessions = PerLoop(lambda: CurlSession(options))

    def __repr__(self) -> str:
        return f"HttpDataset({len(self)} items)"

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options, "locations": self._locations}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = state["options"]
        self._open(state["locations"])


def _performer(session: CurlSession) -> Callable[[Send | Wait], Awaitable[Outcome | None]]:
    async def perform(step: Send | Wait) -> Outcome | None:
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
            return None
        return await session.send(step)

    return perform


@dataclass(frozen=True)
class _Options:
    rules: HttpRules
    session: SessionOptions

    @classmethod
    def of(
        cls,
        headers: Any,
        timeout: Any,
        read_timeout: Any,
        max_bytes: Any,
        retry: Any,
        verify: Any,
        max_connections: Any,
    ) -> _Options:
        limit = check_limit("timeout", timeout)
        return cls(
            HttpRules(header_lines(headers), default_lines(), limit, check_retry(retry)),
            SessionOptions(
                check_positive("max_bytes", max_bytes),
                limit,
                check_limit("read_timeout", read_timeout),
                check_positive("max_connections", max_connections),
                read_verify(verify),
            ),
        )
