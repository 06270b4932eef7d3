"""Azure Blob Storage, as Azurite emulates it."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import shutil
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from servers.emulator_processes import installed, running
from servers.stores import StoreServer

__all__ = ["AZURE_SECRET", "AzureEmulator", "run_azure"]

#: The account and key that Azurite documents for everybody.
_ACCOUNT = "devstoreaccount1"
AZURE_SECRET = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"


class AzureEmulator:
    """A running server with one container."""

    container = "feedline-tests"

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        self.options = {
            "endpoint": self.endpoint,
            "account_name": _ACCOUNT,
            "account_key": AZURE_SECRET,
            "client_options": {"allow_http": True},
        }
        self._make_container()

    def _make_container(self) -> None:
        date = email.utils.formatdate(usegmt=True)
        signed = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
            f"/{_ACCOUNT}/{_ACCOUNT}/{self.container}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(AZURE_SECRET), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        url = f"{self.endpoint}/{self.container}?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=30).close()

    def place(self) -> StoreServer:
        """Return an empty place of its own."""
        import obstore

        url = f"az://{self.container}/{uuid.uuid4().hex}"
        store = obstore.store.from_url(url, **self.options)
        return StoreServer(
            "azure", url, lambda key, data: obstore.put(store, key, data) and None, url, self.options
        )


@contextmanager
def run_azure() -> Iterator[AzureEmulator]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Azurite needs Node.js, which is not installed")
    program = installed("node/node_modules/azurite/dist/src/blob/main.js", "Azurite (Azure)")
    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with running(
        lambda port: [node, program, *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    ) as port:
        yield AzureEmulator(port)
