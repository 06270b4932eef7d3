"""Parquet and Arrow files as sources: chosen columns, lists, groups of any size, and what is no number."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.convert.conversion import convert
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.ndf_shards import NdfShards
from feedline.errors import OptionError

pa = pytest.importorskip("pyarrow", reason="tables need the extra 'tables'")
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as parquet  # noqa: E402

N = 100
A = np.arange(N, dtype="i4")
B = np.random.default_rng(0).normal(size=(N, 3)).astype("f4")
TABLE = pa.table(
    {
        "a": A,
        "name": [f"n{k}" for k in range(N)],
        "b": pa.FixedSizeListArray.from_arrays(B.reshape(-1), 3),
        "c": pa.array([[float(k), -1.0] for k in range(N)]),
        "flag": A % 2 == 0,
        "y": A.astype("i8") * 3,
        "code": pa.array(A % 5).dictionary_encode(),
    }
)
EXPECTED = np.column_stack([A, B, A, np.full(N, -1.0), A % 2 == 0, A % 5])


def write(path, table=TABLE, rows=30):
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
    else:
        feather.write_feather(table, path, chunksize=rows, compression="zstd")
    return path


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather"])
@pytest.mark.parametrize("rows", [1000, 30, 7])
def test_chosen_columns_are_converted_and_lists_become_columns(tmp_path, name, rows):
    path = write(tmp_path / name, rows=rows)
    options = {"labels": ["y"], "columns": ["a", "b", "c", "flag", "code"]}
    convert(path, tmp_path / "out.ndf", **options)
    x, y = NdfDataset(tmp_path / "out.ndf").take(np.arange(N), np.empty)
    assert np.array_equal(x, EXPECTED)
    assert np.array_equal(y[:, 0], 3 * A)
    convert(path, tmp_path / "out", rows_per_shard=13, **options)
    assert np.array_equal(NdfShards(tmp_path / "out").take(np.arange(N), np.empty)[0], EXPECTED)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"t": ["a", "b"]}, {}, "column 't' of .* holds string, which is no number; leave it out"),
        ({"t": [["a"], ["b"]]}, {}, "column 't' of .* holds list"),
        ({"t": pa.array([1, 2], pa.timestamp("s"))}, {}, "column 't' of .* holds dates"),
        ({"t": [1.0, None]}, {}, r"column 't' of .*: 1 values are missing \(null\), the first in row 1"),
        ({"t": [[1.0], [1.0, 2.0]]}, {}, r"lists of unequal lengths \(1 to 2\)"),
        ({"t": [[1.0], [None]]}, {}, "missing values"),
        ({"t": [1.0, 2.0]}, {"labels": ["y"]}, "has no column 'y'; it has 't'"),
        ({"t": pa.array([], pa.float64())}, {}, "has no rows"),
        ({"t": [2**53 + 1, 1]}, {}, "column 't'.* is 9007199254740993, which float64 can't hold exactly"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_number_is_told_with_its_column(tmp_path, columns, options, said):
    path = write(tmp_path / "t.parquet", pa.table(columns))
    with pytest.raises(OptionError, match=said):
        convert(path, tmp_path / "out.ndf", **options)


def test_lists_of_another_length_in_a_later_group_are_told(tmp_path):
    path = write(tmp_path / "t.parquet", pa.table({"t": [[1.0], [2.0], [3.0, 4.0], [5.0, 6.0]]}), rows=2)
    with pytest.raises(OptionError, match="lists of 2 values from row 2 on, the first have 1"):
        convert(path, tmp_path / "out.ndf")


def test_a_file_that_is_no_table_is_told(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"nonsense")
    with pytest.raises(OptionError, match="is neither a Parquet nor an Arrow file: it begins with b'nonsen'"):
        convert(tmp_path / "t.parquet", tmp_path / "out.ndf")
