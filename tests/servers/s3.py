"""Amazon S3, as moto's server emulates it."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from servers.emulator_processes import installed, running
from servers.stores import StoreServer

__all__ = ["S3_SECRET", "S3Emulator", "run_s3"]

S3_SECRET = "wJalrXUtnFEMI-secret-of-the-tests"


class S3Emulator:
    """A running server with one bucket."""

    bucket = "feedline-tests"

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.options = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "AKIATESTS",
            "secret_access_key": S3_SECRET,
            "client_options": {"allow_http": True},
        }
        # The server does not check signatures; it reads the region from the header.
        scope = "Credential=AKIATESTS/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
        request = urllib.request.Request(
            f"{self.endpoint}/{self.bucket}",
            method="PUT",
            headers={"Authorization": f"AWS4-HMAC-SHA256 {scope}"},
        )
        urllib.request.urlopen(request, timeout=30).close()

    def place(self) -> StoreServer:
        """Return an empty place of its own."""
        import obstore

        url = f"s3://{self.bucket}/{uuid.uuid4().hex}"
        store = obstore.store.from_url(url, **self.options)
        return StoreServer(
            "s3", url, lambda key, data: obstore.put(store, key, data) and None, url, self.options
        )


@contextmanager
def run_s3() -> Iterator[S3Emulator]:
    program = installed("python/bin/moto_server", "moto's server (S3)")
    with running(lambda port: [program, "-H", "127.0.0.1", "-p", str(port)]) as port:
        yield S3Emulator(port)
