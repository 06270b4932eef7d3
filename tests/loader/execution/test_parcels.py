"""How datasets get to worker processes: long lists of strings in pieces, arrays in blocks that several threads write."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from feedline import DataLoader
from feedline.loader.execution import block_files
from feedline.loader.execution.block_files import map_block, write_block
from feedline.loader.execution.handoff import dump_out, load_out
from feedline.loader.execution.shared_memory import anonymous_file
from feedline.loader.execution.string_lists import MIN_STRINGS, TextFile, pack_strings, unpack_strings

pytestmark = pytest.mark.usefixtures("nothing_left")

LISTS = {
    "ascii": [f"{number:078d}" for number in range(MIN_STRINGS + 777)],
    "any characters": [f"\u00e4\U0001f600\ud800{number}" for number in range(MIN_STRINGS)],
    "short and long": [
        "",
        *(f"{number}-" * (1 + number % 7) for number in range(MIN_STRINGS)),
        "x" * 300_000,
    ],
    "bytes": [number.to_bytes(4, "little") * (1 + number % 40) for number in range(1, MIN_STRINGS + 4096)],
}


@pytest.fixture
def file() -> Iterator[TextFile]:
    descriptor = anonymous_file(0)
    yield TextFile(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_comes_back_from_a_file_and_from_memory_as_pickle_would_bring_it(name, file):
    values = LISTS[name]
    file.write(b"what lies before it")
    for sink in (file, None):
        packed = pack_strings(values, sink)
        assert packed is not None
        assert unpack_strings(packed, sink) == values
        assert type(unpack_strings(packed, sink)) is list


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("odd", [None, b"bytes", Text("of a class"), 7])
@pytest.mark.parametrize("place", [0, MIN_STRINGS // 2, MIN_STRINGS - 1])
def test_a_list_with_anything_else_in_it_is_left_to_pickle(odd, place, file):
    values = [str(number) for number in range(MIN_STRINGS)]
    values[place] = odd
    assert pack_strings(values, file) is None
    for texts in (file, None):
        back = load_out(dump_out(values, lambda _: True, texts), (), texts)
        assert back == values
        assert type(back[place]) is type(odd)


def test_a_list_that_holds_one_object_many_times_keeps_it_one(file):
    values = ["the same"] * MIN_STRINGS
    assert pack_strings(values, file) is None
    assert len(set(map(id, load_out(dump_out(values, None, file), (), file)))) == 1


@pytest.mark.parametrize("in_file", [True, False])
def test_a_list_that_is_met_twice_is_one_list_in_the_worker(in_file, file):
    values, others = LISTS["ascii"], LISTS["bytes"]
    texts = file if in_file else None
    buffers: list[memoryview] = []
    stream = dump_out({"a": values, "b": others, "c": [values, others]}, lambda b: _keep(buffers, b), texts)
    back = load_out(stream, buffers, texts)
    assert back["a"] == values
    assert back["b"] == others
    assert back["c"][0] is back["a"]
    assert back["c"][1] is back["b"]
    assert len(buffers) == (0 if in_file else 2)


def _keep(buffers, buffer):
    buffers.append(buffer.raw())
    return False


def test_a_system_that_takes_little_at_a_time_gets_and_gives_all(file, monkeypatch):
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: write(fd, data[:1000], offset))
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: read(fd, [views[0][:999]], offset))
    packed = pack_strings(LISTS["bytes"], file)
    assert packed is not None
    assert unpack_strings(packed, file) == LISTS["bytes"]


def test_a_file_that_was_cut_is_an_error(file):
    packed = pack_strings(LISTS["ascii"], file)
    assert packed is not None
    os.ftruncate(file._descriptor, 5000)
    with pytest.raises(EOFError, match="shorter"):
        unpack_strings(packed, file)


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_may_be_read_while_it_is_written(name, file):
    values = LISTS[name]
    reader = TextFile(file._descriptor)
    seen = []

    def tell(start, lengths):
        seen.append(len(reader.read_on(start, lengths)))

    file.tell_pieces = tell
    packed = pack_strings(values, file)
    assert packed is not None
    if len(values) > 40_000:
        assert seen
    assert seen == sorted(set(seen))
    assert unpack_strings(packed, reader) == values
    assert reader.begun == {}
    assert unpack_strings(packed, reader) == values


class Texts:
    """Long lists, among them one that has to go by pickle; a worker that has item 70,001 in hand is killed once."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker
        self.texts = [f"text {number}" for number in range(90_000)]
        self.same = self.texts
        self.mixed = [*(str(number) for number in range(60_000)), None]
        self.raw = [b"%d" % number for number in range(30_000)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[str, bool, str, bytes]:
        if index == 70_001 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        own = self.same is self.texts and type(self.texts) is list and self.mixed[-1] is None
        return self.texts[index], own, self.mixed[index % 60_000], self.raw[index % 30_000]


@pytest.mark.parametrize("num_workers", [1, 3])
def test_all_workers_have_the_lists_and_so_has_one_that_takes_the_place_of_another(num_workers, tmp_path):
    dataset = Texts(tmp_path / "marker")
    options = {"batch_size": 5_000, "collate_fn": list}
    with DataLoader(dataset, num_workers=num_workers, worker_type="process", **options) as loader:
        for _ in range(2):
            rows = [row for batch in loader for row in batch]
            assert dataset.marker.exists()
            assert rows == [(f"text {n}", True, str(n % 60_000), b"%d" % (n % 30_000)) for n in range(90_000)]


def test_workers_that_come_later_have_the_lists_too(tmp_path):
    dataset = Texts(tmp_path / "marker")
    dataset.marker.touch()
    with DataLoader(dataset, 9_000, num_workers=1, worker_type="process", collate_fn=list) as loader:
        next(iter(loader))
        loader._executor().resize(3)
        assert [row[0] for batch in loader for row in batch] == dataset.texts


PARTS = [bytes(range(256)) * 700, np.arange(100_000.0), b"", b"short", np.arange(77_777, dtype=np.int16)]


def layout_of(parts):
    layout, offset = [], 0
    for part in parts:
        layout.append((offset, memoryview(part).nbytes))
        offset += -(-memoryview(part).nbytes // 64) * 64
    return layout, offset


@pytest.fixture(params=[1, 2, 4])
def several(request, monkeypatch):
    """Have blocks spread over so many files, whatever there are of processors."""
    if request.param > 1 and sys.platform != "linux":
        pytest.skip("blocks are spread over files on Linux only")
    monkeypatch.setattr(block_files, "_count_files", lambda size: request.param)
    return request.param


def test_a_block_in_several_files_is_the_same_bytes_in_one_piece(several):
    layout, size = layout_of(PARTS)
    files, step = write_block(PARTS, layout, size)
    assert len(files) == several
    assert sum(os.fstat(file).st_size for file in files) == size
    one, other = (memoryview(map_block(files, step, size)).cast("B") for _ in range(2))
    for file in files:
        os.close(file)
    for part, (offset, length) in zip(PARTS, layout):
        assert one[offset : offset + length] == memoryview(part).cast("B")
    one[:] = bytes(size)
    # What one process writes, no other sees.
    assert other[: layout[0][1]] == PARTS[0]


def test_a_block_that_can_not_be_written_leaves_neither_descriptors_nor_threads(several, monkeypatch):
    layout, size = layout_of(PARTS)
    failing = several - 1
    made: list[int] = []
    monkeypatch.setattr(block_files, "anonymous_file", lambda n: made.append(anonymous_file(n)) or made[-1])
    write = os.pwrite

    def refuse(descriptor, data, offset):
        if descriptor == made[failing]:
            raise OSError(28, "No space left on device")
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_block(PARTS, layout, size)
    assert len(made) == several
    for descriptor in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    assert not any(thread.name == "feedline-writer" for thread in threading.enumerate())


def test_a_block_is_spread_only_if_that_is_worth_the_threads(monkeypatch):
    if sys.platform != "linux":
        pytest.skip("blocks are spread over files on Linux only")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    count = block_files._count_files
    assert [count(size) for size in (1, 100 << 20, 130 << 20, 300 << 20, 1 << 40)] == [1, 1, 2, 4, 4]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert count(1 << 40) == 1
