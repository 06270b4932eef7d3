"""Comma-separated numbers: header or none, quotes, blank lines, any part alone, and errors with line and column."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feedline.convert.csv_file as csv_file
from feedline.convert.csv_file import CsvSource
from feedline.errors import OptionError


def read(path, start=0, stop=None, labels=None, columns=None):
    source = CsvSource(str(path), labels, columns)
    blocks = [
        np.hstack([part for _, part in block])
        for block in source.blocks(start, source.n if stop is None else stop)
    ]
    return source, np.vstack(blocks)


def write(folder, text, name="a.csv"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2\n3,4\n", ["0", "1"], [[1, 2], [3, 4]]),
        ("a,b\n3,4\n", ["a", "b"], [[3, 4]]),
        ("1,b\n3,4\n", ["1", "b"], [[3, 4]]),
        ("a,b\r\n3,4\r\n", ["a", "b"], [[3, 4]]),
        ("\ufeffa,b\n3,4", ["a", "b"], [[3, 4]]),
        ("\ufeff1,2\n3,4", ["0", "1"], [[1, 2], [3, 4]]),
        ("\n\na,b\n\n3,4\n  \n5,6\n\n", ["a", "b"], [[3, 4], [5, 6]]),
        ('"a, b",c\n"3",4\n 5 , "6"\n', ["a, b", "c"], [[3, 4], [5, 6]]),
        ("x\n-1e3\n+.5\n1E-300\n", ["x"], [[-1000], [0.5], [1e-300]]),
        ("nan,inf\n1,-infinity\n", ["0", "1"], [[math.nan, math.inf], [1, -math.inf]]),
        ("größe\n1\n", ["größe"], [[1]]),
        ("1_000,2\n3,4\n", ["1_000", "2"], [[3, 4]]),
        (",\n3,4\n", ["", ""], [[3, 4]]),
        ("9007199254740992,-18014398509481984\n", ["0", "1"], [[2**53, -(2**54)]]),
        ("9007199254740993.0,9007199254740993e0\n", ["0", "1"], [[2**53, 2**53]]),
    ],
    ids=lambda value: repr(value) if isinstance(value, str) else "",
)
def test_lines_are_read(tmp_path, text, names, rows):
    source, found = read(write(tmp_path, text))
    assert source.names == names
    assert source.n == len(rows)
    assert np.array_equal(found, np.array(rows, float), equal_nan=True)


numbers = st.floats(width=64) | st.integers(-(2**60), 2**60).map(float)


@settings(max_examples=30)
@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1)
    )
)
def test_numbers_are_read_as_python_reads_them_the_fast_way_and_the_slow(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("csv")
    plain = write(folder, "".join(",".join(map(repr, row)) + "\n" for row in rows))
    quoted = write(folder, "".join(",".join(f'"{value!r}"' for value in row) + "\n" for row in rows), "q.csv")
    expected = np.array(rows)
    for path in (plain, quoted):
        found = read(path)[1]
        assert np.array_equal(found, expected, equal_nan=True)
        assert np.array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(expected)[~np.isnan(expected)])


def test_any_part_can_be_read_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "STRIDE", 16)
    lines = [f"{k},{k / 3!r}\n" + "\n" * (k % 3 == 0) for k in range(200)]
    path = write(tmp_path, "a,b\n" + "".join(lines))
    everything = np.array([[k, k / 3] for k in range(200)])
    for start, stop in [(0, 200), (0, 1), (15, 17), (16, 32), (31, 150), (199, 200)]:
        assert np.array_equal(read(path, start, stop)[1], everything[start:stop])


def test_chosen_columns_are_read_beside_texts(tmp_path):
    path = write(tmp_path, "name,a,b,y\nAda,1,2,3\n#x,4,5,6\n")
    source, rows = read(path, labels=["y"], columns=["b", "a"])
    assert (source.d, source.l) == (2, 1)
    assert rows.tolist() == [[2, 1, 3], [5, 4, 6]]
    path = write(tmp_path, 'name,a,b,y\n"Ada, the first",1,2,3\n')
    assert read(path, labels=["y"], columns=["b"])[1].tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: it has not a single line"),
        ("\n \n", "is empty: it has not a single line"),
        ("1,2\n3\n", r"line 2 of .*a\.csv' has 1 values, where 2 are expected"),
        ("a,b\n\n1,2\n\n3,4,5\n", r"line 5 of .* has 3 values, where 2 are expected"),
        ("a,b\n1,\n", r"column 'b' of line 2 of .* is empty: .* write nan"),
        ("a,b\n1,2\n1,x\n", r"column 'b' of line 3 of .* is 'x', which is no number"),
        ("a\n1_000\n", r"column 'a' of line 2 of .* is '1_000', which is no number"),
        ("a\n0x10\n", "is '0x10', which is no number"),
        ("a;b\n1;2\n", "is '1;2', which is no number"),
        (
            "1,2\n9007199254740993,4\n",
            r"column '0' of line 2 of .*a\.csv' is '9007199254740993', which float64 can't",
        ),
        ('a,b\n1,2\n3,"-9007199254740995"\n', r"column 'b' of line 3 of .* can't hold exactly"),
        ("a\n00018014398509481985\n", "can't hold exactly"),
        ("a\n1" + "0" * 400 + "\n", "can't hold exactly"),
        ("a\n" + "7" * 5000 + "\n", "can't hold exactly"),
        ('a,b\n1,"2\n3,4\n', r"line 2 of .* can't be read"),
        ("a\n" + "z" * 1000, "is 'zzzz"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_lines_that_are_no_rows_are_told_with_line_and_column(tmp_path, text, said):
    path = write(tmp_path, text)
    with pytest.raises(OptionError, match=said) as caught:
        read(path)
    assert len(str(caught.value)) < 400


def test_a_large_int_of_a_column_that_is_left_out_is_no_matter(tmp_path):
    path = write(tmp_path, "id,a\n9007199254740993,4\n")
    assert read(path, columns=["a"])[1].tolist() == [[4]]


def test_the_line_of_an_error_far_into_a_file_is_right(tmp_path):
    lines = ["1,2\n"] * 20_000
    lines[12_345] = "1,2,3\n"
    path = write(tmp_path, "".join(lines))
    with pytest.raises(OptionError, match=r"line 12346 of"):
        read(path, 10_000, 20_000)


def test_a_file_of_a_header_alone_has_no_rows(tmp_path):
    assert CsvSource(str(write(tmp_path, "a,b\n")), None, None).n == 0


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path):
    path = write(tmp_path, "1,2\n" * 100)
    source = CsvSource(str(path), None, None)
    write(tmp_path, "1,2\n" * 50)
    with pytest.raises(OptionError, match="ends before row 100 of 100: it was cut"):
        list(source.blocks(0, 100))
