"""How often the calling thread gave up its processor of its own accord: to wait for a disk, a lock, the GIL.

Being late tells nothing on a machine where other programs want the processors; this does.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

__all__ = ["thread_usage", "voluntary_switches"]

#: Returns the count of the calling thread; `None` where the system has none (it is not Linux).
voluntary_switches: Callable[[], int] | None


def _count_only_time() -> tuple[float, int | None]:
    return thread_time(), None


#: Returns (processor seconds, voluntary switches or `None`) of the calling thread, in one system call.
thread_usage: Callable[[], tuple[float, int | None]] = _count_only_time

try:
    import resource

    _WHO = resource.RUSAGE_THREAD
    resource.getrusage(_WHO)
except (ImportError, AttributeError, ValueError, OSError):
    voluntary_switches = None
else:

    def _usage() -> tuple[float, int | None]:
        told = resource.getrusage(_WHO)
        return told.ru_utime + told.ru_stime, told.ru_nvcsw

    def _switches() -> int:
        return resource.getrusage(_WHO).ru_nvcsw

    voluntary_switches, thread_usage = _switches, _usage
