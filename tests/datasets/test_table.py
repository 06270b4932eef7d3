"""Tables read a group at a time: items of every kind of column, batches of numbers, nulls, threads, forks, changed files."""

from __future__ import annotations

import datetime
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from feedline.datasets.table import TableDataset
from feedline.errors import MissingExtraError, OptionError
from feedline.loader.dataloader import DataLoader
from feedline.testing.dataset_contract import DatasetContract, same

pa = pytest.importorskip("pyarrow", reason="tables need the extra 'tables'")
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as parquet  # noqa: E402

N = 60
NUMBERS = {
    "i": np.arange(N, dtype="i4"),
    "f": np.linspace(0, 1, N).astype("f4"),
    "flag": np.arange(N) % 3 == 0,
    "u": np.arange(N).astype("u1"),
    "at": np.datetime64("2024-01-01", "ms") + np.arange(N),
    "day": np.datetime64("2024-01-01", "D") + np.arange(N),
    "took": np.arange(N).astype("m8[ms]"),
}
VECTORS = np.arange(3 * N, dtype="f8").reshape(N, 3)
NUMERIC = pa.table(
    {
        **NUMBERS,
        "zone": pa.array(NUMBERS["at"]).cast(pa.timestamp("ms", "Europe/Berlin")),
        "vector": pa.FixedSizeListArray.from_arrays(VECTORS.reshape(-1), 3),
        "code": pa.array(np.arange(N) % 4).dictionary_encode(),
    }
)
OTHERS = pa.table(
    {
        "text": [f"t{k}" for k in range(N)],
        "large": pa.array([f"t{k}" for k in range(N)], pa.large_string()),
        "label": pa.array(["a", "b"] * (N // 2)).dictionary_encode(),
        "raw": [bytes([k]) for k in range(N)],
        "ragged": pa.array([np.arange(k % 4) for k in range(N)], pa.list_(pa.int64())),
        "words": [["x"] * (k % 3) for k in range(N)],
        "inner": [{"a": k, "b": str(k)} for k in range(N)],
        "time": pa.array([datetime.time(k % 24) for k in range(N)]),
        "n": np.arange(N),
    }
)


def write(path, table, rows=7):
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
    else:
        feather.write_feather(table, path, chunksize=rows, compression="lz4")
    return path


@pytest.fixture(params=["t.parquet", "t.arrow"])
def numeric(request, tmp_path):
    return write(tmp_path / request.param, NUMERIC)


@pytest.fixture(params=["t.parquet", "t.arrow"])
def others(request, tmp_path):
    return write(tmp_path / request.param, OTHERS)


class TestNumericTable(DatasetContract):
    @pytest.fixture(autouse=True)
    def _file(self, numeric):
        self.make_dataset = lambda: TableDataset(numeric)


class TestTableOfOtherThings(DatasetContract):
    @pytest.fixture(autouse=True)
    def _file(self, others):
        self.make_dataset = lambda: TableDataset(others, ["text", "raw", "words", "inner", "n", "ragged"])


class TestManyTables(DatasetContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        paths = [write(tmp_path / f"{k}.parquet", NUMERIC.slice(k * 20, 20)) for k in range(3)]
        # Hardly any cache: groups come and go.
        self.make_dataset = lambda: TableDataset(paths, ["i", "vector"], cache_bytes=0)


def test_items_are_scalars_and_arrays_with_the_types_of_the_table(numeric):
    dataset = TableDataset(numeric)
    assert len(dataset) == N
    for place in (0, 6, 7, 31, -1):
        item = dataset[place]
        assert list(item) == NUMERIC.column_names
        for name, values in NUMBERS.items():
            assert same(item[name], values[place])
        assert same(item["zone"], NUMBERS["at"][place])
        assert same(item["vector"], VECTORS[place])
        assert item["code"] == np.arange(N)[place] % 4
        item["vector"][:] = 0  # the caller's own
        assert same(dataset[place]["vector"], VECTORS[place])


def test_items_are_texts_bytes_lists_and_structures(others):
    dataset = TableDataset(others)
    assert dataset.take is None
    assert dataset.row_specs is None
    item = dataset[23]
    assert (item["text"], item["large"], item["label"], item["raw"]) == ("t23", "t23", "b", bytes([23]))
    assert same(item["ragged"], np.arange(3))
    assert (item["words"], item["inner"], item["time"]) == (
        ["x", "x"],
        {"a": 23, "b": "23"},
        datetime.time(23),
    )
    assert dataset[0]["ragged"].shape == (0,)


def test_columns_are_chosen_in_the_order_asked_for(numeric):
    dataset = TableDataset(numeric, ["vector", "i"])
    assert dataset.columns == dataset.row_names == ("vector", "i")
    assert list(dataset[3]) == ["vector", "i"]
    batch = dataset.take(np.array([50, 3, 3, -1]), np.empty)
    assert list(batch) == ["vector", "i"]
    assert np.array_equal(batch["i"], [50, 3, 3, 59])
    assert np.array_equal(batch["vector"], VECTORS[[50, 3, 3, 59]])


def test_a_loader_gives_dicts_of_batches_with_threads_and_processes(numeric):
    dataset = TableDataset(numeric, ["i", "f"])
    first = None
    for options in ({}, {"num_workers": 2}, {"num_workers": 1, "worker_type": "process"}):
        with DataLoader(dataset, 16, shuffle=True, seed=5, **options) as loader:
            batches = list(loader)
        order = np.concatenate([batch["i"] for batch in batches])
        assert sorted(order) == list(range(N))
        assert np.array_equal(np.concatenate([batch["f"] for batch in batches]), NUMBERS["f"][order])
        assert first is None or np.array_equal(first, order)
        first = order


def test_a_group_is_decoded_once_for_a_batch_and_kept_within_the_limit(tmp_path, monkeypatch):
    import feedline.datasets.table as table

    dataset = TableDataset(write(tmp_path / "t.parquet", NUMERIC), ["i"], cache_bytes=3 * 7 * 4)
    read = []
    plain = table.read_group
    monkeypatch.setattr(
        table, "read_group", lambda file, number, names: (read.append(number), plain(file, number, names))[1]
    )
    dataset.__getitems__([0, 13, 1, 12, 2])
    assert read == [0, 1]
    dataset.__getitems__([0, 13, 14])
    assert read == [0, 1, 2]
    dataset[21]  # the fourth: the one used longest ago goes
    dataset[0]
    assert read == [0, 1, 2, 3, 0]


def test_many_threads_decode_a_group_once(numeric, monkeypatch):
    import feedline.datasets.table as table

    dataset = TableDataset(numeric, ["i"])
    read = []
    plain = table.read_group
    monkeypatch.setattr(
        table, "read_group", lambda file, number, names: (read.append(number), plain(file, number, names))[1]
    )
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda k: int(dataset[k % N]["i"]), range(600)))
    assert found == [k % N for k in range(600)]
    assert sorted(read) == list(range(9))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_missing_values_are_errors_that_name_file_column_and_row_unless_filled(tmp_path, suffix):
    path = write(
        tmp_path / f"t.{suffix}",
        pa.table({"a": [*range(9), None, 10, None], "s": ["x"] * 11 + [None]}),
        rows=4,
    )
    dataset = TableDataset(path)
    assert dataset[0] == {"a": 0, "s": "x"}
    with pytest.raises(
        ValueError, match=rf"column 'a' of '.*t\.{suffix}': 2 values are missing \(null\), the first in row 9"
    ):
        dataset[8]
    filled = TableDataset(path, fill_nulls={"a": -1, "s": ""})
    assert [filled[place]["a"] for place in (8, 9, 11)] == [8, -1, -1]
    assert filled[11]["s"] == ""
    assert TableDataset(path, ["a"], fill_nulls={"a": -1})[9] == {"a": -1}


def test_missing_values_in_lists_are_errors_too(tmp_path):
    path = write(tmp_path / "t.parquet", pa.table({"a": pa.array([[1, None]], pa.list_(pa.int64()))}))
    with pytest.raises(ValueError, match=r"missing values .* in its lists"):
        TableDataset(path)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_reads_on(numeric):
    dataset = TableDataset(numeric, ["i"])
    dataset[3]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if [int(item["i"]) for item in dataset] == list(range(N)) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_it_pickles_small_and_without_what_is_cached(numeric):
    dataset = TableDataset(numeric)
    list(dataset)
    assert len(pickle.dumps(dataset)) < 4000
    assert len(pickle.dumps(TableDataset([numeric] * 100))) < 100_000
    assert same(pickle.loads(pickle.dumps(dataset))[5], dataset[5])


def test_no_file_stays_open(numeric):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    dataset = TableDataset(numeric)
    list(dataset)
    assert str(numeric) not in [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]


def test_a_file_that_changed_since_the_dataset_was_made_is_an_error(numeric):
    dataset = TableDataset(numeric, ["i"], cache_bytes=0)
    assert dataset[0] == {"i": 0}
    write(numeric, NUMERIC.slice(1))
    with pytest.raises(ValueError, match="was written to, or replaced, since the dataset was made"):
        dataset[20]


def test_a_file_that_is_gone_is_an_os_error(numeric):
    dataset = TableDataset(numeric, ["i"])
    numeric.unlink()
    with pytest.raises(FileNotFoundError):
        dataset[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is neither a Parquet nor an Arrow file: it begins with b''"),
        (b"a,b\n1,2\n", "begins with b'a,b"),
        (b"FEA1....", "Feather file of version 1"),
        (b"\xff\xff\xff\xff\x00\x00", "an Arrow stream has no random access"),
        (b"PAR1....", "begins as a Parquet file, but can't be read"),
        (b"ARROW1..", "begins as an Arrow file, but can't be read"),
    ],
)
def test_what_is_no_table_is_told(tmp_path, data, said):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(OptionError, match=said) as caught:
        TableDataset(tmp_path / "t")
    assert "\n" not in str(caught.value)


