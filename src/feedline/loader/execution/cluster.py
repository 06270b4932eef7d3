"""Actors of a Ray cluster as workers: the same batches, computed on as many machines as there are.

What runs in them is `BatchLoader.load`, as everywhere. `cluster_pool` says who owns what.
"""

from __future__ import annotations

import importlib.util
import weakref

from feedline.errors import MissingExtraError
from feedline.loader.batch import BatchLoader
from feedline.loader.execution.cluster_pool import ActorPool
from feedline.loader.execution.pool_session import PoolSession
from feedline.loader.execution.protocol import Known
from feedline.loader.execution.threads import Line

__all__ = ["RayExecutor", "check_ray"]


def check_ray(what: str = "worker_type='ray'") -> None:
    """Raise what says why there can be no Ray here; imports nothing.

    Args:
        what: what needs it.

    Raises:
        MissingExtraError: Ray, or cloudpickle, is not installed.
    """
    for name in ("ray", "cloudpickle"):
        spec = importlib.util.find_spec(name)
        # A folder of this name that happens to be in the way has no origin.
        if spec is None or spec.origin is None:
            raise MissingExtraError.of(what, "ray")


class RayExecutor:
    """Loads in `num_workers` Ray actors, a batch each.

    Ray is started, or joined, by the first task, if the program has not done so. The actors are started then, too, kept
    between epochs, and ended with the loader.

    Args:
        load: what is run; it is pickled when the first task comes, and put into Ray's object store once.
        num_workers: actors.
    """

    def __init__(self, load: BatchLoader, num_workers: int) -> None:
        self._load = load
        self.pool = ActorPool(load, num_workers)
        self._finalizer = weakref.finalize(self, self.pool.close)
        # The pool looks after the end of the interpreter itself.
        self._finalizer.atexit = False

    def session(self, in_order: bool, known: Known) -> PoolSession:
        """Return a session; nothing is started yet."""
        return PoolSession(self, self.pool, self._load, Line(in_order, known))

    def places(self) -> list[str]:
        """Actors may be on other machines, where nobody can look."""
        return []

    def resize(self, width: int) -> None:
        """Have `width` actors; those that are too many end after their tasks."""
        self.pool.resize(width)

    def close(self) -> None:
        """Let the actors end after their item, and end those that do not within a second; does not wait."""
        self._finalizer()
