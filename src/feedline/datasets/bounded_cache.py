"""Things that are dear to make, the latest kept up to a limit: open shards, decoded row groups.

Note [cache and fork]
    A lock that another thread holds when the process forks stays locked in the child for ever. So a cache belongs to
    the process that made it: its owner asks `is_foreign()` and makes a new one in the child, without touching the old.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K")
V = TypeVar("V")


class _Making:
    """A value that some thread is making; the others wait for `ended`."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = threading.Event()


class BoundedCache(Generic[K, V]):
    """Keeps the values that were asked for last, as long as their weights add up to at most `limit`.

    The newest is kept in any case. A value that is dropped here lives on as long as somebody uses it.

    Args:
        limit: the sum of weights.
        weigh: weight of a value; by default each weighs 1.

    Concurrency: any number of threads; a value that several ask for at once is made by one of them, outside of the
    lock, so that others can be made meanwhile. Doesn't pickle.

    >>> cache = BoundedCache(limit=2)
    >>> [cache.get(key, str.upper) for key in ("a", "b", "a", "c")], cache.keys()
    (['A', 'B', 'A', 'C'], ['a', 'c'])
    """

    def __init__(self, limit: int, weigh: Callable[[V], int] | None = None) -> None:
        self._limit = limit
        self._weigh = weigh
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._making: dict[K, _Making] = {}
        self._weight = 0

    def is_foreign(self) -> bool:
        """Tell whether another process, which forked this one, made the cache."""
        return self._pid != os.getpid()

    def get(self, key: K, make: Callable[[K], V]) -> V:
        """Return the value of `key`, made by `make(key)` if it is not there; what `make` raises passes through."""
        while True:
            with self._lock:
                found = self._kept.get(key)
                if found is not None:
                    self._kept.move_to_end(key)
                    return found[0]
                making = self._making.get(key)
                if making is None:
                    mine = self._making[key] = _Making()
                    break
            # After a failure there, this thread tries by itself, and gets the error as its own.
            making.ended.wait()
        try:
            value = make(key)
            self._keep(key, value)
            return value
        finally:
            with self._lock:
                del self._making[key]
            mine.ended.set()

    def _keep(self, key: K, value: V) -> None:
        weight = 1 if self._weigh is None else self._weigh(value)
        dropped = []
        with self._lock:
            self._kept[key] = (value, weight)
            self._weight += weight
            while self._weight > self._limit and len(self._kept) > 1:
                _, old = self._kept.popitem(last=False)
                self._weight -= old[1]
                dropped.append(old)
        # Their finalisers (of open files, of large arrays) run here, outside of the lock.
        del dropped

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            dropped, self._kept, self._weight = self._kept, OrderedDict(), 0
        dropped.clear()

    def keys(self) -> list[K]:
        """Return the keys that are kept, the one asked for longest ago first."""
        with self._lock:
            return list(self._kept)
