"""One local Ray for all tests of this folder: it takes seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest



def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the first test the time that Ray takes to start on a busy machine."""
    for item in items:
        if "tests/ray/" in str(item.path).replace(os.sep, "/"):
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def local_ray() -> Iterator[Any]:
    """Ray, started as feedline starts it, with two processors, and shut down at the end."""
    pytest.importorskip("ray", reason="Ray is not installed; scripts/test --all installs it")
    import ray

    from feedline.loader.execution import cluster_connection

    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(place for place in sys.path if place)
    try:
        cluster_connection.QUIET["num_cpus"] = 2
        cluster_connection.connect()
    finally:
        del cluster_connection.QUIET["num_cpus"]
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
    yield ray
    ray.shutdown()
