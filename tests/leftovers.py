"""What a piece of code leaves behind in this process: threads, child processes, open descriptors."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Snapshot", "left_since"]


@dataclass(frozen=True)
class Snapshot:
    """What this process has at one moment.

    Attributes:
        threads: Python threads that run.
        children: process ids of child processes, dead ones that nobody has waited for included.
        descriptors: (number, what it refers to) of every open file descriptor; empty where that can't be told.
    """

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    descriptors: frozenset[tuple[int, str]]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(frozenset(threading.enumerate()), _children(), _descriptors())

    def added_to(self, before: Snapshot) -> list[str]:
        """Return a line for each thing that is here and was not there `before`."""
        return [
            *(f"thread {thread.name!r}" for thread in self.threads - before.threads if thread.is_alive()),
            *(f"child process {pid}" for pid in self.children - before.children),
            *(f"descriptor {number} -> {target}" for number, target in self.descriptors - before.descriptors),
        ]


def left_since(before: Snapshot, seconds: float = 5.0) -> list[str]:
    """Return what is there now and was not `before`; what is just ending gets `seconds` to do so."""
    end = time.monotonic() + seconds
    pause = threading.Event()  # never set: a wait with a deadline between two looks
    while True:
        gc.collect()
        left = Snapshot.take().added_to(before)
        if not left or time.monotonic() > end:
            return left
        pause.wait(0.01)


def _children() -> frozenset[int]:
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return frozenset(child.pid for child in multiprocessing.active_children() if child.pid is not None)
    found: set[int] = set()
    for task in tasks.iterdir():
        try:
            found.update(int(word) for word in (task / "children").read_text().split())
        except OSError:
            continue  # the thread has ended since
    return frozenset(found)


def _descriptors() -> frozenset[tuple[int, str]]:
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        return frozenset()
    found: set[tuple[int, str]] = set()
    for name in os.listdir(folder):
        try:
            found.add((int(name), os.readlink(f"{folder}/{name}")))
        except OSError:
            continue  # the descriptor of the listing itself
    return frozenset(found)
