"""What the pages and docstrings may leave behind: what lives as long as the process."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def _threads_of_the_object_store_client() -> None:
    """Start them before a test counts what is there: obstore keeps its threads and their descriptors for good."""
    if importlib.util.find_spec("obstore") is None:
        return
    import obstore

    store = obstore.store.MemoryStore()

    async def ask() -> None:
        await obstore.put_async(store, "key", b"value")

    asyncio.run(ask())
