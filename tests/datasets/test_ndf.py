"""Rows streamed from a file: contents, forms of paths, threads, processes, and files that change."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from feedline.collate.default import default_collate
from feedline.datasets.arrays import ArrayDataset
from feedline.datasets.ndf import NdfDataset
from feedline.errors import NdfError, OptionError
from feedline.ndf import positional
from feedline.ndf.reader import runs_of
from feedline.ndf.save import save_ndf

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")
has_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
modes = pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5000, 5))
Y = RNG.standard_normal((5000, 2))
ORDERS = {
    "random": RNG.integers(0, 5000, 4000),
    "one run": np.arange(100, 4100),
    "all": np.arange(5000),
    "backwards": np.arange(5000)[::-1],
    "short runs": (np.arange(0, 5000, 50)[:, None] + np.arange(7)).reshape(-1),
    "one": np.array([4999]),
    "negative": np.array([-1, 0, -5000, 17]),
    "the same": np.full(300, 7),
    "none": np.empty(0, np.int64),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "rows.ndf"
    save_ndf(found, X, Y)
    return found


@modes
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ORDERS)
def test_batches_equal_those_in_memory_and_the_collated_items(name, dtype, mmap, path):
    places = ORDERS[name]
    dataset = NdfDataset(path, dtype=dtype, mmap=mmap)
    memory = ArrayDataset(X.astype(dtype), Y.astype(dtype))
    batch = dataset.take(places, np.empty)
    for ours, theirs in zip(batch, memory.take(places, np.empty)):
        assert ours.dtype == theirs.dtype == dtype
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()
    if len(places):
        few = places[:200]
        items = default_collate([dataset[int(place)] for place in few])
        together = default_collate(dataset.__getitems__(few))
        for parts in zip(dataset.take(few, np.empty), items, together):
            assert len({(part.dtype, part.shape, part.tobytes()) for part in parts}) == 1


@modes
@pytest.mark.parametrize(
    ("d", "l"), [(1, 0), (0, 1), (7, 0), (0, 3), (3, 4), (40_000, 0), (40_000, 1), (1, 40_000)]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_every_width_are_split_right(d, l, dtype, mmap, tmp_path):  # noqa: E741
    values = RNG.standard_normal((9, d + l))
    save_ndf(tmp_path / "a.ndf", values[:, :d], values[:, d:])
    dataset = NdfDataset(tmp_path / "a.ndf", dtype=dtype, mmap=mmap)
    for places in ([3, 8, 0, 3], [2, 3, 4, 5], [0]):
        x, y = dataset.take(np.array(places), np.empty)
        assert x.tobytes() == values[places, :d].astype(dtype).tobytes()
        assert y.tobytes() == values[places, d:].astype(dtype).tobytes()
        assert y.shape == (len(places), l)


def test_a_batch_is_read_into_the_callers_arrays(path):
    dataset = NdfDataset(path)
    x, y = np.empty((3, 5)), np.empty((3, 2))
    assert dataset.take_into(np.array([5, 1, -1]), (x, y)) is None
    assert x.tolist() == X[[5, 1, -1]].tolist()
    assert y.tolist() == Y[[5, 1, -1]].tolist()
    assert [(spec.shape, str(spec.dtype)) for spec in dataset.row_specs] == [
        ((5,), "float64"),
        ((2,), "float64"),
    ]


def test_values_beyond_float32_become_infinities_without_a_warning(tmp_path):
    save_ndf(tmp_path / "a.ndf", [[1e300, -1e300, np.nan, 1e-300]])
    dataset = NdfDataset(tmp_path / "a.ndf", dtype="float32")
    expected = [np.float32(np.inf), np.float32(-np.inf), np.float32(np.nan), np.float32(0)]
    np.testing.assert_array_equal(dataset[0][0], expected)
    np.testing.assert_array_equal(dataset.take(np.array([0]), np.empty)[0][0], expected)


@modes
def test_indices_out_of_range_are_errors_that_tell_their_place(mmap, path):
    dataset = NdfDataset(path, mmap=mmap)
    assert dataset[-1][0].tolist() == X[-1].tolist()
    for index in (5000, -5001, 2**64):
        with pytest.raises(IndexError, match=f"index {index} is out of range for NdfDataset of 5000 items"):
            dataset[index]
    for call in (lambda i: dataset.take(i, np.empty), dataset.__getitems__, dataset.prefetch):
        with pytest.raises(IndexError) as caught:
            call(np.array([0, 1, 5000]))
        assert caught.value.position == 2
    for index in (True, 1.0, "1", None):
        with pytest.raises(TypeError):
            dataset[index]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dtype": "float16"}, OptionError),
        ({"dtype": ">f8"}, OptionError),
        ({"dtype": None}, TypeError),
        ({"mmap": 1}, TypeError),
    ],
)
def test_wrong_options_are_refused(options, error, path):
    with pytest.raises(error, match="must be"):
        NdfDataset(path, **options)


@pytest.mark.parametrize("given", [3, None, ["a.ndf"], 1.5])
def test_a_path_is_a_path(given):
    with pytest.raises(TypeError, match="str, bytes or PathLike"):
        NdfDataset(given)


def test_paths_of_every_form_are_opened(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    for given in (str(path), path, os.fsencode(path), "rows.ndf", b"rows.ndf", "./rows.ndf"):
        assert NdfDataset(given).path == str(path)


@posix
@pytest.mark.parametrize(
    "name", [b"\xff\xfe.ndf", b"n" * 250 + b".ndf", b"a b\n.ndf", "é数 %20+#.ndf".encode()]
)
def test_names_of_every_spelling_work(name, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), name)
    save_ndf(path, [1.0, 2.0])
    assert os.listdir(os.fsencode(tmp_path)) == [name]
    dataset = NdfDataset(path)
    assert os.fsencode(dataset.path) == path
    assert pickle.loads(pickle.dumps(dataset))[1][0].tolist() == [2.0]
    # Whatever the name, a message can be printed.
    assert repr(dataset).encode("utf-8")


def test_what_is_no_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        NdfDataset(tmp_path / "none.ndf")
    assert caught.value.filename == str(tmp_path / "none.ndf")
    with pytest.raises(IsADirectoryError) as caught:
        NdfDataset(tmp_path)
    assert caught.value.filename == str(tmp_path)


@posix
def test_a_named_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.ndf")
    with pytest.raises(OSError, match="not a regular file"):
        NdfDataset(tmp_path / "pipe.ndf")


@modes
def test_it_pickles_as_its_path_and_opens_again_wherever_it_is(mmap, path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    data = pickle.dumps(NdfDataset("rows.ndf", dtype="float32", mmap=mmap))
    assert len(data) < 500
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(data)
    assert repr(again) == f"NdfDataset({str(path)!r}, dtype='float32'{', mmap=True' if mmap else ''})"
    assert len(again) == 5000
    assert again[3][0].tolist() == X[3].astype("f4").tolist()


def test_an_unpickled_dataset_refuses_another_or_a_broken_file(tmp_path):
    save_ndf(tmp_path / "a.ndf", X, Y)
    data = pickle.dumps(NdfDataset(tmp_path / "a.ndf"))
    save_ndf(tmp_path / "a.ndf", X[:10], Y[:10])
    with pytest.raises(NdfError, match="another file by now") as caught:
        pickle.loads(data)[0]
    assert caught.value.kind == "changed"
    (tmp_path / "a.ndf").write_bytes(b"NDF1")
    with pytest.raises(NdfError) as caught:
        pickle.loads(data)[0]
    assert caught.value.kind == "short_header"
    (tmp_path / "a.ndf").unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)[0]


@modes
def test_descriptors_close_with_the_dataset(mmap, path, nothing_left):
    for _ in range(50):
        dataset = NdfDataset(path, mmap=mmap)
        dataset.take(np.array([1]), np.empty)
    dataset.close()
    assert dataset[2][0].tolist() == X[2].tolist()
    del dataset
    gc.collect()


def test_a_dataset_that_could_not_be_opened_leaves_no_descriptor(tmp_path, nothing_left):
    (tmp_path / "a.ndf").write_bytes(b"NDF1")
    for _ in range(20):
        with pytest.raises(NdfError):
            NdfDataset(tmp_path / "a.ndf")
        with pytest.raises(IsADirectoryError):
            NdfDataset(tmp_path)


@modes
def test_many_threads_read_one_dataset(mmap, path):
    dataset = pickle.loads(pickle.dumps(NdfDataset(path, mmap=mmap)))

    def read(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            places = rng.integers(0, 5000, 100)
            dataset.prefetch(places)
            x, y = dataset.take(places, np.empty)
            if x.tobytes() != X[places].tobytes() or y.tobytes() != Y[places].tobytes():
                return False
            if dataset[int(places[0])][0].tolist() != X[places[0]].tolist():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))


def _read_in_process(dataset: NdfDataset, seed: int) -> bool:
    os.chdir("/")
    places = np.random.default_rng(seed).integers(0, 5000, 500)
    x, y = dataset.take(places, np.empty)
    return x.tobytes() == X[places].tobytes() and y.tobytes() == Y[places].tobytes()


@has_fork
@modes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children_read_the_dataset_of_their_parent(mmap, path):
    dataset = NdfDataset(path, mmap=mmap)
    children = []
    for seed in range(4):
        child = os.fork()
        if child == 0:
            os._exit(0 if _read_in_process(dataset, seed) else 1)
        children.append(child)
    for seed in range(20):
        places = np.random.default_rng(seed).integers(0, 5000, 100)
        assert dataset.take(places, np.empty)[0].tobytes() == X[places].tobytes()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0, 0]


@has_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_whose_descriptors_were_closed_opens_the_file_again(path):
    dataset = NdfDataset(path)
    child = os.fork()
    if child == 0:
        # As a daemon does; afterwards the number belongs to another file.
        number = dataset._reader.file.fd
        os.close(number)
        other = os.open(os.devnull, os.O_RDONLY)
        if other != number:
            os.dup2(other, number)
        right = dataset[4][0].tolist() == X[4].tolist()
        del dataset
        gc.collect()
        os.fstat(number)
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_spawned_processes_read_it_too(path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        datasets = [NdfDataset(path), NdfDataset(path, mmap=True)]
        results = [pool.apply_async(_read_in_process, (dataset, 5)) for dataset in datasets]
        assert [result.get(60) for result in results] == [True, True]


def test_reads_that_come_in_parts_are_continued(path, monkeypatch):
    real = os.preadv

    def stingy(fd, buffers, offset, flags=0):
        return real(fd, [buffers[0][:13]], offset, flags)

    monkeypatch.setattr(os, "preadv", stingy)
    dataset = NdfDataset(path)
    for name in ("random", "one run", "short runs"):
        places = ORDERS[name][:150]
        x, y = dataset.take(places, np.empty)
        assert x.tobytes() == X[places].tobytes()
        assert y.tobytes() == Y[places].tobytes()
    assert dataset[3][1].tolist() == Y[3].tolist()


@pytest.mark.parametrize("missing", [("_CAN_PREADV",), ("_CAN_PREADV", "_CAN_PREAD"), ("CAN_ADVISE",)])
def test_systems_without_such_reads_or_hints_get_the_same_rows(missing, path, monkeypatch):
    for name in missing:
        monkeypatch.setattr(positional, name, False)
    dataset = NdfDataset(path)
    places = ORDERS["random"][:300]
    dataset.prefetch(places)
    assert dataset.take(places, np.empty)[0].tobytes() == X[places].tobytes()
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda place: dataset[place][0].tolist(), places.tolist()))
    assert rows == X[places].tolist()


class Hints:
    """Records what the system is told, and answers what is in memory."""

    def __init__(self, monkeypatch, resident):
        self.given: list[tuple[int, int]] = []
        monkeypatch.setattr(
            os, "posix_fadvise", lambda fd, offset, size, advice: self.given.append((offset, size))
        )
        monkeypatch.setattr(positional.OpenFile, "are_resident", lambda file, offsets: resident)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="needs posix_fadvise")
@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="needs RWF_NOWAIT")
def test_hints_are_given_for_each_run_of_rows_only_while_some_are_not_in_memory(path, monkeypatch):
    dataset = NdfDataset(path)
    hints = Hints(monkeypatch, resident=False)
    dataset.prefetch([9, 3, -1])
    assert hints.given == [(28 + 56 * place, 56) for place in (9, 3, 4999)]
    hints = Hints(monkeypatch, resident=False)
    dataset.prefetch([5, 6, 7, 8, 2, 3])
    assert hints.given == [(28 + 56 * 5, 4 * 56), (28 + 56 * 2, 2 * 56)]
    hints = Hints(monkeypatch, resident=True)
    dataset.prefetch(range(100))
    dataset.prefetch([])
    assert hints.given == []


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="needs RWF_NOWAIT")
def test_a_file_system_that_cant_tell_what_is_in_memory_gets_hints(path, monkeypatch):
    real = os.preadv

    def refusing(fd, buffers, offset, flags=0):
        if flags:
            raise OSError(95, "not supported")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", refusing)
    given = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: given.append(arguments))
    dataset = NdfDataset(path)
    dataset.prefetch([9, 3])
    dataset.prefetch([8])
    assert len(given) == 3


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="needs posix_fadvise")
def test_once_all_was_in_memory_for_a_while_few_hints_look_again_and_what_is_missing_is_noticed(
    path, monkeypatch
):
    dataset = NdfDataset(path)
    probed = []
    monkeypatch.setattr(
        positional.OpenFile, "are_resident", lambda file, offsets: probed.append(offsets) or True
    )
    for _ in range(116):
        dataset.prefetch(range(64))
    assert 16 + 20 <= len(probed) <= 16 + 34
    assert [len(offsets) for offsets in (probed[0], probed[-1])] == [8, 4]
    hints = Hints(monkeypatch, resident=False)
    for _ in range(6):
        dataset.prefetch([9, 3])
    assert len(hints.given) >= 6


def test_runs_of_neighbours_are_found():
    starts, counts = runs_of(np.array([5, 6, 7, 2, 9, 10, 10]))
    assert (starts.tolist(), counts.tolist()) == ([0, 3, 4, 6], [3, 1, 2, 1])


def test_its_kind_is_its_name(path):
    assert NdfDataset(path).kind() == "feedline.NdfDataset"


# A file that changes under its reader: what reads in a bounded loop in a thread meets each change at any moment.

CHANGES = {
    "cut to half": lambda path, other: os.truncate(path, os.path.getsize(path) // 2),
    "cut to nothing": lambda path, other: os.truncate(path, 0),
    "written over by a shorter file": lambda path, other: path.write_bytes(other.read_bytes()[:1000]),
    "written over by as many bytes": lambda path, other: path.write_bytes(other.read_bytes()),
    "replaced by renaming": lambda path, other: os.replace(other, path),
    "deleted": lambda path, other: os.unlink(path),
}
KEEPS = {"replaced by renaming", "deleted"}


@posix
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_gives_old_rows_or_an_error_and_never_a_signal(change, tmp_path):
    path, other = tmp_path / "a.ndf", tmp_path / "b.ndf"
    save_ndf(path, X, Y)
    save_ndf(other, X + 1, Y + 1)
    dataset = NdfDataset(path)
    reading, changed = threading.Event(), threading.Event()
    wrong, errors = [], []

    def read() -> None:
        rng = np.random.default_rng(0)
        after = 0
        for _ in range(100_000):
            places = rng.integers(0, 5000, 64)
            try:
                x, y = dataset.take(places, np.empty)
            except NdfError as error:
                errors.append(error)
            else:
                if x.tobytes() != X[places].tobytes() or y.tobytes() != Y[places].tobytes():
                    wrong.append(places)
            reading.set()
            after += changed.is_set()
            if after > 20:
                return

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(30)
    CHANGES[change](path, other)
    changed.set()
    thread.join(30)
    assert not thread.is_alive()
    assert wrong == []
    assert {error.kind for error in errors} <= {"truncated_rows", "changed"}
    if change in KEEPS:
        assert errors == []
        assert dataset[7][0].tolist() == X[7].tolist()
    else:
        assert errors
        with pytest.raises(NdfError, match="changed while it was read"):
            dataset[7]
    if change == "replaced by renaming":
        assert NdfDataset(path)[7][0].tolist() == (X[7] + 1).tolist()


@posix
def test_a_mapped_file_that_was_cut_is_an_error_between_batches(tmp_path):
    save_ndf(tmp_path / "a.ndf", X, Y)
    script = """
        import os, sys
        import numpy as np
        from feedline.datasets.ndf import NdfDataset
        from feedline.errors import NdfError
        dataset = NdfDataset(sys.argv[1], mmap=True)
        dataset.take(np.array([4999]), np.empty)
        os.truncate(sys.argv[1], 100)
        for read in (lambda: dataset.take(np.array([4999]), np.empty), lambda: dataset[4999]):
            try:
                read()
            except NdfError as error:
                print(error.kind)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "a.ndf")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != -signal.SIGBUS
    assert (done.stdout, done.stderr) == ("truncated_rows\n" * 2, "")


@pytest.mark.parametrize("dtype", ["nonsense", "f4, f8,", "int32", "", "float16"])
def test_a_text_that_is_no_dtype_of_rows_is_an_error_that_says_what_it_may_be(dtype, path):
    with pytest.raises(OptionError, match="dtype must be 'float64' or 'float32', not ") as caught:
        NdfDataset(path, dtype=dtype)
    assert repr(dtype) in str(caught.value)


@pytest.mark.parametrize("dtype", [None, 3, object()], ids=["None", "an int", "an object"])
def test_what_names_no_dtype_at_all_is_of_a_wrong_type(dtype, path):
    with pytest.raises(TypeError, match="dtype must be 'float64' or 'float32', not "):
        NdfDataset(path, dtype=dtype)
