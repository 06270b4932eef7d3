"""Whole files, good and bad: what each gives is told in `files/expected.json`, numbers as the hex of their 64 bits."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from feedline import DataLoader
from feedline.datasets.combine import Subset
from feedline.datasets.ndf import NdfDataset
from feedline.errors import NdfError
from feedline.ndf.save import save_ndf

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
GOOD = sorted(name for name, told in EXPECTED.items() if "n" in told)
BAD = sorted(name for name, told in EXPECTED.items() if "kind" in told)


def bits(values: np.ndarray) -> list[str]:
    return [f"{number:016x}" for number in values.astype("<f8").view("<u8").tolist()]


def test_every_file_is_told_about():
    assert {path.name for path in FILES.glob("*.ndf")} == set(EXPECTED)
    assert len(GOOD) >= 7
    assert len(BAD) >= 13


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_gives_its_rows_bit_for_bit(name, mmap):
    told = EXPECTED[name]
    dataset = NdfDataset(FILES / name, mmap=mmap)
    assert (dataset.n, dataset.d, dataset.l, len(dataset)) == (told["n"], told["d"], told["l"], told["n"])
    for place, parts in told["rows"].items():
        row, labels = dataset[int(place)]
        assert bits(row) == parts["x"]
        assert bits(labels) == parts["y"]
    x, y = dataset.take(np.arange(dataset.n), np.empty)
    assert x.shape == (dataset.n, dataset.d)
    assert y.shape == (dataset.n, dataset.l)
    assert hashlib.sha256(np.hstack([x, y]).astype("<f8").tobytes()).hexdigest() == told["rows_sha256"]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_written_again_is_the_same_file(name, tmp_path):
    save_ndf(tmp_path / "copy.ndf", NdfDataset(FILES / name))
    assert (tmp_path / "copy.ndf").read_bytes() == (FILES / name).read_bytes()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_kind_and_nothing_is_allocated(name, mmap):
    tracemalloc.start()
    try:
        with pytest.raises(NdfError) as caught:
            NdfDataset(FILES / name, mmap=mmap)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert caught.value.kind == EXPECTED[name]["kind"]
    assert caught.value.path == str(FILES / name)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "name", [name for name in BAD if EXPECTED[name]["kind"] in ("truncated_rows", "trailing_bytes")]
)
def test_a_wrong_size_is_told_with_what_was_promised_and_what_was_found(name):
    with pytest.raises(NdfError) as caught:
        NdfDataset(FILES / name)
    size = (FILES / name).stat().st_size
    _, n, d, labels = struct.unpack("<4sQQQ", (FILES / name).read_bytes()[:28])
    assert str(size) in str(caught.value)
    assert str(28 + 8 * n * (d + labels)) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"N", "short_header"),
        (b"NDF", "short_header"),
        (b"ND1", "bad_magic"),
        (b"\x00", "bad_magic"),
        (b"NDF1" + bytes(23), "short_header"),
        (struct.pack("<4sQQQ", b"NDF1", 0, 0, 0), "zero_width"),
        (struct.pack("<4sQQQ", b"NDF1", 9, 0, 0), "zero_width"),
        (struct.pack("<4sQQQ", b"NDF1", 0, 2**64 - 1, 1), "truncated_rows"),
        (struct.pack("<4sQQQ", b"NDF1", 1, 2**61, 2**61), "truncated_rows"),
        (struct.pack("<4sQQQ", b"NDF1", 2**61, 1, 0), "truncated_rows"),
        (struct.pack("<4sQQQ", b"NDF1", 2**32, 2**29, 0), "truncated_rows"),
        (struct.pack("<4sQQQ", b"NDF1", 0, 1, 0) + b"x", "trailing_bytes"),
    ],
)
def test_headers_are_judged_before_anything_is_read(content, kind, tmp_path):
    (tmp_path / "file.ndf").write_bytes(content)
    with pytest.raises(NdfError) as caught:
        NdfDataset(tmp_path / "file.ndf")
    assert caught.value.kind == kind


def test_a_file_without_features_gives_labels_alone(tmp_path):
    (tmp_path / "file.ndf").write_bytes(struct.pack("<4sQQQ2d", b"NDF1", 1, 0, 2, 1.5, 2.5))
    row, labels = NdfDataset(tmp_path / "file.ndf")[0]
    assert row.shape == (0,)
    assert labels.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("mmap", [False, True])
def test_rows_beyond_four_gibibytes_are_read(tmp_path, mmap):
    n = 700_000_000
    path = tmp_path / "sparse.ndf"
    known = [0, 2**28, 2**29 - 4, 2**29 - 3, 2**29 - 1, 2**29, n - 1]
    with open(path, "wb") as file:
        file.write(struct.pack("<4sQQQ", b"NDF1", n, 1, 0))
        file.truncate(28 + 8 * n)
        for place in known:
            file.seek(28 + 8 * place)
            file.write(struct.pack("<d", place + 0.5))
    dataset = NdfDataset(path, mmap=mmap)
    assert [dataset[place][0].item() for place in known] == [place + 0.5 for place in known]
    x, y = dataset.take(np.array(known), np.empty)
    assert x[:, 0].tolist() == [place + 0.5 for place in known]
    assert y.shape == (len(known), 0)
    assert dataset[-2][0].item() == 0
    batches = list(DataLoader(Subset(dataset, known), batch_size=3))
    assert np.concatenate([rows for rows, _ in batches])[:, 0].tolist() == [place + 0.5 for place in known]
    os.unlink(path)


@pytest.mark.parametrize("n", [0, 7])
def test_rows_wider_than_any_file_are_told_as_such(n, tmp_path):
    path = tmp_path / "a.ndf"
    path.write_bytes(struct.pack("<4sQQQ", b"NDF1", n, 2**61, 3))
    with pytest.raises(
        NdfError, match=rf"rows that no file can hold, .*d={2**61}, l=3 make .* a row .n={n}."
    ) as caught:
        NdfDataset(path)
    assert caught.value.kind == "truncated_rows"
