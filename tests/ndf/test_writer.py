"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import signal
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from feedline.datasets.ndf import NdfDataset
from feedline.errors import OptionError
from feedline.ndf.layout import NdfHeader, pack_header
from feedline.ndf.writer import NdfWriter

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")


def rows_of(path: object) -> np.ndarray:
    dataset = NdfDataset(path)
    return np.hstack(dataset.take(np.arange(len(dataset)), np.empty))


@pytest.mark.parametrize("sizes", [[], [0], [1], [5, 0, 1, 3], [1] * 40, [50_000, 1, 30_000]])
def test_blocks_of_any_size_become_one_file(sizes, tmp_path):
    values = np.random.default_rng(0).random((sum(sizes), 3))
    with NdfWriter(tmp_path / "a.ndf", 2, 1) as writer:
        start = 0
        for size in sizes:
            writer.append(values[start : start + size, :2], values[start : start + size, 2])
            start += size
        assert writer.n == sum(sizes)
    assert (tmp_path / "a.ndf").read_bytes() == pack_header(NdfHeader(len(values), 2, 1)) + values.tobytes()
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_nothing_is_at_the_path_until_it_is_closed(tmp_path):
    path = tmp_path / "a.ndf"
    path.write_bytes(b"old")
    writer = NdfWriter(path, 1)
    writer.append(np.zeros(300_000))
    assert path.read_bytes() == b"old"
    (temporary,) = set(os.listdir(tmp_path)) - {"a.ndf"}
    # Until the count is in, it is no file that anybody would take for whole.
    assert not (tmp_path / temporary).read_bytes().startswith(b"NDF1")
    writer.close()
    assert len(NdfDataset(path)) == 300_000
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_closing_again_does_nothing_and_appending_then_is_an_error(tmp_path):
    writer = NdfWriter(tmp_path / "a.ndf", 1)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match=r"NdfWriter of .*a\.ndf' is closed"):
        writer.append([1.0])
    with pytest.raises(ValueError, match="is closed"):
        writer.__enter__()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_block_leaves_the_old_file_and_nothing_else(error, tmp_path):
    (tmp_path / "a.ndf").write_bytes(b"old")
    with pytest.raises(error):
        with NdfWriter(tmp_path / "a.ndf", 1) as writer:
            writer.append(np.zeros(300_000))
            raise error
    assert (tmp_path / "a.ndf").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.ndf"]


def test_a_writer_that_is_dropped_leaves_nothing(tmp_path):
    NdfWriter(tmp_path / "a.ndf", 1).append([1.0])
    gc.collect()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("x", "y", "error", "match"),
    [
        (np.zeros((2, 3)), np.zeros(2), OptionError, "x has 3 values in a row, where 2 are expected"),
        (np.zeros((2, 2)), np.zeros((2, 2)), OptionError, "y has 2 values"),
        (np.zeros((2, 2)), None, OptionError, "y is missing"),
        (np.zeros((2, 2)), np.zeros(3), OptionError, "x has 2 rows and y has 3"),
        (np.zeros((2, 2, 1)), np.zeros(2), OptionError, "flatten"),
        (np.zeros((2, 2), complex), np.zeros(2), TypeError, "complex128"),
        (np.array([["a", "b"]]), np.zeros(1), TypeError, "<U1"),
        (np.array([[None, 1]]), np.zeros(1), TypeError, "object"),
        (np.zeros((2, 2), "M8[s]"), np.zeros(2), TypeError, "datetime64"),
        (np.zeros((2, 2), "g"), np.zeros(2), TypeError, "64 bits"),
        (np.ma.zeros((2, 2)), np.zeros(2), TypeError, "masked"),
        (np.array([[0, 2**53 + 1]]), np.zeros(1), OptionError, r"x\[0, 1\] is 9007199254740993"),
        (np.array([[0, -(2**63) + 1]]), np.zeros(1), OptionError, "exactly"),
        (np.zeros((1, 2)), np.array([2**64 - 1], np.uint64), OptionError, r"y\[0\] is 18446744073709551615"),
    ],
)
def test_rows_that_dont_fit_are_refused_and_writing_goes_on(x, y, error, match, tmp_path):
    if np.dtype("g").itemsize <= 8 and x.dtype.char == "g":
        pytest.skip("long double is a double here")
    with NdfWriter(tmp_path / "a.ndf", 2, 1) as writer:
        writer.append([[1, 2]], [3])
        with pytest.raises(error, match=match):
            writer.append(x, y)
        writer.append([[4, 5]], [6])
    assert rows_of(tmp_path / "a.ndf").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "values",
    [
        np.array([True, False]),
        np.array([-128, 127], np.int8),
        np.array([0, 2**32 - 1], np.uint32),
        np.array([-(2**53), 2**53]),
        np.array([2**62, -(2**63)]),
        np.array([2**63, 2**53 + 2], np.uint64),
        np.array([1.1, np.inf], np.float32),
        np.array([1.1, -0.0], np.float16),
        np.array([1.1, 5e-324], ">f8"),
        np.arange(4.0)[::2],
    ],
)
def test_numbers_are_converted_exactly(values, tmp_path):
    with NdfWriter(tmp_path / "a.ndf", 1) as writer:
        writer.append(values)
    written = rows_of(tmp_path / "a.ndf")[:, 0].tolist()
    assert written == values.tolist()
    assert [type(value) for value in written] == [float, float]


