"""This process's connection to Ray: the one that is there, or a local Ray that is started once, quietly.

Note [thread that starts Ray]
    The processes of a local Ray are told by the system to end when the *thread* that started them ends. So that is a
    daemon thread which does nothing else, and stays until Ray is shut down.

Note [forks]
    A connection has threads and sockets that a forked child does not have: there it is refused, before it can hang.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

__all__ = ["connect", "connection", "is_connected"]

#: How Ray is started, or joined, where the program has not done so itself.
QUIET: dict[str, Any] = {
    "include_dashboard": False,
    "log_to_driver": False,
    "logging_level": logging.ERROR,
    "ignore_reinit_error": True,
}
#: Nothing is reported to anybody by a Ray that we start, and it leaves the choice of devices to the program.
QUIET_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

#: How long `ray.shutdown()` may take on another thread.
SHUTDOWN_SECONDS = 10.0
#: How often the thread that started Ray looks whether it may end.
STAY_SECONDS = 1.0

_lock = threading.Lock()
_inherited = False


def is_connected() -> bool:
    """Tell whether this process is connected to Ray; imports nothing."""
    ray = sys.modules.get("ray")
    return ray is not None and not _inherited and bool(ray.is_initialized())


def connection() -> str | None:
    """Return what names the present connection, another one after `ray.shutdown()` and `ray.init()`; `None` without."""
    if not is_connected():
        return None
    import ray

    # The first program of any cluster has the same id, so its own does not tell two clusters apart.
    context = ray.get_runtime_context()
    return f"{context.get_worker_id()} {context.get_node_id()}"


def connect() -> str:
    """Connect to Ray if this process is not: return what names the connection.

    A cluster is found as `ray.init()` finds one (`RAY_ADDRESS`, or one that `ray start` started here), else a local Ray
    is started, once, which ends with the process.

    Raises:
        RuntimeError: this is a forked child of a process that is connected.
        Exception: whatever `ray.init()` raises.
    """
    import ray

    if _inherited:
        raise RuntimeError(
            "worker_type='ray' in a forked child: Ray's connection does not survive a fork. Start the process with "
            "'spawn', fork before Ray is used, or use worker_type='process' here"
        )
    with _lock:
        if not ray.is_initialized():
            _await_shutdown()
            _start()
    found = connection()
    if found is None:
        raise RuntimeError("Ray was shut down while it was being started")
    return found


def _await_shutdown() -> None:
    """Wait while another thread is in the middle of `ray.shutdown()`, which would take a new Ray apart as well."""
    pause, end = threading.Event(), time.monotonic() + SHUTDOWN_SECONDS
    # The last thing that goes. Where a Ray has no such name, nothing is waited for.
    while getattr(sys.modules.get("ray._private.worker"), "_global_node", None) is not None:
        if time.monotonic() > end:
            return
        pause.wait(0.02)


def _start() -> None:
    """Have Ray started, or joined: see Note [thread that starts Ray]."""
    told: SimpleQueue[Exception | None] = SimpleQueue()

    def run() -> None:
        import ray

        try:
            with _environment(), _global_random_state():
                ray.init(**QUIET)
        except Exception as error:
            told.put(error)
            return
        told.put(None)
        pause = threading.Event()  # never set
        while ray.is_initialized():
            pause.wait(STAY_SECONDS)

    threading.Thread(target=run, name="feedline-ray-starter", daemon=True).start()
    error = told.get()
    if error is not None:
        raise error


@contextmanager
def _environment() -> Iterator[None]:
    """What a Ray that is started inherits: the settings above, and where this program finds its modules."""
    places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    added = {name: value for name, value in QUIET_ENVIRONMENT.items() if name not in os.environ}
    added["PYTHONPATH"] = places
    before = os.environ.get("PYTHONPATH")
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _global_random_state() -> Iterator[None]:
    """Ray draws ports from the program's own generator."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def _after_fork_in_child() -> None:
    global _inherited
    ray = sys.modules.get("ray")
    try:
        connected = ray is not None and bool(ray.is_initialized())
    except Exception:  # only half imported in the parent: then it was not connected
        connected = False
    _inherited = _inherited or connected


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
