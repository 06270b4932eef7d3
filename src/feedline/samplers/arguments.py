"""Checks of the samplers' arguments: each names the argument, the value and the rule."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from feedline.errors import OptionError

__all__ = [
    "MAX_LENGTH",
    "check_batch_number",
    "check_bool",
    "check_choice",
    "check_int",
    "check_length",
    "check_position",
]

#: The most items a dataset may have: positions are signed 64-bit numbers, and `len()` gives no more.
MAX_LENGTH = 2**63 - 1


def check_int(name: str, value: Any, minimum: int, maximum: int = MAX_LENGTH) -> int:
    """Return `value` as a plain int in [minimum, maximum].

    Raises:
        TypeError: it is not integer-like; bools are not.
        OptionError: it is out of range.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__} {value!r}") from None
    if number < minimum:
        raise OptionError(f"{name} must be at least {minimum}, not {number}")
    if number > maximum:
        raise OptionError(f"{name} must be at most {maximum}, not {number}")
    return number


def check_length(length: Any) -> int:
    """Return the length of a dataset as a plain int in [0, 2**63 - 1]; raises as `check_int` does."""
    return check_int("length", length, 0)


def check_bool(name: str, value: Any) -> bool:
    """Return `value` as a bool, and refuse what only looks like one (`"False"`, 1) with a `TypeError`."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__} {value!r}")
    return bool(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value`, one of `choices`.

    Raises:
        TypeError: it is no str.
        OptionError: it is none of them.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, one of {', '.join(map(repr, choices))}, not {value!r}")
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def check_position(position: Any) -> int:
    """Return a position as a plain int >= 0 of any size: beyond the end there is nothing left."""
    if isinstance(position, (bool, np.bool_)) or not hasattr(position, "__index__"):
        raise TypeError(f"position must be an int, not {type(position).__name__} {position!r}")
    number = int(position.__index__())
    if number < 0:
        raise OptionError(f"position must be at least 0, not {number}")
    return number


def check_batch_number(number: Any, count: int) -> int:
    """Return the number of one of `count` batches, 0 to `count` - 1; negative ones count from the end, as in a list.

    Raises:
        TypeError: it is not integer-like; bools are not.
        IndexError: there is no such batch.
    """
    if isinstance(number, (bool, np.bool_)) or not hasattr(number, "__index__"):
        raise TypeError(f"a batch number must be an int, not {type(number).__name__} {number!r}")
    place = operator.index(number)
    if not -count <= place < count:
        raise IndexError(f"there is no batch {place}: the epoch has {count}")
    return place + count if place < 0 else place
