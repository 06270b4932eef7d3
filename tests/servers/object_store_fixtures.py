"""Fixtures: one server of each kind for the whole test run, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.azure import AzureEmulator, run_azure
from servers.gcs import GcsEmulator, run_gcs
from servers.s3 import S3Emulator, run_s3
from servers.s3_faults import FaultyStore, run_faulty_store

__all__ = ["azure_emulator", "faulty_store", "gcs_emulator", "s3_emulator"]


@pytest.fixture(scope="session")
def s3_emulator() -> Iterator[S3Emulator]:
    with run_s3() as emulator:
        yield emulator


@pytest.fixture(scope="session")
def azure_emulator() -> Iterator[AzureEmulator]:
    with run_azure() as emulator:
        yield emulator


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[GcsEmulator]:
    with run_gcs() as emulator:
        yield emulator


@pytest.fixture
def faulty_store() -> Iterator[FaultyStore]:
    with run_faulty_store() as server:
        yield server
