"""Where batches are computed. An executor belongs to a loader, a session of it to one iterator.

| | method | called |
| --- | --- | --- |
| `Executor` | `session(known) -> Session` | once per iterator; starts nothing |
| | `places() -> list[str]` | when somebody looks what workers do: the `stat` file of each in `/proc` |
| | `resize(width)` | by the loader, to have more or fewer workers from now on |
| | `close()` | when the loader is closed or gone; idempotent; waits for nothing |
| `Session` | `begin()`, optional | by the iterator's thread, before the first task is made; starts what takes long, raises nothing |
| | `submit(task)` | by the iterator's thread; returns at once |
| | `wait(seconds)` | until something more has come, or the time is over |
| | `notify()` | by any thread that has something to tell |
| | `outcomes` | the window that workers put their outcomes into |
| | `cancel()` | when the iterator ends early; what is queued is dropped, what runs stops after its item |

Every executor runs `BatchLoader.load` and nothing else, so all give the same batches: one parity test covers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from feedline.loader.batch import Outcome, Task
from feedline.loader.failures import Failure
from feedline.loader.ordering import Window

__all__ = ["EXIT_PATIENCE", "Executor", "Known", "Session"]

#: Seconds that all threads of one kind together get at interpreter exit to end their item.
EXIT_PATIENCE = 0.5

#: Items that failed in an earlier epoch, by their index as a state records it.
Known = Mapping["int | str", Failure]


class Session(Protocol):
    """One iterator's share of an executor."""

    outcomes: Window[Outcome]

    def submit(self, task: Task) -> None:
        """Queue `task`; its outcomes (one for each of its batches) come into `outcomes`."""
        ...

    def wait(self, seconds: float | None = None) -> None:
        """Return when something more has come (or at once, if unsure); a Ctrl-C interrupts it."""
        ...

    def notify(self) -> None:
        """Let `wait` return, from any thread."""
        ...

    def cancel(self) -> None:
        """Drop what is queued, and let what runs stop after its item."""
        ...


class Executor(Protocol):
    """Makes sessions."""

    def session(self, in_order: bool, known: Known) -> Session:
        """Return a new session; nothing is started before its first task."""
        ...

    def places(self) -> list[str]:
        """Return the file of each worker that runs in which Linux tells its state."""
        ...

    def resize(self, width: int) -> None:
        """Have `width` workers: more are started when tasks come, those that are too many end after their task."""
        ...

    def close(self) -> None:
        """End the workers; does not wait for what hangs."""
        ...
