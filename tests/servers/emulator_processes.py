"""Server programs for tests: found, started on a free port of the loopback interface, awaited, and ended by their id."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SERVERS", "free_port", "installed", "running"]

#: Where `scripts/servers` installs.
SERVERS = Path(__file__).resolve().parents[2] / ".servers"


def installed(relative: str, what: str) -> str:
    """Return the path of an installed program; skip the test, with the reason, where it is not there."""
    path = SERVERS / relative
    if path.exists():
        return str(path)
    pytest.skip(f"{what} is not installed (scripts/servers installs it)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


@contextmanager
def running(command: Callable[[int], Sequence[str]], seconds: float = 60.0) -> Iterator[int]:
    """Run `command(port)` until the block is left, and give the port, which answers by then.

    Another program may take a free port before the server does; then the server ends at once, and is started again.
    """
    with tempfile.TemporaryFile() as log:
        for _ in range(3):
            port = free_port()
            process = subprocess.Popen(
                command(port), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
            try:
                if _answers(process, port, time.monotonic() + seconds):
                    yield port
                    return
            finally:
                _end(process)
        log.seek(0)
        pytest.fail(f"{command(0)[0]} did not start:\n{log.read().decode(errors='replace')[-2000:]}")


def _environment() -> dict[str, str]:
    # What is set for other programs (credentials, proxies, options of Python) is nothing that a server should see.
    kept = ("PATH", "HOME", "TMPDIR", "LANG", "SystemRoot")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _answers(process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
