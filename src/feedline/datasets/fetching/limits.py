"""The limits that the datasets of bytes have in common, checked when they are built."""

from __future__ import annotations

import operator
from typing import Any

from feedline.datasets.fetching.retry import Retry, check_seconds
from feedline.errors import OptionError

__all__ = ["DEFAULT_MAX_BYTES", "check_limit", "check_positive", "check_retry"]

DEFAULT_MAX_BYTES = 64 * 1024 * 1024


def check_positive(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1; a `TypeError` or an `OptionError` naming the argument otherwise."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__} {value!r}") from None
    if number < 1:
        raise OptionError(f"{name} must be at least 1, not {number}")
    return number


def check_limit(name: str, value: Any) -> float | None:
    """Return `value` as seconds above 0, or `None` for no limit; raises as `check_seconds` does."""
    return None if value is None else check_seconds(name, value, positive=True)


def check_retry(value: Any) -> Retry:
    """Return `value` if it is a `Retry`; a `TypeError` that tells what to write otherwise."""
    if not isinstance(value, Retry):
        raise TypeError(f"retry must be a Retry, not {value!r}: write Retry(max_retries=3)")
    return value
