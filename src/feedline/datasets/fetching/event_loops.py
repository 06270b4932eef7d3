"""What belongs to one event loop: made when it is first needed there, and never used from another."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["Closable", "PerLoop", "forks", "watch_forks"]


class Closable(Protocol):
    """Something that holds connections or threads until it is closed."""

    def close(self) -> None:
        """Let go of everything; may be called again."""
        ...


R = TypeVar("R", bound=Closable)

_registries: weakref.WeakSet[PerLoop[Closable]] = weakref.WeakSet()
_abandoned: list[Closable] = []
_hook_lock = threading.Lock()
_hook_set = False

#: How often this process and those that it was forked from have been forked since the first look.
forks = 0


class PerLoop(Generic[R]):
    """One resource for each event loop, made by `make()` on first use there.

    Concurrency: any thread may ask, each from its own running loop. A resource must not refer to its loop, except
    while something is in flight: it is dropped with its loop, and closed when another loop finds that one closed.
    After a fork the child starts with none; the parent's are left alone there, as closing them would say goodbye on
    connections that the parent still uses.
    """

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._resources: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, R] = weakref.WeakKeyDictionary()
        # What was asked for last, as one thread with one loop asks most often. Replaced in one assignment.
        self._latest: tuple[weakref.ref[asyncio.AbstractEventLoop], weakref.ref[R]] | None = None
        watch_forks()
        _registries.add(self)  # type: ignore[arg-type]

    def get(self) -> R:
        """Return the running loop's resource."""
        loop = asyncio.get_running_loop()
        latest = self._latest
        if latest is not None and latest[0]() is loop and (found := latest[1]()) is not None:
            return found
        resource = self._resources.get(loop)
        if resource is None:
            resource = self._make()
            with self._lock:
                gone = [other for other in self._resources if other.is_closed()]
                leftovers = [self._resources.pop(other) for other in gone]
                self._resources[loop] = resource
            for leftover in leftovers:
                leftover.close()
        self._latest = (weakref.ref(loop), weakref.ref(resource))
        return resource

    def close(self) -> None:
        """Close the running loop's resource, if it has one."""
        with self._lock:
            resource = self._resources.pop(asyncio.get_running_loop(), None)
            # It may be another loop's, which will find its resource all the same.
            self._latest = None
        if resource is not None:
            resource.close()

    def _forget(self) -> None:
        _abandoned.extend(self._resources.values())
        self._lock = threading.Lock()
        self._resources = weakref.WeakKeyDictionary()
        self._latest = None


def watch_forks() -> None:
    """Count forks from now on in `forks`, and let children start with no resources."""
    global _hook_set
    with _hook_lock:
        if not _hook_set and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_all)
            _hook_set = True


def _forget_all() -> None:
    global _hook_lock, forks
    _hook_lock = threading.Lock()
    forks += 1
    for registry in list(_registries):
        registry._forget()