@pytest.mark.parametrize(("d", "l"), [(-1, 1), (0, 0), (1, -1), (2**60, 0), (2**60 - 1, 2**60 - 1)])
def test_impossible_widths_are_refused(d, l, tmp_path):  # noqa: E741
    with pytest.raises(OptionError):
        NdfWriter(tmp_path / "a.ndf", d, l)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("d", [1.0, True, "1", None])
def test_widths_are_ints(d, tmp_path):
    with pytest.raises(TypeError, match="d must be an int"):
        NdfWriter(tmp_path / "a.ndf", d)


@pytest.mark.parametrize("path", [1, None, ["a.ndf"]])
def test_a_path_is_a_path(path):
    with pytest.raises(TypeError, match="str, bytes or PathLike"):
        NdfWriter(path, 1)


def test_a_missing_folder_and_a_directory_say_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        NdfWriter(tmp_path / "none" / "a.ndf", 1)
    with pytest.raises(IsADirectoryError, match="it is a directory"):
        NdfWriter(tmp_path, 1)


@posix
def test_a_device_is_never_replaced():
    with pytest.raises(OSError, match="not a regular file"):
        NdfWriter("/dev/null", 1)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_of_the_umask(mask, tmp_path):
    old = os.umask(mask)
    try:
        NdfWriter(tmp_path / "a.ndf", 1).close()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.ndf").stat().st_mode) == 0o666 & ~mask


@posix
def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.ndf").symlink_to(tmp_path / "real" / "a.ndf")
    with NdfWriter(tmp_path / "link.ndf", 1) as writer:
        writer.append([1.0])
    assert (tmp_path / "link.ndf").is_symlink()
    assert os.listdir(tmp_path / "real") == ["a.ndf"]


