"""What the tests of conversions share."""

from __future__ import annotations

import multiprocessing.resource_tracker
import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch, request):
    """Leave out what only a power cut would show, and what takes most of the time; `durable` tests have it."""
    if "durable" not in request.fixturenames:
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        monkeypatch.setattr(os, "fdatasync", lambda fd: None, raising=False)


@pytest.fixture(scope="session", autouse=True)
def _python_s_own_process() -> None:
    """Start it before a test counts what is there: multiprocessing keeps one beside the workers, until the end."""
    if os.name == "posix":
        multiprocessing.resource_tracker.ensure_running()


@pytest.fixture
def durable():
    """Let the disk be waited for."""
