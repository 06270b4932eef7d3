"""Small remote objects: 2,000 of 100 KB from nginx on loopback, with 20 ms of latency added; 64 and 256 in flight.

    python -m benchmarks.remote_objects [--rounds N] [--only NAME]

The limit is what latency allows: requests in flight, divided by 20 ms. A round fetches 2,000 objects, so the CPU seconds
per 1,000 are half of what the table shows. "The client alone" is libcurl's multi interface through pycurl, in one thread,
without checks; peers are what people use instead, each as its documentation has it.

It needs nginx with its echo module (`apt-get install nginx libnginx-mod-http-echo`), which adds the latency without using
a processor for it.

What was found (two cores, shared by client and server) stands in docs/design/http-client.md: with 256 in flight all is
bounded by the processor, and feedline needs 1.5 to 2 times what the client alone does, every peer 2.7 times and more; with
64 all good clients reach 0.8 to 0.9 of the limit. Reading all sockets before delivering bodies saves a third.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks._contest import Contest, Round

COUNT = 2000
SIZE = 100_000
LATENCY = 0.020
BATCH = 64
ORIGIN = "FEEDLINE_BENCHMARK_ORIGIN"
ROOT = Path(__file__).parents[1]


def urls() -> list[str]:
    return [f"{os.environ[ORIGIN]}/{number:06}" for number in range(COUNT)]


# -- the limit, and clients --------------------------------------------------------------------------------------------


def limit(in_flight: int) -> Round:
    def run() -> float:
        time.sleep(0.1)
        return 0.1 * in_flight / LATENCY

    return run


def check(sizes: list[int]) -> float:
    if sizes != [SIZE] * COUNT:
        raise AssertionError("not every object came whole")
    return COUNT


def pycurl_alone(in_flight: int) -> Round:
    import pycurl

    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_MAXCONNECTS, 1024)
    handles = [pycurl.Curl() for _ in range(in_flight)]
    for handle in handles:
        handle.setopt(pycurl.BUFFERSIZE, 256 * 1024)
    wanted = urls()

    def run() -> float:
        sizes: list[int] = []
        remaining, free = iter(wanted), list(handles)
        bodies: dict[Any, list[bytes]] = {}
        while len(sizes) < COUNT:
            for url in itertools.islice(remaining, len(free)):
                handle = free.pop()
                bodies[handle] = []
                handle.setopt(pycurl.URL, url)
                handle.setopt(pycurl.WRITEFUNCTION, bodies[handle].append)
                multi.add_handle(handle)
            multi.perform()
            _, done, failed = multi.info_read(in_flight)
            if failed:
                raise RuntimeError(failed)
            for handle in done:
                sizes.append(len(b"".join(bodies.pop(handle))))
                multi.remove_handle(handle)
                free.append(handle)
            if not done:
                multi.select(0.1)
        return check(sizes)

    return run


async def fetch_all(in_flight: int, fetch: Callable[[int], Awaitable[bytes]]) -> list[int]:
    remaining = iter(range(COUNT))
    sizes: list[int] = []

    async def worker() -> None:
        for index in remaining:
            item = await fetch(index)
            sizes.append(len(item))

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return sizes


def on_a_loop(prepare: Callable[[], Callable[[int], Awaitable[bytes]]], in_flight: int) -> Round:
    loop = asyncio.new_event_loop()

    async def make() -> Callable[[int], Awaitable[bytes]]:
        return prepare()

    fetch = loop.run_until_complete(make())
    return lambda: check(loop.run_until_complete(fetch_all(in_flight, fetch)))


def feedline_awaited(in_flight: int) -> Round:
    from feedline.datasets.http import HttpDataset

    dataset = HttpDataset(urls())
    return on_a_loop(lambda: dataset.__getitem__, in_flight)


def feedline_loader(in_flight: int) -> Round:
    from feedline.datasets.http import HttpDataset
    from feedline.loader.dataloader import DataLoader

    # All items of so many batches at once; and as many batches may wait, so that one late item holds nobody up.
    workers = in_flight // BATCH
    loader = DataLoader(
        HttpDataset(urls()),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        item_concurrency=BATCH,
        prefetch_depth=max(2, workers),
        collate_fn=list,
    )
    return lambda: check([len(item) for batch in loader for item in batch])


def aiohttp_client(in_flight: int) -> Round:
    import aiohttp
    from yarl import URL

    wanted = [URL(url, encoded=True) for url in urls()]

    def prepare() -> Callable[[int], Awaitable[bytes]]:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

        async def fetch(index: int) -> bytes:
            async with session.get(wanted[index]) as response:
                return await response.read()

        return fetch

    return on_a_loop(prepare, in_flight)


def obstore_client(in_flight: int) -> Round:
    from obstore.store import HTTPStore

    store = HTTPStore.from_url(os.environ[ORIGIN], client_options={"allow_http": True})

    async def fetch(index: int) -> bytes:
        response = await store.get_async(f"{index:06}")
        return bytes(await response.bytes_async())

    return on_a_loop(lambda: fetch, in_flight)


def primp_client(in_flight: int) -> Round:
    import primp

    wanted = urls()

    def prepare() -> Callable[[int], Awaitable[bytes]]:
        client = primp.AsyncClient()

        async def fetch(index: int) -> bytes:
            response = await client.get(wanted[index])
            return bytes(response.content)

        return fetch

    return on_a_loop(prepare, in_flight)


class Urllib3Dataset:
    """What people write for torch and Grain."""

    def __init__(self) -> None:
        self.urls = urls()
        self._local: Any = None

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> bytes:
        import urllib3

        if self._local is None:
            self._local = threading.local()
        if not hasattr(self._local, "pool"):
            self._local.pool = urllib3.PoolManager(maxsize=1)
        return bytes(self._local.pool.request("GET", self.urls[int(index)]).data)


def urllib3_threads(in_flight: int) -> Round:
    import urllib3  # noqa: F401

    dataset = Urllib3Dataset()
    pool = ThreadPoolExecutor(in_flight)
    return lambda: check(list(pool.map(lambda index: len(dataset[index]), range(COUNT))))


def torch_loader(in_flight: int) -> Round:
    import urllib3  # noqa: F401
    from torch.utils.data import DataLoader

    loader = DataLoader(
        Urllib3Dataset(),  # type: ignore[arg-type]
        BATCH,
        num_workers=16,
        collate_fn=list,
        persistent_workers=True,
    )
    return lambda: check([len(item) for batch in loader for item in batch])


def grain_loader(in_flight: int) -> Round:
    import grain
    import urllib3  # noqa: F401

    dataset = grain.MapDataset.source(Urllib3Dataset()).to_iter_dataset(
        grain.ReadOptions(num_threads=in_flight, prefetch_buffer_size=2 * in_flight)
    )
    return lambda: check([len(item) for item in dataset])


# -- the server --------------------------------------------------------------------------------------------------------

CONFIG = """
load_module {module};
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; open_file_cache max=4000;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ echo_sleep {latency}; echo_exec @file; }}
    location @file {{ root {folder}/data; }}
  }}
}}
"""


def find_nginx() -> tuple[str, str] | None:
    """The program and its echo module."""
    own = ROOT / ".servers" / "nginx" / "usr"
    program = shutil.which("nginx") or shutil.which(str(own / "sbin" / "nginx"))
    folders = [
        own / "lib" / "nginx" / "modules",
        Path("/usr/lib/nginx/modules"),
        Path("/usr/lib64/nginx/modules"),
    ]
    modules = [folder / "ngx_http_echo_module.so" for folder in folders]
    module = next((path for path in modules if path.exists()), None)
    return None if program is None or module is None else (program, str(module))


@contextmanager
def server() -> Iterator[None]:
    found = find_nginx()
    if found is None:
        sys.exit(
            "this benchmark needs nginx with its echo module: apt-get install nginx libnginx-mod-http-echo"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        folder.chmod(0o755)
        for number in range(COUNT):
            (folder / "data" / f"{number:06}").write_bytes(number.to_bytes(4, "little") * (SIZE // 4))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(module=found[1], folder=folder, port=port, latency=LATENCY))
        process = subprocess.Popen([found[0], "-p", name, "-c", str(config)], stderr=subprocess.DEVNULL)
        try:
            wait_for(port, process)
            os.environ[ORIGIN] = f"http://127.0.0.1:{port}"
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("nginx did not start")
            time.sleep(0.05)


CLIENTS: list[tuple[str, Callable[[int], Round], bool]] = [
    ("pycurl alone", pycurl_alone, False),
    ("feedline, awaited", feedline_awaited, False),
    ("feedline DataLoader", feedline_loader, False),
    ("aiohttp", aiohttp_client, True),
    ("primp", primp_client, True),
    ("obstore", obstore_client, True),
    ("urllib3 in threads", urllib3_threads, True),
    ("Grain, threads + urllib3", grain_loader, True),
    ("torch, 16 processes + urllib3", torch_loader, True),
]


def contest() -> Contest:
    systems = Contest("benchmarks.remote_objects", "objects/s")
    for in_flight in (64, 256):
        group = f"{in_flight} in flight"
        systems.add(f"latency allows {in_flight}", lambda n=in_flight: limit(n), group=group, is_limit=True)
        for name, prepare, is_peer in CLIENTS:
            systems.add(
                f"{name} {in_flight}", lambda p=prepare, n=in_flight: p(n), group=group, is_peer=is_peer
            )
    return systems


if __name__ == "__main__":
    if "--serve" in sys.argv:
        contest().main()
    else:
        with server():
            contest().main()
