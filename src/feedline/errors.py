"""Everything that feedline raises of its own, each for something that a caller can act on.

```text
FeedlineError (Exception)        the common base: `except FeedlineError` catches all below
├── OptionError (ValueError)     an argument has a value that it may not have
├── StateError (ValueError)      a saved state does not fit the loader that it is loaded into
├── NdfError (ValueError)        an `.ndf` file is not what it promises; `kind`, `path`
├── CollateError (TypeError)     items of a batch can't be joined; `path`, `positions`
├── ImageError (ValueError)      bytes are not a usable image; `kind`
├── FetchError (OSError)         an item's bytes could not be fetched; `kind`, `index`, `location`, `attempts`
├── WorkerError (RuntimeError)   an exception that can't travel as itself; `type_name`, `traceback_text`, `index`
│   └── WorkerDied               a worker process ended; `exit_code`
├── TooManyFailures (RuntimeError)  more items failed than `max_failures` allows
└── MissingExtraError (ImportError) an optional library is needed; the message has the install command
```

Wrong *types* are Python's own `TypeError`, and indices out of range its `IndexError`. All of these pickle with their
attributes, so that they survive the way back from a worker process.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CollateError",
    "FeedlineError",
    "FetchError",
    "ImageError",
    "MissingExtraError",
    "NdfError",
    "OptionError",
    "StateError",
    "TooManyFailures",
    "WorkerDied",
    "WorkerError",
]


class FeedlineError(Exception):
    """The base of feedline's own errors.

    Attributes given as keywords are kept as they are and pickle with the error.
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        # BaseException's own __reduce__ calls the class with `args`; subclasses of OSError or ImportError add rules of
        # their own. One explicit form serves them all, and keeps notes (`__notes__` lies in __dict__).
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(cls: type[FeedlineError], args: tuple[Any, ...], facts: dict[str, Any]) -> FeedlineError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class OptionError(FeedlineError, ValueError):
    """An argument has a value that it may not have; the message names the argument, the value and the rule."""


class StateError(FeedlineError, ValueError):
    """A saved state does not fit; the message has one line for each difference."""


class NdfError(FeedlineError, ValueError):
    """An `.ndf` file is refused.

    Attributes:
        kind: `"empty"`, `"bad_magic"`, `"short_header"`, `"truncated_rows"`, `"trailing_bytes"` or `"zero_width"`; or
            `"changed"`, if the file was written over, or is another one, since it was opened; of a folder of shards
            also `"bad_index"` and `"missing"`.
        path: the file, as it was given.
    """

    kind: str
    path: str

    def __init__(self, message: str, *, kind: str, path: str) -> None:
        super().__init__(message, kind=kind, path=path)


class CollateError(FeedlineError, TypeError):
    """Items can't be joined into one batch.

    Attributes:
        path: where in the item, such as `"['target']['boxes']"`; empty for the item itself.
        positions: places in the batch of the items that differ.
    """

    path: str
    positions: tuple[int, ...]

    def __init__(self, message: str, *, path: str = "", positions: tuple[int, ...] = ()) -> None:
        super().__init__(message, path=path, positions=positions)


class ImageError(FeedlineError, ValueError):
    """Bytes that are no usable image.

    Attributes:
        kind: `"empty"`, `"not_an_image"`, `"truncated"`, `"corrupt"`, `"too_large"` or `"unsupported"`.
    """

    kind: str

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message, kind=kind)


class FetchError(FeedlineError, OSError):
    """An item's bytes could not be fetched.

    Attributes:
        kind: `"not_found"`, `"denied"`, `"status"`, `"timeout"`, `"connection"`, `"truncated"`, `"too_large"`,
            `"redirect"`, `"encoding"`, `"location"` or `"store"`.
        index: the item's index in its dataset, or `None` outside of one.
        location: path, URL or key, without a URL's query, user or password.
        attempts: requests that went out.
        status: the HTTP status, where there was one.
    """

    kind: str
    index: Any
    location: str
    attempts: int
    status: int | None

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        index: Any = None,
        location: str = "",
        attempts: int = 0,
        status: int | None = None,
    ) -> None:
        super().__init__(message, kind=kind, index=index, location=location, attempts=attempts, status=status)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class WorkerError(FeedlineError, RuntimeError):
    """What a worker raised can't be raised here as itself.

    Attributes:
        type_name: qualified name of the exception's class.
        traceback_text: the worker's traceback as text.
        index: index of the item, or `None` where it is not known.
    """

    type_name: str
    traceback_text: str
    index: Any

    def __init__(
        self, message: str, *, type_name: str = "", traceback_text: str = "", index: Any = None, **facts: Any
    ) -> None:
        super().__init__(message, type_name=type_name, traceback_text=traceback_text, index=index, **facts)


class WorkerDied(WorkerError):
    """A worker process ended while it had a batch.

    Attributes:
        exit_code: as `multiprocessing` tells it; negative for a signal.
    """

    exit_code: int | None


class TooManyFailures(FeedlineError, RuntimeError):
    """More items failed than `max_failures` allows; the last failure is the cause."""


class MissingExtraError(FeedlineError, ImportError):
    """An optional library is not installed; the message has the command that installs it."""

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtraError:
        """Make the error for `what`, which needs the extra `extra`."""
        return cls(f"{what} needs an optional library: pip install 'feedline[{extra}]'")
