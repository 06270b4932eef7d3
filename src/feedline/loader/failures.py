"""What happens to an item that fails: who decides, what is recorded, and which item takes its place."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from feedline.errors import OptionError, StateError, WorkerError
from feedline.keys import derive_key, encode_index

__all__ = [
    "MAX_SUBSTITUTES",
    "Decision",
    "ErrorPolicy",
    "Failure",
    "as_batch_error",
    "attach_note",
    "check_policy",
    "decide",
    "is_ctrl_c",
    "recorded_index",
    "substitutes",
]

Decision: TypeAlias = Literal["raise", "skip", "substitute"]
DECISIONS = ("raise", "skip", "substitute")
#: How many substitutes are tried for one item before its batch raises.
MAX_SUBSTITUTES = 100
NOTE_START = "feedline: "


@dataclass(frozen=True, slots=True)
class Failure:
    """One item that could not be had.

    Attributes:
        index: its index in the dataset (its text, where it is neither int nor str).
        location: its path, URL or key where the error or the dataset knows it, without secrets; else `None`.
        epoch: the epoch it failed in.
        batch: the number of its batch in that epoch.
        error: `Type: message`.
        error_type: qualified name of the exception's class.
    """

    index: int | str
    location: str | None
    epoch: int
    batch: int
    error: str
    error_type: str

    @classmethod
    def of(cls, error: BaseException, index: Any, epoch: int, batch: int, dataset: Any = None) -> Failure:
        """Record `error` of the item `index`; `dataset` is asked where it lies, if the error does not tell."""
        location = _location_of(error) or _location_in(dataset, index)
        return cls(
            index=recorded_index(index),
            location=location,
            epoch=epoch,
            batch=batch,
            error=_one_line(error),
            error_type=type_name(error),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> Failure:
        """Make it from what `as_dict` gave; a `StateError` if it is something else."""
        try:
            failure = cls(**values)
            fits = (
                isinstance(failure.index, (int, str))
                and isinstance(failure.epoch, int)
                and isinstance(failure.batch, int)
                and isinstance(failure.error, str)
                and isinstance(failure.error_type, str)
            )
        except TypeError:
            fits = False
        if not fits:
            raise StateError(f"the state has a failure that can't be read: {values!r}")
        return failure


ErrorPolicy: TypeAlias = Decision | Callable[[Failure], Decision]


def check_policy(policy: Any) -> ErrorPolicy:
    """Return `policy`; an `OptionError` or `TypeError` if it can't be `on_error`."""
    if callable(policy) or policy in DECISIONS:
        return policy  # type: ignore[no-any-return]
    if isinstance(policy, str):
        raise OptionError(f"on_error must be one of {', '.join(DECISIONS)} or a callable, not {policy!r}")
    raise TypeError(f"on_error must be a str or a callable, not {type(policy).__name__}")


def decide(policy: ErrorPolicy, failure: Failure) -> Decision:
    """Ask `policy` what becomes of the item; an `OptionError` if a callable answers something else."""
    if not callable(policy):
        return policy
    answer = policy(failure)
    if answer not in DECISIONS:
        raise OptionError(f"on_error answered {answer!r}; it must be one of {', '.join(DECISIONS)}")
    return answer


def recorded_index(index: Any) -> int | str:
    """Return `index` as a state keeps it: ints and strings as they are, other keys as their text."""
    return index if type(index) in (int, str) else repr(index)


def type_name(error: BaseException) -> str:
    """Return the qualified name of the exception's class, without `builtins`."""
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _location_of(error: BaseException) -> str | None:
    try:
        location = getattr(error, "location", None)
    except Exception:  # a property of somebody else's class
        return None
    return location if isinstance(location, str) else None


def _location_in(dataset: Any, index: Any) -> str | None:
    try:
        tell = getattr(dataset, "location", None)
        location = tell(index) if callable(tell) else None
    except Exception:  # the item's own error is what matters, and it may well be why its place can't be told
        return None
    return location if isinstance(location, str) and location else None


def message_of(error: BaseException) -> str:
    """Return `str(error)`, or what can be said where that fails itself."""
    try:
        return str(error)
    except Exception as second:
        return f"<its message could not be made: {type(second).__name__}>"


def _one_line(error: BaseException) -> str:
    message = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def as_batch_error(error: BaseException, index: Any) -> Exception:
    """Return what the consumer gets for `error`: itself, where raising it there means the same.

    A `StopIteration` would end the consumer's loop in silence: it becomes the cause of a `RuntimeError` (as PEP 479
    does for generators). `SystemExit`, `KeyboardInterrupt`, `CancelledError` and their like would end the consumer:
    they are reported by a `WorkerError`.
    """
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        wrapped = RuntimeError(f"{type(error).__name__} out of user code")
        wrapped.__cause__ = error
        return wrapped
    if isinstance(error, Exception):
        return error
    report = WorkerError(
        f"{type_name(error)} out of user code: {message_of(error)}".rstrip(": "),
        type_name=type_name(error),
        traceback_text="".join(traceback.format_exception(error)),
        index=index,
    )
    report.__cause__ = error
    return report


def is_ctrl_c(error: BaseException) -> bool:
    """Tell whether `error` comes from the user's keyboard: a KeyboardInterrupt, and on the main thread.

    One that user code raises there by itself can't be told apart.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def attach_note(error: BaseException, text: str) -> None:
    """Add feedline's note to `error`, in place of an earlier one (an exception object may be raised twice)."""
    try:
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            notes[:] = [note for note in notes if not str(note).startswith(NOTE_START)]
        error.add_note(NOTE_START + text)
    except Exception:
        # Its class keeps something else in __notes__, or allows no new attributes (a frozen dataclass): the error itself
        # matters more than our note.
        return


def substitutes(seed: int, epoch: int, index: Any, length: int) -> Iterator[int]:
    """Yield up to `MAX_SUBSTITUTES` indices to take the place of `index`, none equal to it.

    Determinism: depends on (seed, epoch, index, length) alone. Duplicates may come; the caller passes over what failed.
    """
    if length < 2:
        return
    key = int.from_bytes(derive_key("substitute", seed, epoch, encode_index(index)), "little")
    words = np.random.Philox(key=key).random_raw(MAX_SUBSTITUTES)
    for word in words.tolist():
        # 64 random bits scaled to [0, length): the bias is below length / 2**64.
        candidate = (word * length) >> 64
        if candidate != index:
            yield candidate
