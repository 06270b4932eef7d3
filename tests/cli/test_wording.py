"""What is printed is safe for any terminal and in plain words."""

from __future__ import annotations

import os

import pytest

from feedline.cli.wording import count, printable, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("données 数据.ndf", "données 数据.ndf"),
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        (os.fsdecode(b"\xff.ndf"), "\\udcff.ndf"),
    ],
)
def test_what_a_terminal_would_obey_or_can_not_show_is_escaped(text, shown) -> None:
    assert printable(text) == shown
    printable(text).encode()


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1,023 bytes"), (1024, "1.0 KiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_have_a_unit_that_suits_them(number, shown) -> None:
    assert size(number) == shown


def test_sizes_beyond_the_largest_unit_stay_in_it() -> None:
    assert size(2**60) == "1048576.0 TiB"


def test_an_irregular_plural_is_given() -> None:
    assert (count(2, "batch", "batches"), count(1, "batch", "batches")) == ("2 batches", "1 batch")
