"""Which rows make which part: every row once, in order, and the same plan in every run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.convert.columns import as_names, choose
from feedline.convert.plan import RANGE_BYTES, SHARD_BYTES, make_plan
from feedline.errors import OptionError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader


def assert_covers(plan, n):
    assert plan.parts[0].start == 0
    assert plan.parts[-1].stop == n
    assert all(one.stop == other.start for one, other in zip(plan.parts, plan.parts[1:], strict=False))
    assert [part.number for part in plan.parts] == list(range(len(plan.parts)))


@given(st.integers(1, 10**6), st.integers(1, 300))
def test_shards_by_their_number_differ_by_one_row_at_most(n, shards):
    header = NdfHeader(n, 3, 1)
    if shards > n:
        with pytest.raises(OptionError, match="can't be made of"):
            make_plan(header, is_single=False, num_shards=shards)
        return
    plan = make_plan(header, is_single=False, num_shards=shards)
    assert_covers(plan, n)
    sizes = {part.stop - part.start for part in plan.parts}
    assert len(plan.parts) == shards
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_shards_by_rows_are_full_but_the_last(n, rows):
    plan = make_plan(NdfHeader(n, 3, 1), is_single=False, rows_per_shard=rows)
    assert_covers(plan, n)
    assert all(part.stop - part.start == rows for part in plan.parts[:-1])
    assert 1 <= plan.parts[-1].stop - plan.parts[-1].start <= rows
    assert all(part.size_bytes == part.header.file_bytes for part in plan.parts)
    assert sum(part.header.n for part in plan.parts) == n


@given(st.integers(1, 10**9), st.integers(1, 10**5))
def test_the_ranges_of_a_single_file_are_its_bytes_after_the_header(n, d):
    header = NdfHeader(n, d, 0)
    if header.file_bytes // RANGE_BYTES > 10_000:
        return
    plan = make_plan(header, is_single=True)
    assert_covers(plan, n)
    assert plan.parts[0].offset == HEADER_BYTES
    assert all(part.offset == HEADER_BYTES + part.start * header.row_bytes for part in plan.parts)
    assert HEADER_BYTES + sum(part.size_bytes for part in plan.parts) == header.file_bytes
    assert all(part.size_bytes <= max(RANGE_BYTES, header.row_bytes) for part in plan.parts)


def test_by_default_shards_have_about_256_mib():
    plan = make_plan(NdfHeader(10**6, 128, 0), is_single=False)
    assert len(plan.parts) == 4
    assert plan.parts[0].size_bytes == SHARD_BYTES + HEADER_BYTES
    # A row that is larger is a shard of its own.
    assert len(make_plan(NdfHeader(3, SHARD_BYTES, 0), is_single=False).parts) == 3


def test_names_sort_as_numbers_do():
    parts = make_plan(NdfHeader(100_001, 1, 0), is_single=False, rows_per_shard=1).parts
    names = [part.file for part in parts]
    assert names == sorted(names)
    assert (names[0], names[-1]) == ("shard-000000.ndf", "shard-100000.ndf")
    assert make_plan(NdfHeader(9, 1, 0), is_single=False).parts[0].file == "shard-00000.ndf"


def test_far_too_many_shards_are_refused():
    with pytest.raises(OptionError, match="would make 100000000000 files"):
        make_plan(NdfHeader(10**11, 1, 0), is_single=False, rows_per_shard=1)


def test_the_digest_tells_plans_and_sources_apart():
    header = NdfHeader(100, 2, 1)
    plan = make_plan(header, is_single=False, num_shards=3)
    digests = {
        plan.digest({"file": 1}),
        plan.digest({"file": 2}),
        make_plan(header, is_single=False, num_shards=4).digest({"file": 1}),
        make_plan(NdfHeader(100, 1, 2), is_single=False, num_shards=3).digest({"file": 1}),
        make_plan(header, is_single=True).digest({"file": 1}),
    }
    assert len(digests) == 5
    assert plan.digest({"file": 1}) == make_plan(header, is_single=False, num_shards=3).digest({"file": 1})


@pytest.mark.parametrize(
    ("labels", "columns", "expected"),
    [
        (None, None, ([0, 1, 2], [])),
        (["b"], None, ([0, 2], [1])),
        (["c", "a"], None, ([1], [2, 0])),
        (["c"], ["b"], ([1], [2])),
        (None, ["c", "a"], ([2, 0], [])),
        (["a", "b", "c"], None, ([], [0, 1, 2])),
        ([], [], None),
    ],
)
def test_columns_are_chosen_by_name(labels, columns, expected):
    if expected is None:
        with pytest.raises(OptionError, match="no columns"):
            choose("t", "abc", labels, columns)
    else:
        assert choose("t", "abc", labels, columns) == expected


@pytest.mark.parametrize(
    ("names", "labels", "columns", "said"),
    [
        ("abc", ["d"], None, "t has no column 'd'; it has 'a', 'b', 'c'"),
        ("aba", ["a"], None, "t has 2 columns named 'a'"),
        ("abc", ["a"], ["a"], "'a' of t can't be a feature and a label"),
        (list(map(str, range(20))), ["y"], None, "'11' and 8 more"),
    ],
)
def test_names_that_do_not_tell_a_column_are_refused(names, labels, columns, said):
    with pytest.raises(OptionError, match=said):
        choose("t", names, labels, columns)


def test_a_list_of_names_is_a_list():
    assert as_names("labels", None) is None
    assert as_names("labels", ["a", "b"]) == ("a", "b")
    with pytest.raises(TypeError, match=r"must be a list of names such as \['y'\]"):
        as_names("labels", "y")
    with pytest.raises(TypeError, match="has 3"):
        as_names("labels", [3])
    with pytest.raises(OptionError, match="names 'a' twice"):
        as_names("labels", ["a", "a"])
