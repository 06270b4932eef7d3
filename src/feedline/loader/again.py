"""One batch again, loaded alone: what `batch_at` does."""

from __future__ import annotations

from typing import Any

from feedline.datasets.protocol import is_stream
from feedline.loader.batch import Task
from feedline.loader.execution.protocol import Session
from feedline.loader.ordering import Cursor
from feedline.loader.source import IterableSource, Source

__all__ = ["load_again", "task_again"]


def task_again(dataset: Any, source: Source, epoch: int, number: Any) -> Task:
    """Return batch `number` of a whole `epoch` as a task.

    Raises:
        IndexError: the epoch has no such batch.
        TypeError: `number` is no int; or the dataset, or its order, can only be walked once, from the start.
    """
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        raise TypeError(f"the number of a batch is an int, not {number!r}")
    if is_stream(dataset):
        raise TypeError("batch_at() needs random access; a stream has none")
    if isinstance(source, IterableSource) and source.is_one_shot:
        raise TypeError("batch_at() needs an order that can be walked anew; the sampler is an iterator")
    task = source.plan(epoch, 0, 0).task(number) if number >= 0 else None
    if task is None:
        raise IndexError(f"epoch {epoch} has no batch {number}")
    return task


def load_again(task: Task, session: Session) -> Any:
    """Return the batch of `task`, or raise the error that belongs to it."""
    session.submit(task)
    cursor = Cursor(task.number)
    while (outcome := session.outcomes.peek(cursor)) is None:
        session.wait()
    if outcome.error is not None:
        raise outcome.error
    if outcome.empty:
        raise IndexError(
            f"batch {task.number} of epoch {task.epoch} is not there: all of its items are left out"
        )
    return outcome.value
