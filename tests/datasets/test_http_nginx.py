"""Items from nginx, which closes a connection after as many requests as it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.http import HttpDataset
from feedline.errors import FetchError
from servers.nginx import serve_folder

pytest.importorskip("pycurl", reason="pycurl is not installed")

COUNT = 300


@pytest.mark.parametrize("requests_per_connection", [1, 7, 1000])
def test_every_file_of_a_folder_comes_as_it_is(tmp_path: Path, requests_per_connection: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    contents = [bytes([number % 256]) * (number * 101) for number in range(COUNT)]
    for number, content in enumerate(contents):
        (folder / f"{number:03} \u00e9.bin").write_bytes(content)
    with serve_folder(folder, tmp_path / "nginx", requests_per_connection) as url:
        columns = {"name": [f"{number:03} \u00e9" for number in range(COUNT)]}
        dataset = HttpDataset.from_template(url + "/{name}.bin", columns, retry=Retry(0))
        missing = HttpDataset([url + "/none"], retry=Retry(0))

        async def main() -> list[bytes]:
            gate = asyncio.Semaphore(40)

            async def fetch(index: int) -> bytes:
                async with gate:
                    return await dataset[index]

            async with asyncio.timeout(60):
                items = await asyncio.gather(*(fetch(index) for index in range(COUNT)))
                with pytest.raises(FetchError, match="404"):
                    await missing[0]
            await dataset.aclose()
            await missing.aclose()
            return items

        assert asyncio.run(main()) == contents


def test_a_body_that_was_asked_to_be_compressed_is_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "text").write_bytes(b"hello " * 50_000)
    with serve_folder(folder, tmp_path / "nginx", 1000) as url:
        dataset = HttpDataset([url + "/text"], {"Accept-Encoding": "gzip"}, retry=Retry(0))

        async def main() -> bytes:
            item = await dataset[0]
            await dataset.aclose()
            return item

        assert asyncio.run(main()) == b"hello " * 50_000
