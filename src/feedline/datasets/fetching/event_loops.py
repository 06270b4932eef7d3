"""What belongs to one event loop: made when it is first needed there, and never used from another."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["Closable", "PerLoop"]


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
        _watch_forks()
        _registries.add(self)  # type: ignore[arg-type]

    def get(self) -> R:
        """Return the running loop's resource."""
        loop = asyncio.get_running_loop()
        resource = self._resources.get(loop)
        if resource is None:
            resource = self._make()
            with self._lock:
                gone = [other for other in self._resources if other.is_closed()]
                leftovers = [self._resources.pop(other) for other in gone]
                self._resources[loop] = resource
            for leftover in leftovers:
                leftover.close()
        return resource

    def close(self) -> None:
        """Close the running loop's resource, if it has one."""
        with self._lock:
            resource = self._resources.pop(asyncio.get_running_loop(), None)
        if resource is not None:
            resource.close()

    def _forget(self) -> None:
        _abandoned.extend(self._resources.values())
        self._lock = threading.Lock()
        self._resources = weakref.WeakKeyDictionary()


def _watch_forks() -> None:
    global _hook_set
    with _hook_lock:
        if not _hook_set and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_all)
            _hook_set = True


def _forget_all() -> None:
    global _hook_lock
    _hook_lock = threading.Lock()
    for registry in list(_registries):
        registry._forget()
