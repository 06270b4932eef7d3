"""The calling thread: no queue, no lock. A batch is computed when it is waited for."""

from __future__ import annotations

from feedline.loader.batch import BatchLoader, Outcome, Run, Task
from feedline.loader.execution.protocol import Known
from feedline.loader.ordering import Window

__all__ = ["SerialExecutor"]


class SerialExecutor:
    """Loads in the thread that calls `next`."""

    def __init__(self, load: BatchLoader) -> None:
        self._load = load

    def session(self, in_order: bool, known: Known) -> SerialSession:
        """Return a session."""
        return SerialSession(self._load, in_order, known)

    def places(self) -> list[str]:
        """There are no workers."""
        return []

    def resize(self, width: int) -> None:
        """There are none, however many are asked for."""

    def close(self) -> None:
        """End the threads for items, if there were any."""
        self._load.close()


class SerialSession:
    """One iterator's tasks."""

    def __init__(self, load: BatchLoader, in_order: bool, known: Known) -> None:
        self._load = load
        self._run = Run(interruptible=True, known=known)
        self._tasks: dict[int, Task] = {}
        self.outcomes: Window[Outcome] = Window(in_order)

    def submit(self, task: Task) -> None:
        """Keep `task` until it is waited for."""
        self._tasks[task.number] = task

    def wait(self, seconds: float | None = None) -> None:
        """Compute the first task. After a Ctrl-C in the middle of it, it is still there, and computed anew."""
        # No task is there only if something else is wrong; a StopIteration from here would look like the end.
        number = min(self._tasks)
        for outcome in self._load.load(self._tasks[number], self._run):
            self.outcomes.put(outcome)
        self._tasks.pop(number, None)

    def notify(self) -> None:
        """Nobody waits here."""

    def cancel(self) -> None:
        """Drop the tasks."""
        self._tasks.clear()
