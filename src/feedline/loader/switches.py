"""How often the calling thread gave up its processor of its own accord: to wait for a disk, a lock, the GIL.

Being late tells nothing on a machine where other programs want the processors; this does.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["voluntary_switches"]


def _find() -> Callable[[], int] | None:
    try:
        import resource

        who = resource.RUSAGE_THREAD
        resource.getrusage(who)
    except (ImportError, AttributeError, ValueError, OSError):
        return None
    return lambda: resource.getrusage(who).ru_nvcsw


#: Returns the count of the calling thread; `None` where the system has none (it is not Linux).
voluntary_switches: Callable[[], int] | None = _find()
