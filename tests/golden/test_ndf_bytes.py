"""The bytes of `.ndf` files are frozen: what one version writes, every later one writes and reads the same."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from feedline.datasets.ndf import NdfDataset
from feedline.ndf.layout import HEADER_BYTES, NdfHeader, pack_header, unpack_header
from feedline.ndf.save import save_ndf
from feedline.ndf.writer import NdfWriter

HERE = Path(__file__).parent / "ndf"

# The format by hand, two rows of two features and one label.
BY_HAND = (
    b"NDF1"
    b"\x02\x00\x00\x00\x00\x00\x00\x00"
    b"\x02\x00\x00\x00\x00\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x00"
    b"\x00\x00\x00\x00\x00\x00\xf0\x3f"
    b"\x00\x00\x00\x00\x00\x00\x00\xc0"
    b"\x00\x00\x00\x00\x00\x00\x1c\x40"
    b"\x18\x2d\x44\x54\xfb\x21\x09\x40"
    b"\x00\x00\x00\x00\x00\x00\xf0\x7f"
    b"\x00\x00\x00\x00\x00\x00\x20\x40"
)
X, Y = np.array([[1.0, -2.0], [np.pi, np.inf]]), np.array([7, 8])


def test_the_header_has_28_bytes():
    assert HEADER_BYTES == 28
    assert pack_header(NdfHeader(2, 2, 1)) == BY_HAND[:28]
    assert unpack_header(BY_HAND[:28], "a.ndf") == NdfHeader(2, 2, 1)


@pytest.mark.parametrize("order", ["C", "F", ">"])
def test_rows_are_written_as_they_were_by_hand(order, tmp_path):
    x = X.astype(">f8") if order == ">" else np.asarray(X, order=order)
    save_ndf(tmp_path / "a.ndf", x, Y)
    assert (tmp_path / "a.ndf").read_bytes() == BY_HAND


def test_rows_are_read_as_they_were_written_by_hand(tmp_path):
    (tmp_path / "a.ndf").write_bytes(BY_HAND)
    x, y = NdfDataset(tmp_path / "a.ndf").take(np.array([0, 1]), np.empty)
    assert x.tolist() == X.tolist()
    assert y.tolist() == [[7], [8]]


def made_rows() -> np.ndarray:
    """Values without a generator of random numbers: 100 rows of 7, from integers alone."""
    words = np.arange(700, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (words >> np.uint64(11)).astype(np.float64).reshape(100, 7) / 2**53 - 0.5


def test_a_file_of_the_first_version_is_still_written_and_read(tmp_path):
    rows = made_rows()
    with NdfWriter(tmp_path / "a.ndf", 5, 2) as writer:
        for start in range(0, 100, 9):
            writer.append(rows[start : start + 9, :5], rows[start : start + 9, 5:])
    golden = (HERE / "rows-100x5x2.ndf").read_bytes()
    assert (tmp_path / "a.ndf").read_bytes() == golden
    assert hashlib.sha256(golden).hexdigest() == (HERE / "rows-100x5x2.sha256").read_text().strip()
    x, y = NdfDataset(HERE / "rows-100x5x2.ndf").take(np.arange(100), np.empty)
    assert np.hstack([x, y]).tobytes() == rows.tobytes()
    assert struct.unpack("<4sQQQ", golden[:28]) == (b"NDF1", 100, 5, 2)
