"""Both ways to watch libcurl's sockets behave alike."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from feedline.datasets.fetching import curl_session
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.fetching.socket_watch import EpollWatch, LoopWatch, make_watch
from feedline.datasets.http import HttpDataset
from servers.fault_server import FaultServer, Hold, respond

WATCHES = list({LoopWatch, EpollWatch})


@pytest.fixture(params=WATCHES, ids=lambda watch: watch.__name__)
def watch_class(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_socket_is_told_for_what_it_is_watched_and_no_longer(watch_class: Any) -> None:
    told: list[tuple[int, int]] = []

    def on_ready(ready: Sequence[tuple[int, int]]) -> None:
        told.extend(ready)

    async def turns(until: int) -> set[tuple[int, int]]:
        """Let the loop turn until something was told, or often enough that it would have been."""
        for _ in range(until):
            await asyncio.sleep(0.001)
            if told:
                break
        found = set(told)
        told.clear()
        return found

    async def main() -> None:
        watch = watch_class(on_ready)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fd = ours.fileno()
            watch.watch(fd, True, False)
            assert await turns(20) == set()
            theirs.send(b"x")
            assert await turns(10_000) == {(fd, 1)}
            watch.watch(fd, False, True)
            await turns(2)
            assert await turns(10_000) == {(fd, 2)}
            watch.forget(fd)
            watch.forget(fd)
            await turns(2)
            assert await turns(20) == set()
            watch.watch(fd, True, False)
            ours.close()
            watch.forget(fd)
        watch.close()

    asyncio.run(main())


def test_many_items_come_through_either(watch_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycurl", reason="pycurl is not installed")
    monkeypatch.setattr(curl_session, "make_watch", watch_class)
    with FaultServer(lambda request: respond(request.target.encode())) as server:
        dataset = HttpDataset(
            [server.url(f"/{number}") for number in range(100)], retry=Retry(0), max_connections=20
        )

        async def main() -> list[bytes]:
            async with asyncio.timeout(60):
                items = await asyncio.gather(*(dataset[index] for index in range(100)))
            await dataset.aclose()
            return items

        assert asyncio.run(main()) == [f"/{number}".encode() for number in range(100)]


def test_linux_has_the_cheap_one() -> None:
    import sys

    expected = EpollWatch if sys.platform == "linux" else LoopWatch
    assert isinstance(make_watch(lambda ready: None), expected)


def test_all_requests_that_end_at_the_same_time_are_heard_of(
    watch_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pycurl", reason="pycurl is not installed")
    monkeypatch.setattr(curl_session, "make_watch", watch_class)
    # libcurl tells of so many in one go.
    monkeypatch.setattr(curl_session, "_MESSAGES_PER_CALL", 1)
    never = threading.Event()
    with FaultServer(lambda request: [Hold(never)]) as server:
        dataset = HttpDataset([server.url()] * 24, retry=Retry(0), timeout=0.3)

        async def main() -> list[Any]:
            async with asyncio.timeout(30):
                found = await asyncio.gather(*(dataset[index] for index in range(24)), return_exceptions=True)
            await dataset.aclose()
            return found

        found = asyncio.run(main())
        never.set()
    assert [error.kind for error in found] == ["timeout"] * 24