def test_files_must_agree_on_the_chosen_columns(tmp_path):
    one = write(tmp_path / "1.parquet", pa.table({"a": [1], "b": [1.0]}))
    two = write(tmp_path / "2.arrow", pa.table({"b": [2.0], "a": ["x"]}))
    assert [item["b"] for item in TableDataset([one, two], ["b"])] == [1.0, 2.0]
    with pytest.raises(OptionError, match=r"column 'a' is string in .*2\.arrow' and int64 in .*1\.parquet"):
        TableDataset([one, two])
    with pytest.raises(OptionError, match=r"2\.arrow' has no single column 'c'"):
        TableDataset([write(tmp_path / "3.parquet", pa.table({"c": [1]})), two])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        ([[]], {}, OptionError, "needs at least one file"),
        ([3], {}, TypeError, "paths must be a path or a list of paths, not int"),
        ([[3]], {}, TypeError, "a path must be"),
        (["t"], {"columns": "i"}, TypeError, r"columns must be a list of names such as \['age'\]"),
        (["t"], {"columns": []}, OptionError, "there must be one column at least"),
        (["t"], {"columns": ["nothing"]}, OptionError, "no column 'nothing'; it has 'i', 'f'"),
        (["t"], {"columns": ["i", "i"]}, OptionError, "you ask twice"),
        (["t"], {"fill_nulls": 3}, TypeError, "fill_nulls must be a dict"),
        (["t"], {"fill_nulls": {"no": 3}}, OptionError, "fill_nulls names 'no'"),
        (["t"], {"fill_nulls": {"i": None}}, OptionError, "fills nothing"),
        (["t"], {"cache_bytes": -1}, OptionError, "cache_bytes must be 0 or more"),
        (["t"], {"cache_bytes": "1"}, TypeError, "cache_bytes must be an int"),
    ],
)
def test_bad_options_fail_at_once(tmp_path, monkeypatch, arguments, options, error, said):
    monkeypatch.chdir(tmp_path)
    parquet.write_table(NUMERIC, "t")
    with pytest.raises(error, match=said):
        TableDataset(*arguments, **options)


