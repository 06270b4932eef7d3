"""A request on its way through libcurl: to whom, for whom, and over which kept connection."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.http_exchange import Reply, Send, Unsure
from feedline.datasets.fetching.urls import Url

if TYPE_CHECKING:
    from feedline.datasets.fetching.curl_handle import CurlHandle

__all__ = ["KeptConnections", "Outcome", "Server", "Transfer"]


class Server:
    """What is known of a server.

    Attributes:
        root: its URL, with an empty path.
        proxy: what its requests go through, or an empty string.
        is_absolute: its requests have the whole URL as their target, as an HTTP proxy wants it for http.
        watched: how many of its answers are still to be watched, until one more is trusted: see Note [excess].
    """

    __slots__ = ("is_absolute", "proxy", "root", "watched")

    def __init__(self, url: Url, proxy: str) -> None:
        self.root = f"{url.scheme}://{url.authority}/"
        self.proxy = proxy
        self.is_absolute = proxy.startswith(("http:", "https:")) and url.scheme == "http"
        self.watched = 1


#: What comes of asking once.
Outcome: TypeAlias = Reply | Failure | Unsure


class Transfer:
    """One request on its way: what to send, to whom, who waits for it, and the handle that carries it.

    Attributes:
        is_over: nobody waits any more.
        stale: kept connections that turned out dead.
    """

    __slots__ = ("_deliver", "handle", "is_over", "server", "stale", "step")

    def __init__(self, step: Send, server: Server, deliver: Callable[[Outcome], None]) -> None:
        self.step = step
        self.server = server
        self._deliver: Callable[[Outcome], None] | None = deliver
        self.handle: CurlHandle | None = None
        self.is_over = False
        self.stale = 0

    def resolve(self, outcome: Outcome) -> None:
        """Give the outcome to whoever waits."""
        deliver = self.end()
        if deliver is not None:
            deliver(outcome)

    def end(self) -> Callable[[Outcome], None] | None:
        """Be over; return what the outcome would have been given to, and know it no longer: it may know this transfer."""
        deliver, self._deliver = self._deliver, None
        self.is_over = True
        return deliver


class KeptConnections:
    """The sockets of connections, by their local address: to look at a kept one before it is used again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sockets: dict[tuple[str, int], tuple[int, Any]] = {}

    def remember(self, address: tuple[str, int], fd: int) -> None:
        """Note that the connection from `address` is kept."""
        known = self._sockets.get(address)
        if (known is not None and known[0] == fd) or not hasattr(select, "poll"):
            return
        if len(self._sockets) >= self._limit:
            self._sockets.clear()  # most are closed by now; for the others libcurl's own look must do
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        self._sockets[address] = (fd, poll)

    def is_dead(self, address: tuple[str, int]) -> bool:
        """Tell whether the connection from `address` was kept and can't be used, and forget it if so.

        A kept connection that has something to read was closed by the server, or has bytes that belong to nobody, and
        would become the next answer.
        """
        known = self._sockets.get(address)
        if known is None or not known[1].poll(0):
            return False
        del self._sockets[address]
        return True
