"""An epoch over a server that fails one request in twenty, in every way it can."""

from __future__ import annotations

import random
import threading
import zlib
from typing import Any

import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.http import HttpDataset
from feedline.loader.dataloader import DataLoader
from servers.fault_server import CLOSE, RESET, FaultServer, Hold, Request, Trickle, redirect, respond

pytest.importorskip("pycurl", reason="pycurl is not installed")

COUNT = 2000
MAX_BYTES = 100_000


def content(number: int) -> bytes:
    size = 200 + number * 37 % 9000
    return random.Random(number).randbytes(size)


class Store:
    """Every first request for an object may fail; the ways take turns, so that all of them occur."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[int] = set()
        self.never = threading.Event()  # set at the end, for what still hangs
        self.failed = [0] * len(self.ways(b""))

    def ways(self, body: bytes) -> list[Any]:
        length, half = len(body), body[: len(body) // 2]
        return [
            respond(b"slow down", 503, ["Retry-After: 0"]),
            respond(b"", 429, ["Retry-After: Thu, 01 Jan 1970 00:00:00 GMT"]),
            respond(b"", 500),
            respond(b"", 408, ["Connection: close"]),
            [RESET],
            [CLOSE],
            [respond(half, length=length), RESET],
            [respond(half, length=length), CLOSE],
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", CLOSE],
            respond(body + b"more", length=length),
            [respond(half, length=length), Hold(self.never)],
            [Trickle(respond(half, length=length), 0.5)],
            [b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", CLOSE],
            [b"no HTTP at all\r\n\r\n", CLOSE],
            respond(zlib.compress(body)[:-3], headers=["Content-Encoding: deflate"]),
        ]

    def answer(self, request: Request) -> Any:
        number = int(request.target.rpartition("/")[2])
        body = content(number)
        if request.target.startswith("/moved/"):
            return redirect(f"/objects/{number}")
        with self._lock:
            first = (number * 7919) % 20 == 0 and number not in self._seen
            self._seen.add(number)
            if not first:
                return respond(body)
            way = sum(self.failed) % len(self.failed)
            self.failed[way] += 1
        return self.ways(body)[way]


@pytest.mark.parametrize(("num_workers", "item_concurrency"), [(0, 16), (1, 64), (4, 16)])
def test_every_object_comes_once_and_bit_for_bit(num_workers: int, item_concurrency: int) -> None:
    store = Store()
    with FaultServer(store.answer) as server:
        dataset = HttpDataset.from_function(
            lambda index: server.url(f"/{'moved' if index % 50 == 0 else 'objects'}/{index}"),
            COUNT,
            retry=Retry(5, 0.01, 0.05),
            timeout=1.0,
            read_timeout=0.5,
            max_bytes=MAX_BYTES,
        )
        loader = DataLoader(
            dataset,
            batch_size=50,
            shuffle=True,
            num_workers=num_workers,
            item_concurrency=item_concurrency,
            collate_fn=list,
        )
        received: dict[int, bytes] = {}
        with loader:
            for indices, batch in loader.iter_with_indices():
                for index, item in zip(indices, batch, strict=True):
                    assert int(index) not in received
                    received[int(index)] = item
        store.never.set()
    assert sorted(received) == list(range(COUNT))
    assert all(received[number] == content(number) for number in range(COUNT))
    assert sum(store.failed) == COUNT // 20
    assert min(store.failed) > 0
