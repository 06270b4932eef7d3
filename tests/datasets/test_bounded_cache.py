"""The cache keeps what was used last, makes each value once, and belongs to one process."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from feedline.datasets.bounded_cache import BoundedCache


def test_what_was_used_longest_ago_goes_first():
    made = []
    cache = BoundedCache(2)

    def make(key):
        made.append(key)
        return key

    for key in "abacab":
        assert cache.get(key, make) == key
    assert made == ["a", "b", "c", "b"]
    assert cache.keys() == ["a", "b"]


def test_weights_are_added_up_and_the_newest_is_kept_in_any_case():
    cache = BoundedCache(10, weigh=lambda value: value)
    for key, weight in enumerate([4, 6, 3, 100, 2]):
        cache.get(key, lambda _, w=weight: w)
    assert cache.keys() == [4]
    cache.get(5, lambda _: 8)
    assert cache.keys() == [4, 5]
    cache.get(6, lambda _: 1)
    assert cache.keys() == [5, 6]
    cache.clear()
    assert cache.keys() == []


def test_a_value_that_several_want_at_once_is_made_once():
    cache = BoundedCache(4)
    entered, leave = threading.Event(), threading.Event()
    made = []

    def make(key):
        made.append(key)
        entered.set()
        assert leave.wait(30)
        return object()

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(cache.get, "a", make)
        assert entered.wait(30)
        others = [pool.submit(cache.get, "a", make) for _ in range(2)]
        # Another key is not held up.
        assert pool.submit(cache.get, "b", str.upper).result(30) == "B"
        leave.set()
        assert {id(other.result(30)) for other in others} == {id(first.result(30))}
    assert made == ["a"]


def test_an_error_is_not_kept_and_each_that_waits_tries_by_itself():
    cache = BoundedCache(4)

    def fail(key):
        raise ValueError(key)

    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            cache.get("a", fail)
    assert cache.get("a", str.upper) == "A"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_knows_that_the_cache_is_not_its_own():
    cache = BoundedCache(4)
    assert not cache.is_foreign()
    pid = os.fork()
    if pid == 0:
        os._exit(7 if cache.is_foreign() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
