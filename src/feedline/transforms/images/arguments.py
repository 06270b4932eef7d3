"""Checks of the arguments of image steps; each error names the step, the argument, the value and the rule."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from feedline.errors import OptionError

__all__ = ["flag", "height_width", "interval", "numbers_of", "probability", "real", "whole"]


def whole(step: str, name: str, value: Any, least: int = 0) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{step}: {name} must be an int, not {type(value).__name__} {value!r}")
    if value < least:
        raise OptionError(f"{step}: {name} must be at least {least}, not {value}")
    return int(value)


def real(step: str, name: str, value: Any, least: float = -math.inf) -> float:
    """Return `value` as a finite float of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{step}: {name} must be a number, not {type(value).__name__} {value!r}")
    number = float(value)
    if not math.isfinite(number) or number < least:
        bound = "" if least == -math.inf else f" and at least {least:g}"
        raise OptionError(f"{step}: {name} must be finite{bound}, not {value!r}")
    return number


def flag(step: str, name: str, value: Any) -> bool:
    """Return `value`, a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{step}: {name} must be True or False, not {type(value).__name__} {value!r}")
    return bool(value)


def probability(step: str, value: Any) -> float:
    """Return `value` as a float between 0 and 1."""
    p = real(step, "p", value)
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"{step}: p is a probability, so between 0 and 1, not {value!r}")
    return p


def numbers_of(step: str, name: str, value: Any, lengths: Sequence[int]) -> tuple[float, ...]:
    """Return `value`, a sequence of finite numbers of one of these lengths, as a tuple of floats."""
    if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
        raise TypeError(f"{step}: {name} must be a sequence of numbers, not {type(value).__name__} {value!r}")
    if len(value) not in lengths:
        allowed = " or ".join(str(length) for length in lengths)
        raise OptionError(f"{step}: {name} must have {allowed} numbers, not {len(value)}: {value!r}")
    return tuple(real(step, f"{name}[{place}]", part) for place, part in enumerate(value))


def interval(step: str, name: str, value: Any, least: float = -math.inf) -> tuple[float, float]:
    """Return `value` as `(low, high)` with `least <= low <= high`."""
    low, high = numbers_of(step, name, value, (2,))
    if low > high or low < least:
        bound = "" if least == -math.inf else f", both at least {least:g}"
        raise OptionError(f"{step}: {name} must be (low, high) with low <= high{bound}, not {value!r}")
    return low, high


def height_width(step: str, value: Any, name: str = "size") -> tuple[int, int]:
    """Return `value`, an int (a square) or a pair (height, width), as a pair."""
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes)):
        if len(value) == 1:
            value = (value[0], value[0])
        if len(value) != 2:
            raise OptionError(f"{step}: {name} must be an int or (height, width), not {value!r}")
        return whole(step, f"{name}[0]", value[0], 1), whole(step, f"{name}[1]", value[1], 1)
    side = whole(step, name, value, 1)
    return side, side
