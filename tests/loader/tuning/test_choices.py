"""What is tried, and in which order."""

from __future__ import annotations

import pytest

from feedline.loader.tuning.choices import Choice, choices, usual_numbers


@pytest.mark.parametrize(
    ("cores", "numbers"),
    [(1, [0, 1, 2]), (2, [0, 1, 2, 4]), (6, [0, 1, 2, 4, 6, 8]), (16, [0, 1, 2, 4, 8, 16, 32])],
)
def test_usual_numbers_reach_twice_the_cores(cores: int, numbers: list[int]) -> None:
    assert usual_numbers(cores) == numbers


def test_each_choice_comes_once_and_the_present_one_first() -> None:
    found = choices(["thread", "process"], [2, 0, 1, 2], now=Choice("process", 2))
    assert found == [
        Choice("process", 2),
        Choice("thread", 0),
        Choice("thread", 1),
        Choice("thread", 2),
        Choice("process", 1),
    ]


def test_without_a_zero_there_is_no_trial_without_workers() -> None:
    assert choices(["thread"], [1]) == [Choice("thread", 1)]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice("thread", 0), "no workers"),
        (Choice("thread", 1), "1 thread"),
        (Choice("process", 1), "1 process"),
        (Choice("process", 2), "2 processes"),
        (Choice("ray", 3), "3 ray workers"),
    ],
)
def test_a_choice_reads_well(choice: Choice, words: str) -> None:
    assert str(choice) == words