def test_a_later_chdir_makes_no_difference(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = NdfWriter("a.ndf", 1)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    writer.close()
    assert sorted(os.listdir(tmp_path)) == ["a.ndf", "other"]


def test_a_name_may_be_as_long_as_names_may_be(tmp_path):
    NdfWriter(tmp_path / ("n" * 246 + ".ndf"), 1).close()
    assert os.listdir(tmp_path) == ["n" * 246 + ".ndf"]


def test_a_writer_does_not_pickle(tmp_path):
    with pytest.raises(TypeError, match="NdfWriter can't be pickled"):
        pickle.dumps(NdfWriter(tmp_path / "a.ndf", 1))


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


@posix
def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.ndf"
    with NdfWriter(path, 1) as writer:
        writer.append([1.0, 2.0])
    done = run(
        """
        import os, signal, sys
        import numpy as np
        from feedline.ndf.writer import NdfWriter
        writer = NdfWriter(sys.argv[1], 1)
        writer.append(np.zeros(300_000))
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(path),
    )
    assert done.returncode == -signal.SIGKILL
    assert rows_of(path).tolist() == [[1.0], [2.0]]


@posix
def test_a_writer_left_open_at_exit_leaves_nothing(tmp_path):
    done = run(
        "import sys; from feedline.ndf.writer import NdfWriter; keep = NdfWriter(sys.argv[1], 1); keep.append([1.0])",
        str(tmp_path / "a.ndf"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_ends_leaves_its_parents_writer_alone(tmp_path):
    done = run(
        """
        import os, sys
        from feedline.ndf.writer import NdfWriter
        with NdfWriter(sys.argv[1], 1) as writer:
            writer.append([1.0])
            child = os.fork()
            if child == 0:
                try:
                    writer.close()
                except ValueError as error:
                    print(error)
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """,
        str(tmp_path / "a.ndf"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "which forked this one" in done.stdout
    assert rows_of(tmp_path / "a.ndf").tolist() == [[1.0]]


@posix
@pytest.mark.parametrize("when", ["append", "close"])
def test_a_full_disk_is_an_error_that_leaves_the_old_file_alone(when, tmp_path):
    path = tmp_path / "a.ndf"
    path.write_bytes(b"old")
    # A limit on the size of files fails as a full disk does: first a part is written, then nothing.
    done = run(
        """
        import os, resource, sys
        import numpy as np
        from feedline.ndf.writer import NdfWriter
        rows = 300_000 if sys.argv[2] == "append" else 1_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000 if rows > 1_000 else 3_000,) * 2)
        writer = NdfWriter(sys.argv[1], 1)
        try:
            writer.append(np.zeros(rows))
            if sys.argv[2] == "close":
                writer.close()
        except OSError as error:
            print(error.errno, error.filename, error.strerror)
        print(os.listdir(os.path.dirname(sys.argv[1])))
        try:
            writer.append([1.0])
        except ValueError as error:
            print(error)
        for attempt in range(2):
            try:
                writer.close()
            except OSError as error:
                print("close:", error.errno, error.filename)
        writer.abort()
        writer.close()
        """,
        str(path),
        when,
    )
    assert done.stderr == ""
    assert f"{errno.EFBIG} {path} rows could not be written (File too large)" in done.stdout
    assert "['a.ndf']" in done.stdout
    assert "is broken: " in done.stdout
    assert done.stdout.count(f"close: {errno.EFBIG} {path}\n") == 2
    assert path.read_bytes() == b"old"


def failing_writes(monkeypatch, error):
    real = os.write

    def write(fd, data):
        if len(data) > 1_000:
            raise error
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)


def test_a_with_block_that_swallows_the_error_of_an_append_fails_all_the_same(tmp_path, monkeypatch):
    failing_writes(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(OSError, match="No space left"), NdfWriter(tmp_path / "a.ndf", 1) as writer:
        with contextlib.suppress(OSError):
            writer.append(np.zeros(200_000))
        assert repr(writer).endswith("; broken)")
    assert os.listdir(tmp_path) == []


def test_an_append_that_was_interrupted_leaves_no_file_of_which_nobody_knows_the_rows(tmp_path, monkeypatch):
    failing_writes(monkeypatch, KeyboardInterrupt())
    writer = NdfWriter(tmp_path / "a.ndf", 1)
    with pytest.raises(KeyboardInterrupt):
        writer.append(np.zeros(200_000))
    with pytest.raises(ValueError, match="KeyboardInterrupt while rows were written; nothing is left"):
        writer.close()
    assert os.listdir(tmp_path) == []


def test_a_write_that_takes_only_a_part_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:1000])))
    values = np.random.default_rng(0).random((1000, 1))
    with NdfWriter(tmp_path / "a.ndf", 1) as writer:
        writer.append(values)
    monkeypatch.undo()
    assert rows_of(tmp_path / "a.ndf").tobytes() == values.tobytes()
