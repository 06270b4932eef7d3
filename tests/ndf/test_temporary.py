"""Temporary files of writers: those of killed ones are removed by the next, and none that somebody still writes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from feedline.ndf import temporary
from feedline.ndf.layout import HEADER_BYTES
from feedline.ndf.temporary import SLOTS, TemporaryFile
from feedline.ndf.writer import NdfWriter

fcntl = pytest.importorskip("fcntl", reason="nothing is removed without advisory locks")

#: Writes the file that it is told, tells when it has begun, and finishes when it is told.
WRITING = """
import sys
import numpy as np
from feedline.ndf.writer import NdfWriter
writer = NdfWriter(sys.argv[1], 1)
writer.append(np.full(300_000, float(sys.argv[2])))
print("begun", flush=True)
sys.stdin.readline()
writer.close()
"""


@pytest.fixture
def start_writing():
    """Have another process write a file, and return it when it has begun."""
    started = []

    def start(path, value=1.0):
        words = [sys.executable, "-c", WRITING, str(path), str(value)]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout.readline() == "begun\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate(timeout=60)


def kill(child):
    child.send_signal(signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL


def temporaries(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith(".feedline-"))


def rows_of(path):
    return np.frombuffer(path.read_bytes()[HEADER_BYTES:], "<f8")


def test_the_next_writer_removes_what_a_killed_one_has_left(start_writing, tmp_path):
    path = tmp_path / "a.ndf"
    path.write_bytes(b"old")
    kill(start_writing(path))
    (left,) = temporaries(tmp_path)
    assert (tmp_path / left).stat().st_size > 2_000_000
    writer = NdfWriter(path, 1)
    (own,) = temporaries(tmp_path)
    assert (tmp_path / own).stat().st_size < 100
    writer.append([5.0])
    writer.close()
    assert os.listdir(tmp_path) == ["a.ndf"]
    assert rows_of(path).tolist() == [5.0]


def test_what_a_living_writer_writes_is_left_alone(start_writing, tmp_path):
    path = tmp_path / "a.ndf"
    first, killed, last = (start_writing(path, value) for value in (1.0, 2.0, 3.0))
    names = temporaries(tmp_path)
    assert len(names) == 3
    kill(killed)
    with NdfWriter(path, 1) as writer:
        assert len(temporaries(tmp_path)) == 3  # two that live, and the new one
        with NdfWriter(path, 1) as second:  # locks hold within a process, too
            assert len(temporaries(tmp_path)) == 4
            second.append([8.0])
        writer.append([9.0])
    assert rows_of(path).tolist() == [9.0]
    for child, value in ((first, 1.0), (last, 3.0)):
        child.communicate("\n", timeout=60)
        assert child.returncode == 0
        assert np.array_equal(rows_of(path), np.full(300_000, value))
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_a_leftover_of_another_path_or_of_something_else_is_left_alone(start_writing, tmp_path):
    kill(start_writing(tmp_path / "b.ndf"))
    (tmp_path / ".feedline-0123456789abcdef.tmp").write_bytes(b"somebody's")
    before = temporaries(tmp_path)
    with NdfWriter(tmp_path / "a.ndf", 1) as writer:
        writer.append([1.0])
    assert temporaries(tmp_path) == before


def test_what_only_looks_like_a_leftover_is_left_alone(tmp_path):
    path = str(tmp_path / "a.ndf")
    directory, link = temporary._slots(path)[:2]
    os.mkdir(directory)
    (tmp_path / "precious").write_bytes(b"precious")
    os.symlink(tmp_path / "precious", link)
    TemporaryFile(path).keep()
    assert sorted(temporaries(tmp_path)) == sorted(map(os.path.basename, (directory, link)))
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_file_that_was_taken_for_a_leftover_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    real, taken = fcntl.flock, []

    def flock(descriptor, operation):
        if not taken:
            # Another writer comes just between the making of the file and its being locked.
            (name,) = temporaries(tmp_path)
            taken.append(name)
            os.unlink(tmp_path / name)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with NdfWriter(tmp_path / "a.ndf", 1) as writer:
        writer.append([4.0])
    assert taken
    assert rows_of(tmp_path / "a.ndf").tolist() == [4.0]
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_a_file_that_another_writer_is_just_removing_is_made_anew(tmp_path, monkeypatch):
    real, busy = fcntl.flock, []

    def flock(descriptor, operation):
        if not busy:
            busy.append(descriptor)
            os.unlink(tmp_path / temporaries(tmp_path)[0])
            raise BlockingIOError
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    TemporaryFile(str(tmp_path / "a.ndf")).keep()
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_a_name_that_means_another_file_by_now_is_left_alone(tmp_path, monkeypatch):
    path = str(tmp_path / "a.ndf")
    left = temporary._slots(path)[0]
    with open(left, "wb"):
        pass
    real = fcntl.flock

    def flock(descriptor, operation):
        real(descriptor, operation)
        if not os.path.getsize(left):
            # Others have removed the leftover and begun a file of that name, between its being opened and locked here.
            os.unlink(left)
            with open(left, "wb") as other:
                other.write(b"another's")

    monkeypatch.setattr(fcntl, "flock", flock)
    temporary._remove_leftover(left)
    with open(left, "rb") as other:
        assert other.read() == b"another's"


def test_a_file_that_has_its_place_is_not_looked_for_under_its_old_name(tmp_path, monkeypatch):
    path = str(tmp_path / "a.ndf")
    first = TemporaryFile(path)
    monkeypatch.setattr(os, "replace", interrupted_behind(os.replace))
    with pytest.raises(KeyboardInterrupt):
        first.keep()
    monkeypatch.undo()
    second = TemporaryFile(path)
    assert second.path == first.path
    first.discard()
    second.keep()
    assert os.listdir(tmp_path) == ["a.ndf"]


def interrupted_behind(function):
    def call(*arguments):
        function(*arguments)
        raise KeyboardInterrupt

    return call


def test_where_files_can_not_be_locked_none_is_removed_and_writing_goes_on(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", flock)
    path = str(tmp_path / "a.ndf")
    left = [TemporaryFile(path) for _ in range(SLOTS + 2)]
    for file in left:
        file.close()
    TemporaryFile(path).keep()
    assert len(temporaries(tmp_path)) == SLOTS + 2


def test_a_system_without_locks_removes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(temporary, "_locks", None)
    path = str(tmp_path / "a.ndf")
    TemporaryFile(path).close()
    TemporaryFile(path).discard()
    TemporaryFile(path).keep()
    assert len(temporaries(tmp_path)) == 1
    assert os.path.exists(path)
