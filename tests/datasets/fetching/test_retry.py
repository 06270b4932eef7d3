"""How often, and after what wait, a fetch is tried again."""

from __future__ import annotations

import pickle
import random
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.datasets.fetching.retry import Retry, parse_retry_after
from feedline.errors import OptionError

NOW = 1_700_000_000.0


def test_the_defaults_are_three_retries_within_ten_seconds() -> None:
    assert Retry() == Retry(max_retries=3, initial_backoff=0.2, max_backoff=10.0)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"max_retries": -1}, OptionError, "max_retries"),
        ({"max_retries": 33}, OptionError, "32"),
        ({"max_retries": 1.5}, TypeError, "max_retries"),
        ({"max_retries": True}, TypeError, "True"),
        ({"initial_backoff": -0.1}, OptionError, "initial_backoff"),
        ({"initial_backoff": float("nan")}, OptionError, "nan"),
        ({"max_backoff": float("inf")}, OptionError, "max_backoff"),
        ({"max_backoff": "10"}, TypeError, "'10'"),
    ],
)
def test_values_out_of_their_interval_are_refused_by_name(
    options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        Retry(**options)


def test_a_retry_can_not_be_changed_and_pickles() -> None:
    retry = Retry(2, 0.5, 4)
    with pytest.raises(AttributeError):
        retry.max_retries = 3  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(retry)) == retry


@given(
    retry=st.integers(0, 32),
    initial=st.floats(0, 100),
    most=st.floats(0, 100),
    fraction=st.floats(0, 1),
)
def test_a_wait_lies_in_the_second_half_of_the_backoff(
    retry: int, initial: float, most: float, fraction: float
) -> None:
    backoff = min(initial * 2**retry, most)
    wait = Retry(32, initial, most).wait(retry, fraction)
    assert backoff / 2 <= wait <= backoff


def test_waits_grow_differ_between_clients_and_leave_the_global_generator_alone() -> None:
    state = random.getstate()
    retry = Retry(32, 1.0, 1000.0)
    first, second = ([retry.wait(number) for number in range(8)] for _ in range(2))
    assert first == sorted(first)
    assert first != second
    assert random.getstate() == state


def imf(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1", 1.0),
        ("0", 0.0),
        ("007", 7.0),
        (" 2\t", 2.0),
        (imf(NOW + 1), 1.0),
        (imf(NOW - 100), 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Sun Nov  6 08:49:37 1994", 0.0),
        ("Fri, 31 Dec 2100 23:59:60 GMT", 4133980799 - NOW),
        ("9" * 4000, float("inf")),
        ("9" * 5000, float("inf")),
    ],
)
def test_seconds_and_dates_are_read(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-5",
        "1.5",
        "+1",
        "abc",
        "1 s",
        "٣",
        "1, 2",
        "Sat, 01 Jan 99999 00:00:00 GMT",
        "Sat, 31 Feb 2026 00:00:00 GMT",
        "Sat, 01 Jan 2026 25:00:00 GMT",
        "Sat, 01 Jan 0000 00:00:00 GMT",
        "01 Jan 2026 00:00:00 GMT",
        "\0",
    ],
)
def test_what_can_not_be_read_is_ignored(value: str) -> None:
    assert parse_retry_after(value, NOW) is None


@settings(max_examples=50)
@given(
    st.lists(
        st.one_of(st.text(max_size=20), st.text(alphabet="0123456789 :-,GMTJanSu", max_size=40)), max_size=3
    )
)
def test_no_header_ever_raises(values: list[str]) -> None:
    seconds = parse_retry_after(values, NOW)
    assert seconds is None or seconds >= 0


def test_of_several_headers_the_longest_readable_wait_counts() -> None:
    assert parse_retry_after(["2", "nonsense", "1"], NOW) == 2.0
    assert parse_retry_after([], NOW) is None
    assert parse_retry_after(None, NOW) is None


def test_a_server_may_ask_for_at_most_the_longest_backoff() -> None:
    retry = Retry(3, 0.2, 10.0)
    assert retry.wait_asked(0, float("inf")) == 10.0
    assert retry.wait_asked(0, 3.0) == 3.0
    assert retry.wait_asked(2, 0.0) == 0.0
    assert 0.1 <= retry.wait_asked(0, None) <= 0.2
