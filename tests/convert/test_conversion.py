"""A conversion is whole or not at all, the same whatever the number of workers, and goes on where it was interrupted."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import feedline
import feedline.convert.plan as plan
import feedline.convert.pool as pool
from feedline.convert.conversion import convert
from feedline.convert.pool import run_jobs
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.ndf_shards import NdfShards
from feedline.errors import OptionError, WorkerDied
from feedline.ndf.save import save_ndf

X = np.random.default_rng(0).normal(size=(100, 4))
Y = np.arange(100)

#: A dataset of the rows of X whose 61st item stops the process until the test goes on; gates are named pipes.
GATED = """
import os
import numpy as np

class Gated:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index == 61 and os.path.exists("reached"):
            open("reached", "w").close()
            open("go on").read()
        return np.arange(4.0) + index, index
"""


@pytest.fixture
def source(tmp_path) -> Path:
    np.savez(tmp_path / "rows.npz", x=X, y=Y)
    return tmp_path / "rows.npz"


@pytest.fixture
def expected(source) -> bytes:
    """The bytes of a single file, written by the writer."""
    save_ndf(source.parent / "expected.ndf", X, Y)
    return (source.parent / "expected.ndf").read_bytes()


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


class Interrupted(Exception):
    pass


def run_some(count):
    """Run `count` jobs, and then be interrupted."""

    def run(source, jobs, workers, advance):
        for done, written in enumerate(run_jobs(source, jobs, workers, advance)):
            if done == count:
                raise Interrupted
            yield written

    return run


def test_a_single_file_has_the_bytes_that_the_writer_writes(source, expected, tmp_path):
    made = convert(source, tmp_path / "out.ndf")
    assert (tmp_path / "out.ndf").read_bytes() == expected
    assert (made.n, made.d, made.l, made.num_files, made.size_bytes) == (100, 4, 1, 1, len(expected))
    assert (made.rows_kept, made.was_stale) == (0, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected.ndf", "out.ndf", "rows.npz"]


def test_shards_read_as_the_rows_and_their_checksums_are_right(source, tmp_path):
    made = convert(source, tmp_path / "corpus", num_shards=7)
    dataset = NdfShards(tmp_path / "corpus")
    x, y = dataset.take(np.arange(100), np.empty)
    assert np.array_equal(x, X)
    assert np.array_equal(y[:, 0], Y)
    assert made.num_files == 7
    for shard in dataset.index.shards:
        data = (tmp_path / "corpus" / shard.file).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.size_bytes, shard.sha256)
        assert NdfDataset(tmp_path / "corpus" / shard.file).n == shard.rows
    assert len(contents(tmp_path / "corpus")) == 8
    assert made.size_bytes == sum(map(len, contents(tmp_path / "corpus").values())) - len(
        (tmp_path / "corpus" / "index.json").read_bytes()
    )


def test_the_number_of_workers_changes_not_a_byte(source, expected, tmp_path, monkeypatch, nothing_left):
    monkeypatch.setattr(plan, "RANGE_BYTES", 1000)
    convert(source, tmp_path / "one", rows_per_shard=13)
    convert(source, tmp_path / "three", rows_per_shard=13, workers=3)
    convert(source, tmp_path / "out.ndf", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    assert (tmp_path / "out.ndf").read_bytes() == expected


def test_progress_adds_up_to_all_rows(source, tmp_path):
    for workers in (1, 2):
        seen = []
        convert(
            source,
            tmp_path / f"{workers}",
            num_shards=3,
            workers=workers,
            on_start=seen.append,
            advance=seen.append,
        )
        assert seen[0] == 100
        assert sum(seen[1:]) == 100


@pytest.mark.parametrize("single", [True, False], ids=["file", "shards"])
@pytest.mark.parametrize("done", range(7))
def test_an_interrupted_run_goes_on_from_every_position(
    source, expected, tmp_path, monkeypatch, single, done
):
    monkeypatch.setattr(plan, "RANGE_BYTES", 15 * 40)
    name, options = ("out.ndf", {}) if single else ("out", {"rows_per_shard": 15})
    if not single:
        convert(source, tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        convert(source, tmp_path / name, **options, run=run_some(done))
    assert not (tmp_path / name).exists()
    made = convert(source, tmp_path / name, **options)
    assert made.rows_kept == min(100, 15 * done)
    assert not made.was_stale
    if single:
        assert (tmp_path / name).read_bytes() == expected
    else:
        assert contents(tmp_path / name) == contents(tmp_path / "whole")
    assert not (tmp_path / f"{name}.part").exists()


def test_finished_parts_that_were_damaged_in_the_meantime_are_made_again(source, tmp_path):
    convert(source, tmp_path / "whole", rows_per_shard=15)
    with pytest.raises(Interrupted):
        convert(source, tmp_path / "out", rows_per_shard=15, run=run_some(4))
    result = tmp_path / "out.part" / "result"
    damaged = bytearray((result / "shard-00001.ndf").read_bytes())
    damaged[-1] ^= 1
    (result / "shard-00001.ndf").write_bytes(damaged)
    (result / "shard-00002.ndf").unlink()
    (result / "shard-00006.ndf-1234.tmp").write_bytes(b"half")
    with open(tmp_path / "out.part" / "finished.jsonl", "a") as journal:
        journal.write('{"part": 4, "che')
    made = convert(source, tmp_path / "out", rows_per_shard=15)
    assert made.rows_kept == 30
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_range_of_a_single_file_that_was_damaged_is_made_again(source, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "RANGE_BYTES", 15 * 40)
    with pytest.raises(Interrupted):
        convert(source, tmp_path / "out.ndf", run=run_some(3))
    with open(tmp_path / "out.ndf.part" / "result" / "rows.ndf", "r+b") as file:
        file.seek(28 + 20 * 40)
        file.write(b"x")
    assert convert(source, tmp_path / "out.ndf").rows_kept == 30
    assert (tmp_path / "out.ndf").read_bytes() == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda source: np.savez(source, x=-X, y=Y),
        lambda source: os.utime(source, ns=(1, 1)),
    ],
    ids=["other rows", "another time"],
)
def test_a_source_that_changed_between_the_runs_is_converted_anew(source, tmp_path, change):
    with pytest.raises(Interrupted):
        convert(source, tmp_path / "out", rows_per_shard=15, run=run_some(3))
    change(source)
    made = convert(source, tmp_path / "out", rows_per_shard=15)
    assert (made.rows_kept, made.was_stale) == (0, True)
    assert np.array_equal(NdfShards(tmp_path / "out")[99][0], np.load(source)["x"][99])


def test_other_options_are_another_plan(source, tmp_path):
    with pytest.raises(Interrupted):
        convert(source, tmp_path / "out", rows_per_shard=15, run=run_some(3))
    made = convert(source, tmp_path / "out", rows_per_shard=16)
    assert (made.rows_kept, made.was_stale, made.num_files) == (0, True, 7)


def test_a_source_that_changes_while_it_is_converted_is_an_error(source, tmp_path):
    def run(opened, jobs, workers, advance):
        yield from run_jobs(opened, jobs, workers, advance)
        os.utime(source, ns=(1, 1))

    with pytest.raises(OptionError, match="changed while it was converted"):
        convert(source, tmp_path / "out", num_shards=2, run=run)
    assert not (tmp_path / "out").exists()


def start_convert(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "feedline", "convert", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(feedline.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("words", [["out"], ["out", "--workers", "2"], ["out.ndf"]], ids=" ".join)
def test_a_run_that_was_killed_goes_on_and_its_result_is_that_of_an_unbroken_one(tmp_path, words):
    pytest.importorskip("typer", reason="the command line needs the extra 'cli'")
    (tmp_path / "gated.py").write_text(GATED)
    words = ["gated:Gated", *words, *(["--rows-per-shard", "9"] if words[0] == "out" else [])]
    os.mkfifo(tmp_path / "reached")
    os.mkfifo(tmp_path / "go on")
    with start_convert(tmp_path, *words) as process:
        with open(tmp_path / "reached"):  # waits until item 61 is asked for
            process.kill()
        process.wait(60)
        # A worker is no child of ours; it is set free, and must end by itself. Its end closes the pipe that it shares.
        with contextlib.suppress(OSError):  # nobody waits at the gate any more
            os.close(os.open(tmp_path / "go on", os.O_WRONLY | os.O_NONBLOCK))
        process.communicate(timeout=60)
    assert not (tmp_path / words[1]).exists()
    (tmp_path / "reached").unlink()
    with start_convert(tmp_path, *words) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    if words[1] == "out":
        assert "rows kept from an earlier run, checked" in out
    rows = NdfShards(tmp_path / "out") if words[1] == "out" else NdfDataset(tmp_path / "out.ndf")
    assert np.array_equal([row for row, _ in rows], np.arange(4.0) + np.arange(100)[:, None])
    np.savez(tmp_path / "same.npz", x=np.arange(4.0) + np.arange(100)[:, None], y=np.arange(100))
    if words[1] == "out":
        convert(tmp_path / "same.npz", tmp_path / "unbroken", rows_per_shard=9)
        assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")
    else:
        convert(tmp_path / "same.npz", tmp_path / "unbroken.ndf")
        assert (tmp_path / "out.ndf").read_bytes() == (tmp_path / "unbroken.ndf").read_bytes()


def test_a_full_disk_is_an_error_and_the_next_run_goes_on(source, tmp_path, monkeypatch):
    room = [3 * 15 * 40]
    write = os.write

    def limited(fd, data):
        size = len(data)
        if size > 200 and room[0] < size:  # headers and the journal find a place
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= size if size > 200 else 0
        return write(fd, data)

    monkeypatch.setattr(os, "write", limited)
    with pytest.raises(OSError, match="No space left") as caught:
        convert(source, tmp_path / "out", rows_per_shard=15)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "out")
    assert "free some space on its disk" in str(caught.value)
    assert not [name for name in os.listdir(tmp_path / "out.part" / "result") if name.endswith(".tmp")]
    room[0] = 10**9
    assert convert(source, tmp_path / "out", rows_per_shard=15).rows_kept == 45


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize(("name", "call"), [("out", "fsync"), ("out.ndf", "fsync"), ("out", "write")])
def test_every_error_of_the_disk_names_the_destination_and_says_what_to_do(
    source, tmp_path, monkeypatch, durable, code, name, call
):
    def refuse(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match=f"rows could not be written .{os.strerror(code)}.; ") as caught:
        convert(source, tmp_path / name)
    assert (caught.value.errno, caught.value.filename) == (code, str(tmp_path / name))


def test_an_error_of_the_source_is_not_taken_for_one_of_the_destination(source, tmp_path, monkeypatch):
    def refuse(self, start, stop):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "the source")

    monkeypatch.setattr("feedline.convert.arrays.ArraySource.blocks", refuse)
    with pytest.raises(OSError, match="Input/output error") as caught:
        convert(source, tmp_path / "out")
    assert caught.value.filename == "the source"


def test_what_exists_is_left_alone_unless_it_may_be_replaced(source, tmp_path):
    (tmp_path / "out.ndf").write_bytes(b"old")
    with pytest.raises(FileExistsError, match="--overwrite"):
        convert(source, tmp_path / "out.ndf")
    assert (tmp_path / "out.ndf").read_bytes() == b"old"
    convert(source, tmp_path / "out.ndf", overwrite=True)
    assert NdfDataset(tmp_path / "out.ndf").n == 100
    convert(source, tmp_path / "out", num_shards=2)
    with pytest.raises(FileExistsError, match="--overwrite"):
        convert(source, tmp_path / "out", num_shards=3)
    convert(source, tmp_path / "out", num_shards=3, overwrite=True)
    assert NdfShards(tmp_path / "out").num_shards == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.ndf", "rows.npz"]


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        (
            "home",
            lambda path: (path.mkdir(), (path / "thesis.txt").write_text("!")),
            "is no folder of shards",
        ),
        ("link", lambda path: path.symlink_to("nowhere"), "is no folder of shards"),
        ("file", lambda path: path.write_text("!"), "is no folder of shards"),
        ("out.ndf", lambda path: path.mkdir(), "is no file, so a file can't replace it"),
        ("no such folder/out.ndf", lambda path: None, "no folder to write the result to"),
        ("corpus", lambda path: path.with_name("corpus.part").write_text("!"), "is in the way"),
        (
            "corpus",
            lambda path: path.with_name("corpus.part").joinpath("mine").mkdir(parents=True),
            "is in the way",
        ),
    ],
)
def test_nothing_is_replaced_that_no_conversion_has_made(source, tmp_path, name, make, said):
    make(tmp_path / name)
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(OSError, match=said):
        convert(source, tmp_path / name, overwrite=True)
    assert [path for path in sorted(map(str, tmp_path.rglob("*"))) if not path.endswith("lock")] == before


def test_a_source_is_never_its_own_destination(tmp_path):
    np.save(tmp_path / "a.npy", X)
    convert(tmp_path / "a.npy", tmp_path / "corpus")
    shutil.move(tmp_path / "a.npy", tmp_path / "corpus" / "a.npy")
    for one, other in [
        ("corpus", "corpus"),
        ("corpus/shard-00000.ndf", "corpus"),
        ("corpus/a.npy", "corpus"),
    ]:
        with pytest.raises(OptionError, match="lies at the destination"):
            convert(tmp_path / one, tmp_path / other, overwrite=True)


def test_shards_can_be_joined_and_split_anew(source, expected, tmp_path):
    convert(source, tmp_path / "corpus", num_shards=7)
    convert(tmp_path / "corpus", tmp_path / "out.ndf")
    assert (tmp_path / "out.ndf").read_bytes() == expected
    convert(tmp_path / "out.ndf", tmp_path / "again", num_shards=7)
    assert contents(tmp_path / "again") == contents(tmp_path / "corpus")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs file locks")
def test_two_conversions_to_one_place_do_not_meet(source, tmp_path):
    def run(opened, jobs, workers, advance):
        with pytest.raises(FileExistsError, match="another process is converting"):
            convert(source, tmp_path / "out", num_shards=2)
        return run_jobs(opened, jobs, workers, advance)

    convert(source, tmp_path / "out", num_shards=2, run=run)
    assert NdfShards(tmp_path / "out").n == 100


def test_an_error_of_a_worker_is_raised_as_it_is(tmp_path, nothing_left):
    (tmp_path / "a.csv").write_text("1,2\n" * 50 + "1,x\n" + "1,2\n" * 50)
    with pytest.raises(OptionError, match=r"column '1' of line 51 of .* is 'x'"):
        convert(tmp_path / "a.csv", tmp_path / "out", num_shards=4, workers=2)
    assert not (tmp_path / "out").exists()


def test_a_worker_that_dies_is_named_with_its_signal(tmp_path, monkeypatch):
    (tmp_path / "dying.py").write_text(
        "import multiprocessing, os, signal\n"
        "class Dying(list):\n"
        "    def __getitem__(self, index):\n"
        "        if multiprocessing.parent_process() is not None and index == 5:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return float(index)\n"
        "rows = Dying(range(10))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(WorkerDied, match=r"ended with signal SIGKILL, while it had shard-00002\.ndf"):
        convert("dying:rows", tmp_path / "out", num_shards=4, workers=2)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"num_shards": 2, "rows_per_shard": 3}, OptionError, "exclude each other"),
        ({"num_shards": 0}, OptionError, "num_shards must be at least 1, not 0"),
        ({"rows_per_shard": -1}, OptionError, "rows_per_shard must be at least 1, not -1"),
        ({"workers": 0}, OptionError, "workers must be at least 1, not 0"),
        ({"workers": 1.5}, TypeError, r"workers must be an int, not 1\.5"),
        ({"num_shards": True}, TypeError, "num_shards must be an int, not True"),
        ({"num_shards": 101}, OptionError, "101 shards can't be made of 100 rows"),
        ({"labels": "y"}, TypeError, "labels must be a list of names"),
        ({"labels": ["z"]}, OptionError, "has no column 'z'; it has 'x', 'y'"),
        ({"size": (3, 3)}, OptionError, "size is for a folder of images"),
    ],
)
def test_bad_options_are_told(source, tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        convert(source, tmp_path / "out", **options)
    assert os.listdir(tmp_path) == ["rows.npz"]


def test_a_single_file_takes_no_number_of_shards(source, tmp_path):
    with pytest.raises(OptionError, match=r"ends with \.ndf, as a single file does"):
        convert(source, tmp_path / "out.ndf", num_shards=2)


def test_the_disk_has_everything_before_the_result_gets_its_name(source, tmp_path, monkeypatch, durable):
    events = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def told(name, call):
        def wrapped(*arguments):
            what = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else arguments[1]
            events.append((name, os.path.basename(str(what)).split("-")[0]))
            return call(*arguments)

        return wrapped

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", told("fsync", fsync))
    monkeypatch.setattr(os, "rename", told("rename", rename))
    monkeypatch.setattr(os, "replace", told("replace", replace))
    convert(source, tmp_path / "out", num_shards=2)
    names = [event for event in events if event[1] not in ("plan.json", "plan.json.tmp")]
    shard = [("fsync", "shard"), ("replace", "shard")]
    assert names[:4] == shard * 2
    assert names[4][0] == "fsync"
    assert names[5:] == [
        ("replace", "index.json"),
        ("fsync", "result"),
        ("rename", "out"),
        ("fsync", tmp_path.name.split("-")[0]),
    ]
    events.clear()
    convert(source, tmp_path / "out.ndf")
    names = [event for event in events if event[1] not in ("plan.json", "plan.json.tmp")]
    assert names[:4] == [("fsync", "rows.ndf")] * 3 + [("replace", "out.ndf")]


def test_the_journal_tells_what_is_finished(source, tmp_path):
    with pytest.raises(Interrupted):
        convert(source, tmp_path / "out", rows_per_shard=15, run=run_some(2))
    lines = (tmp_path / "out.part" / "finished.jsonl").read_text().split("\n")
    assert [json.loads(line)["part"] for line in lines if line] == [0, 1]


@pytest.mark.parametrize("unread", [False, True], ids=["closed", "reset"])
def test_a_worker_whose_parent_is_gone_ends_in_silence(monkeypatch, unread):
    monkeypatch.setattr(pool.signal, "signal", lambda number, what: None)
    ours, theirs = multiprocessing.Pipe()
    if unread:
        theirs.send("what nobody reads")
    ours.close()
    assert pool._work(None, theirs) is None
    theirs.close()


def test_ctrl_c_ends_workers_at_once_and_keeps_what_is_finished(source, tmp_path, nothing_left):
    def interrupt(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "out", rows_per_shard=15, workers=2, advance=interrupt)
    assert not (tmp_path / "out").exists()
    convert(source, tmp_path / "out", rows_per_shard=15)
    assert NdfShards(tmp_path / "out").n == 100
