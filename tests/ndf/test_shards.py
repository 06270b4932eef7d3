"""The index of a corpus: packed and unpacked without a loss, checked in itself, written whole or not at all."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.errors import NdfError
from feedline.ndf.layout import NdfHeader
from feedline.ndf.shards import (
    INDEX_NAME,
    Shard,
    ShardIndex,
    check_header,
    holds_index,
    pack_index,
    read_index,
    unpack_index,
    write_index,
)

SHA = "0123456789abcdef" * 4


def index_of(rows, d=2, l=1):  # noqa: E741
    return ShardIndex(
        d, l, tuple(Shard(f"s{k}.ndf", n, NdfHeader(n, d, l).file_bytes, SHA) for k, n in enumerate(rows))
    )


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.integers(0, 9), st.integers(1, 9))
def test_an_index_survives_packing(rows, d, l):  # noqa: E741
    index = index_of(rows, d, l)
    assert unpack_index(pack_index(index), "i") == index
    assert index.n == sum(rows)
    assert index.size_bytes == 28 * len(rows) + index.n * 8 * (d + l)


def test_the_bytes_of_an_index_are_fixed():
    assert pack_index(index_of([2, 1])).decode() == (
        '{\n "format": "ndf-shards",\n "version": 1,\n "n": 3,\n "d": 2,\n "l": 1,\n "shards": [\n'
        f'  {{"file": "s0.ndf", "rows": 2, "bytes": 76, "sha256": "{SHA}"}},\n'
        f'  {{"file": "s1.ndf", "rows": 1, "bytes": 52, "sha256": "{SHA}"}}\n ]\n}}\n'
    )


def without(name):
    return lambda given: given.pop(name)


def setting(name, value):
    return lambda given: given.__setitem__(name, value)


def in_shard(name, value):
    return lambda given: given["shards"][1].__setitem__(name, value)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (setting("format", "other"), "its format is 'other'"),
        (without("format"), "its format is None"),
        (setting("version", 2), "its version is 2; this feedline reads version 1"),
        (setting("version", True), "its version is True"),
        (setting("n", 4), "promises n=4 rows, its 2 shards have 3"),
        (setting("n", -1), "n of the index is -1"),
        (setting("d", 2.0), "d of the index is 2.0"),
        (setting("d", None), "d of the index is None"),
        (lambda given: given.update(d=0, l=0), "d and l are both 0"),
        (setting("shards", []), r"shards is \[\]"),
        (setting("shards", {}), "shards is {}"),
        (lambda given: given["shards"].append(1), "shard 2 is 1, not an object"),
        (in_shard("file", "../s.ndf"), "plain name in the same folder"),
        (in_shard("file", "a\\b"), "plain name"),
        (in_shard("file", ".."), "plain name"),
        (in_shard("file", 7), "plain name"),
        (in_shard("file", "s0.ndf"), "names the file 's0.ndf' twice"),
        (in_shard("rows", True), "rows of shard 1 is True"),
        (in_shard("rows", 2**64), "rows of shard 1 is"),
        (in_shard("bytes", 53), r"shard 1 \(s1.ndf\) has 53 bytes, but its 1 rows of d=2 and l=1 make 52"),
        (in_shard("sha256", SHA.upper()), "not 64 hexadecimal digits"),
        (in_shard("sha256", "x" * 3000), "not 64 hexadecimal digits"),
    ],
)
def test_a_damaged_index_tells_what_is_wrong(damage, said):
    given = json.loads(pack_index(index_of([2, 1])))
    damage(given)
    with pytest.raises(NdfError, match=said) as caught:
        unpack_index(json.dumps(given).encode(), "/c/index.json")
    assert (caught.value.kind, caught.value.path) == ("bad_index", "/c/index.json")
    assert "/c/index.json" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000], ids=lambda d: repr(d[:9])
)
def test_what_is_no_json_object_is_no_index(data):
    with pytest.raises(NdfError, match="is no index of shards") as caught:
        unpack_index(data, "i")
    assert caught.value.kind == "bad_index"


def test_a_header_that_differs_is_a_changed_shard():
    index = index_of([2, 1])
    check_header(index, 1, NdfHeader(1, 2, 1), "p")
    with pytest.raises(NdfError, match="n=1, d=1, l=2, the index says n=1, d=2, l=1") as caught:
        check_header(index, 1, NdfHeader(1, 1, 2), "p")
    assert (caught.value.kind, caught.value.path) == ("changed", "p")


def test_an_index_is_written_and_read(tmp_path):
    folder = str(tmp_path)
    assert not holds_index(folder)
    write_index(folder, index_of([5]))
    index, data = read_index(folder)
    assert index == index_of([5])
    assert data == (tmp_path / INDEX_NAME).read_bytes()
    assert holds_index(folder)
    assert os.listdir(folder) == [INDEX_NAME]


def test_an_index_that_can_not_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    write_index(str(tmp_path), index_of([5]))

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_index(str(tmp_path), index_of([6]))
    assert read_index(str(tmp_path))[0] == index_of([5])
    assert os.listdir(tmp_path) == [INDEX_NAME]


def test_a_folder_without_an_index_says_so_and_whether_its_conversion_was_not_finished(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no index.json, so it is no folder of shards$"):
        read_index(str(tmp_path))
    missing = tmp_path / "corpus"
    with pytest.raises(FileNotFoundError, match=r"does not exist$"):
        read_index(str(missing))
    (tmp_path / "corpus.part").mkdir()
    with pytest.raises(FileNotFoundError, match="was not finished, run the same 'feedline convert' again"):
        read_index(str(missing))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="is a file; a folder of shards"):
        read_index(str(tmp_path / "file"))
