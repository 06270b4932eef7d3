"""nginx on a free port, serving a folder; from the system or from `scripts/servers`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers.emulator_processes import SERVERS, running

__all__ = ["serve_folder"]

CONFIG = """
{user}
worker_processes 1;
daemon off;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  gzip on; gzip_types *; gzip_min_length 1;
  keepalive_requests {requests};
  client_body_temp_path {work}/a; proxy_temp_path {work}/b; fastcgi_temp_path {work}/c;
  uwsgi_temp_path {work}/d; scgi_temp_path {work}/e;
  server {{
    listen 127.0.0.1:{port};
    location / {{ root {folder}; }}
  }}
}}
"""


@contextmanager
def serve_folder(folder: Path, work: Path, requests_per_connection: int) -> Iterator[str]:
    """Give the URL under which nginx serves `folder`; skip the test where nginx is not installed."""
    program = shutil.which("nginx") or shutil.which(str(SERVERS / "nginx" / "usr" / "sbin" / "nginx"))
    if program is None:
        pytest.skip("nginx is not installed (scripts/servers installs it)")
    work.mkdir(exist_ok=True)
    # As root nginx would read the files as somebody else, who may not.
    user = "user root;" if hasattr(os, "geteuid") and os.geteuid() == 0 else ""

    def command(port: int) -> list[str]:
        config = work / "nginx.conf"
        text = CONFIG.format(work=work, folder=folder, port=port, user=user, requests=requests_per_connection)
        config.write_text(text)
        return [program, "-p", str(work), "-c", str(config)]

    with running(command) as port:
        yield f"http://127.0.0.1:{port}"
