"""Whatever is written comes back, bit for bit; whatever is no file is refused, and never read."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.ndf import NdfDataset
from feedline.errors import NdfError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader, check_file_size, pack_header, unpack_header
from feedline.ndf.save import save_ndf

sizes = st.integers(0, 2**64 - 1)


@st.composite
def patterns(draw):
    """Rows of any bit patterns, as float64, with the number of their features."""
    n, width = draw(st.integers(0, 20)), draw(st.integers(1, 6))
    words = draw(hnp.arrays(np.uint64, (n, width), elements=st.integers(0, 2**64 - 1)))
    return words.view(np.float64), draw(st.integers(0, width))


@settings(max_examples=60)
@given(patterns(), st.booleans(), st.data())
def test_every_bit_pattern_survives_writing_and_reading(rows, mmap, data):
    values, d = rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.ndf"
        save_ndf(path, values[:, :d], values[:, d:])
        dataset = NdfDataset(path, mmap=mmap)
        assert path.stat().st_size == 28 + values.nbytes
        places = np.array(
            data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30)) if len(values) else [], int
        )
        memory = ArrayDataset(values[:, :d], values[:, d:])
        for ours, theirs in zip(dataset.take(places, np.empty), memory.take(places, np.empty)):
            assert ours.shape == theirs.shape
            assert ours.tobytes() == theirs.tobytes()
        for place in places[:3]:
            assert b"".join(part.tobytes() for part in dataset[place]) == values[place].tobytes()


def kind_of(call) -> str | None:
    """The kind of the error that `call` raises, or `None`."""
    try:
        call()
    except NdfError as error:
        return error.kind
    return None


@given(sizes, sizes, sizes)
def test_a_header_is_unpacked_as_it_was_packed_or_refused_for_its_size(n, d, labels):
    header = NdfHeader(n, d, labels)
    kind = kind_of(lambda: unpack_header(pack_header(header), "a.ndf"))
    if d + labels == 0:
        assert kind == "zero_width"
    elif max(28 + 8 * n * (d + labels), 8 * (d + labels)) >= 2**63:
        assert kind == "truncated_rows"
    else:
        assert kind is None
        assert unpack_header(pack_header(header), "a.ndf") == header


@given(st.integers(0, 50), st.integers(0, 5), st.integers(0, 5), st.integers(-20, 20))
def test_a_size_is_right_exactly_when_the_header_promises_it(n, d, labels, more):
    header = NdfHeader(n, d, labels + (d + labels == 0))
    promised = 28 + 8 * n * (header.d + header.l)
    expected = "truncated_rows" if more < 0 else "trailing_bytes" if more else None
    assert kind_of(lambda: check_file_size(header, promised + more, "a.ndf")) == expected


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"NDF1" + tail))
def test_any_bytes_are_read_as_rows_or_refused(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.ndf"
        path.write_bytes(content)
        if kind_of(lambda: NdfDataset(path)) is None:
            dataset = NdfDataset(path)
            assert content[:4] == b"NDF1"
            assert (dataset.n, dataset.d, dataset.l) == struct.unpack("<QQQ", content[4:HEADER_BYTES])
            assert len(content) == HEADER_BYTES + 8 * dataset.n * (dataset.d + dataset.l)
