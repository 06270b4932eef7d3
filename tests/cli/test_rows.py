"""Blocks of rows and the summary of their columns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import feedline.cli.rows as rows_module
from feedline.cli.rows import RowFile, Summary
from feedline.errors import NdfError


@pytest.mark.parametrize("block_bytes", [1, 24, 50, 72, 10_000])
def test_blocks_of_any_size_make_up_the_rows(make_ndf, monkeypatch, block_bytes) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", block_bytes)
    rows = np.arange(33.0).reshape(11, 3)
    source = RowFile(make_ndf(rows, l=1))
    blocks = [block.copy() for block in source.blocks(2, 10)]
    assert np.array_equal(np.concatenate(blocks), rows[2:10])
    assert max(block.nbytes for block in blocks) <= max(block_bytes, 24)


def test_a_file_that_is_cut_while_it_is_read_is_an_error_that_names_the_row(make_ndf, monkeypatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 24)
    path = make_ndf(np.ones((5, 3)))
    blocks = RowFile(path).blocks(0, 5)
    next(blocks)
    with open(path, "r+b") as file:
        file.truncate(28 + 3 * 24 + 7)
    with pytest.raises(NdfError, match="cut while it was read: row 3 of 5") as caught:
        list(blocks)
    assert caught.value.kind == "truncated_rows"


VALUES = arrays.arrays(
    np.float64,
    st.tuples(st.integers(0, 8), st.just(3)),
    elements=st.floats(allow_nan=True, allow_infinity=True),
)


@example([np.full((3, 3), np.finfo(np.float64).max)])
@example([np.full((1, 3), 5e-324), np.full((2, 3), 5e-324)])
@given(st.lists(VALUES, max_size=4))
def test_a_summary_does_not_depend_on_how_rows_were_cut_into_blocks(blocks) -> None:
    seen = Summary(3)
    for block in blocks:
        seen.add(block)
    whole = np.concatenate([np.empty((0, 3)), *blocks])
    assert seen.rows == len(whole)
    for i, column in enumerate(seen.columns()):
        finite = whole[:, i][np.isfinite(whole[:, i])]
        assert column.nan == np.isnan(whole[:, i]).sum()
        assert column.infinite == np.isinf(whole[:, i]).sum()
        if len(finite):
            assert (column.minimum, column.maximum) == (finite.min(), finite.max())
            exact = float(sum(map(Fraction, finite.tolist())) / len(finite))
            # Relative to the largest value; below the smallest normal float, to a few of the steps there.
            tolerance = np.abs(finite).max() * 1e-14 + 100 * np.finfo(np.float64).smallest_subnormal
            assert column.mean == pytest.approx(exact, abs=tolerance, rel=1e-12)
        else:
            assert np.isnan([column.minimum, column.maximum, column.mean]).all()


def test_the_mean_of_the_largest_floats_does_not_overflow() -> None:
    largest = np.finfo(np.float64).max
    seen = Summary(1)
    seen.add(np.full((4, 1), largest))
    assert seen.columns()[0].mean == largest
