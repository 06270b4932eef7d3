"""How often, and after what wait, a fetch is tried again. Pure: nothing here sleeps or reads a clock."""

from __future__ import annotations

import calendar
import math
import operator
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from feedline.errors import OptionError

__all__ = ["Retry", "check_seconds", "parse_retry_after"]

# Jitter must differ between processes and ranks, and never touch the global generator: the system's entropy does both.
_JITTER = random.SystemRandom()


def check_seconds(name: str, value: Any, *, positive: bool = False) -> float:
    """Return `value` as a float of seconds: finite, and not negative (or above zero, with `positive`).

    Raises:
        TypeError: it is not a number (bools are not).
        OptionError: it is negative, infinite or NaN, or zero with `positive`.
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be seconds as a number, not {type(value).__name__} {value!r}")
    seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0 or (positive and seconds == 0):
        rule = "above 0" if positive else "0 or more"
        raise OptionError(f"{name} must be finite seconds, {rule}, not {value!r}")
    return seconds


@dataclass(frozen=True)
class Retry:
    """How often a failed fetch is tried again, and how long to wait before.

    The wait before retry `n` (from 0) is `min(initial_backoff * 2**n, max_backoff)`, of which the second half is
    random, so that many clients that failed together do not come back together.

    Attributes:
        max_retries: tries after the first, 0 to 32.
        initial_backoff: seconds, 0 or more.
        max_backoff: seconds, 0 or more; also the longest wait that a server may ask for by `Retry-After`.

    Raises:
        TypeError: a value that is not a number.
        OptionError: a value out of its interval.

    Example:
        >>> Retry(max_retries=2, initial_backoff=0.5, max_backoff=4.0).wait(1, fraction=1.0)
        1.0
    """

    max_retries: int = 3
    initial_backoff: float = 0.2
    max_backoff: float = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_retries", _check_retries(self.max_retries))
        for name in ("initial_backoff", "max_backoff"):
            object.__setattr__(self, name, check_seconds(name, getattr(self, name)))

    def wait(self, retry: int, fraction: float | None = None) -> float:
        """Return the seconds to wait before `retry` (from 0): between half of the backoff and all of it.

        `fraction` in [0, 1] says how much of the random half is taken; by default it is drawn from the system's
        entropy.
        """
        # 2.0**retry is exact up to retry 32; a larger one is capped before it could overflow.
        backoff = min(self.initial_backoff * 2.0 ** min(retry, 64), self.max_backoff)
        share = _JITTER.random() if fraction is None else fraction
        return backoff * (0.5 + 0.5 * share)

    def wait_asked(self, retry: int, retry_after: float | None) -> float:
        """Return the seconds to wait before `retry`, when the server may have asked for `retry_after` seconds."""
        if retry_after is None:
            return self.wait(retry)
        return min(retry_after, self.max_backoff)


def _check_retries(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"max_retries must be an int, not {value!r}")
    try:
        retries = operator.index(value)
    except TypeError:
        raise TypeError(f"max_retries must be an int, not {type(value).__name__} {value!r}") from None
    if not 0 <= retries <= 32:
        raise OptionError(f"max_retries must be between 0 and 32, not {retries}")
    return retries


def parse_retry_after(values: str | Iterable[str] | None, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header asks to wait, or `None` if nobody can tell.

    Read as RFC 9110, section 10.2.3: whole seconds, or a date in one of the three forms of section 5.6.7. A date
    that is past means at once (0.0). If the header came several times, the longest readable wait counts.

    Args:
        values: the header's value, or its values.
        now: the time, in seconds since 1970 (UTC).

    Raises: nothing, whatever a server sends.
    """
    if values is None:
        return None
    readings = [_read_one(value, now) for value in ([values] if isinstance(values, str) else values)]
    return max((seconds for seconds in readings if seconds is not None), default=None)


def _read_one(value: str, now: float) -> float | None:
    value = value.strip(" \t")
    if re.fullmatch(r"[0-9]+", value):
        # float() reads any number of digits (int() refuses thousands of them); beyond its range it is infinite.
        return float(value)
    date = _read_date(value, now)
    return None if date is None else max(0.0, date - now)


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_DATES = (
    re.compile(rf"{_DAY}, (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT", re.ASCII),
    re.compile(rf"{_DAY}[a-z]{{3,6}}, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT", re.ASCII),
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})", re.ASCII),
)


def _read_date(value: str, now: float) -> float | None:
    match = next((found for form in _DATES if (found := form.fullmatch(value))), None)
    if match is None:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        # RFC 9110: a two-digit year that looks more than 50 years ahead is the latest such year in the past.
        this_year = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=now)).year
        year += this_year - this_year % 100
        year -= 100 if year > this_year + 50 else 0
    month = _MONTHS.index(match["month"]) + 1
    seconds = min(int(match["second"]), 59)  # a leap second is written as 60
    try:
        date = datetime(year, month, int(match["day"]), int(match["hour"]), int(match["minute"]), seconds)
    except ValueError:
        return None
    return float(calendar.timegm(date.timetuple()))
