"""Errors that travel: as themselves where they can, else as a `WorkerError` that tells all there is to tell.

An error is tried out in the worker: pickled, unpickled and compared. What fails there, whatever its class does, is
reported by type name, message, traceback and notes. The worker's traceback comes along as the cause at the end of the
chain, the way that `concurrent.futures` shows it: on lines of its own, also for a `KeyError`.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

from feedline.errors import WorkerError
from feedline.loader.execution.handoff import dump_back
from feedline.loader.failures import message_of, type_name

__all__ = ["PortableError", "WorkerTraceback"]

#: Causes of causes that are kept.
MAX_CHAIN = 8


class WorkerTraceback(Exception):
    """The traceback of a worker process, as text; only ever seen as the cause of the error that came from there."""

    def __str__(self) -> str:
        return "\n" + "".join(str(argument) for argument in self.args)


@dataclass(frozen=True, slots=True)
class PortableError:
    """An error on its way.

    Attributes:
        pickled: the error itself, if it can travel.
        type_name, message, notes, text: what is known of it in any case; `text` is its traceback.
        index: of the item, if known.
        cause: what it was raised from.
        suppress: whether its context is not to be shown.
    """

    pickled: bytes | None
    type_name: str
    message: str
    notes: tuple[str, ...]
    text: str
    index: Any
    cause: PortableError | None
    suppress: bool

    @classmethod
    def of(cls, error: BaseException, index: Any = None, depth: int = 0) -> PortableError:
        """Pack `error`; never raises because of it."""
        cause = error.__cause__
        return cls(
            pickled=_try_out(error),
            type_name=type_name(error),
            message=message_of(error),
            notes=_notes(error),
            text="" if depth else _traceback(error),
            index=index,
            cause=None if cause is None or depth >= MAX_CHAIN else cls.of(cause, None, depth + 1),
            suppress=bool(error.__suppress_context__),
        )

    def unpack(self, worker: str) -> BaseException:
        """Return the error, or a `WorkerError` in its place, with the traceback of `worker` as the last cause."""
        error = self._unpack(self.text)
        last = error
        while last.__cause__ is not None:
            last = last.__cause__
        last.__cause__ = WorkerTraceback(f"in {worker}:\n\n{self.text}")
        return error

    def _unpack(self, text: str) -> BaseException:
        error = self._itself()
        if error is None:
            message = f"{self.type_name}: {self.message}".rstrip(": ")
            error = WorkerError(message, type_name=self.type_name, traceback_text=text, index=self.index)
            for note in self.notes:
                error.add_note(note)
        if self.cause is not None:
            error.__cause__ = self.cause._unpack(text)
        error.__suppress_context__ = self.suppress or error.__cause__ is not None
        return error

    def _itself(self) -> BaseException | None:
        if self.pickled is None:
            return None
        try:
            error = pickle.loads(self.pickled)
        except BaseException:  # its class is another one here, or gone: then it is told, not shown
            return None
        if not isinstance(error, BaseException):
            return None
        if _notes(error) != self.notes:
            # Its own __reduce__ drops them.
            error.__notes__ = list(self.notes)
        return error


def _try_out(error: BaseException) -> bytes | None:
    try:
        pickled = dump_back(error)
        copy = pickle.loads(pickled)
        same = type(copy) is type(error) and message_of(copy) == message_of(error)
        return pickled if same else None
    except BaseException:  # user code of any kind runs in here; why it can't travel is of no interest
        return None


def _notes(error: BaseException) -> tuple[str, ...]:
    notes = getattr(error, "__notes__", ())
    return tuple(str(note) for note in notes) if isinstance(notes, (list, tuple)) else ()


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as second:
        return f"{type_name(error)}: <its traceback could not be made: {type(second).__name__}>\n"
