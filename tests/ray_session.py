"""One local Ray for all tests of a folder that needs it: it takes seconds to start, half a minute on a busy machine."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

__all__ = ["local_ray", "python_path", "within"]


def python_path() -> str:
    """Return PYTHONPATH for processes that are to find what the tests find."""
    return os.pathsep.join(os.path.abspath(place) for place in sys.path if place)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Tell whether `condition` comes true in time."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        pause.wait(0.1)
    return True


@pytest.fixture(scope="package")
def local_ray() -> Iterator[Any]:
    """Ray, started as feedline starts it, with two processors; shut down behind the last test of the folder, since others fork."""
    spec = importlib.util.find_spec("ray")
    if spec is None or spec.origin is None:  # without an origin, it is the folder of tests that has this name
        pytest.skip("Ray is not installed; scripts/test --all installs it")
    import ray

    from feedline.loader.execution import cluster_connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cluster_connection.QUIET, "num_cpus", 2)
        cluster_connection.connect()
    yield ray
    ray.shutdown()