def test_a_table_without_rows_is_an_empty_dataset(tmp_path):
    for name in ("t.parquet", "t.arrow"):
        dataset = TableDataset(write(tmp_path / name, NUMERIC.slice(0, 0)), ["i"])
        assert len(dataset) == 0
        assert dataset.take(np.empty(0, np.int64), np.empty)["i"].shape == (0,)
        with pytest.raises(IndexError):
            dataset[0]


@pytest.mark.skipif(os.name != "posix", reason="needs file names that are bytes")
def test_a_name_that_is_no_text_can_be_opened(tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff.parquet"
    os.rename(write(tmp_path / "t.parquet", NUMERIC), odd)
    assert TableDataset(odd, ["i"])[4] == {"i": 4}


def test_without_pyarrow_the_error_has_the_install_command(numeric, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'feedline\[tables\]'"):
        TableDataset(numeric)


def test_it_tells_what_it_is(numeric):
    dataset = TableDataset(numeric, ["i", "f"])
    assert repr(dataset) == f"TableDataset({str(numeric)!r}, 60 rows of i, f)"
    assert repr(TableDataset([numeric, numeric], ["i"])) == "TableDataset(2 files, 120 rows of i)"
    assert dataset.kind() == "feedline.TableDataset"
    assert dataset.paths == (str(numeric),)
