"""A folder of shards reads as one dataset, whatever the number of files, and names the shard that is not what it was."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from feedline.datasets.ndf_shards import NdfShards
from feedline.errors import NdfError, OptionError
from feedline.loader.dataloader import DataLoader
from feedline.ndf.layout import NdfHeader, pack_header
from feedline.ndf.shards import Shard, ShardIndex, pack_index
from feedline.samplers.random import RandomSampler
from feedline.testing.dataset_contract import DatasetContract

X = np.random.default_rng(0).normal(size=(50, 3))
Y = np.arange(50.0)[:, None]


def make_shards(folder: Path, x, y, rows) -> Path:
    """Write shards by hand, so that these tests do not lean on the conversion."""
    folder.mkdir()
    shards, at = [], 0
    for number, count in enumerate(rows):
        header = NdfHeader(count, x.shape[1], y.shape[1])
        data = (
            pack_header(header) + np.hstack([x[at : at + count], y[at : at + count]]).astype("<f8").tobytes()
        )
        name = f"part-{number}.ndf"
        (folder / name).write_bytes(data)
        shards.append(Shard(name, count, len(data), hashlib.sha256(data).hexdigest()))
        at += count
    (folder / "index.json").write_bytes(pack_index(ShardIndex(x.shape[1], y.shape[1], tuple(shards))))
    return folder


@pytest.fixture
def corpus(tmp_path) -> Path:
    return make_shards(tmp_path / "corpus", X, Y, [20, 0, 1, 19, 0, 10, 0])


@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"dtype": "float32"}], ids=str)
class TestNdfShards(DatasetContract):
    @pytest.fixture(autouse=True)
    def _folder(self, corpus, options):
        self.make_dataset = lambda: NdfShards(corpus, **options)


def test_all_rows_are_there_in_order_with_their_labels(corpus):
    dataset = NdfShards(corpus)
    assert (dataset.n, dataset.d, dataset.l, len(dataset), dataset.num_shards) == (50, 3, 1, 50, 7)
    rows = list(dataset)
    assert np.array_equal([row for row, _ in rows], X)
    assert np.array_equal([labels for _, labels in rows], Y)
    x, y = dataset.take(np.arange(50), np.empty)
    assert np.array_equal(x, X)
    assert np.array_equal(y, Y)


@pytest.mark.parametrize("mmap", [False, True])
def test_any_order_with_repeats_crosses_shards(corpus, mmap):
    dataset = NdfShards(corpus, mmap=mmap)
    places = np.random.default_rng(1).integers(-50, 50, 300)
    x, y = dataset.take(places, np.empty)
    assert np.array_equal(x, X[places])
    assert np.array_equal(y, Y[places])
    outs = np.empty_like(x), np.empty_like(y)
    dataset.take_into(places, outs)
    assert np.array_equal(outs[0], x)


def test_a_loader_gives_the_batches_of_the_arrays_with_threads_and_processes(corpus):
    dataset = NdfShards(corpus)
    order = np.asarray(RandomSampler(3).order(50, 0)[0:50])
    for options in ({}, {"num_workers": 2}, {"num_workers": 1, "worker_type": "process"}):
        with DataLoader(dataset, 8, shuffle=True, seed=3, **options) as loader:
            x = np.concatenate([batch[0] for batch in loader])
        assert np.array_equal(x, X[order])


def test_ten_thousand_shards_need_few_descriptors_and_pickle_small(tmp_path):
    rows = np.arange(10_000.0)[:, None]
    dataset = NdfShards(make_shards(tmp_path / "corpus", rows, np.empty((10_000, 0)), [1] * 10_000))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    places = np.random.default_rng(0).permutation(10_000)[:2_000]
    dataset.prefetch(places)
    x, y = dataset.take(places, np.empty)
    assert np.array_equal(x, rows[places])
    assert y.shape == (2_000, 0)
    assert np.array_equal([dataset[int(place)][0] for place in places[:300]], rows[places[:300]])
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) - before <= dataset.max_open_files
    assert len(pickle.dumps(dataset)) < 600


def test_many_threads_share_few_open_shards(corpus, monkeypatch):
    monkeypatch.setattr(NdfShards, "max_open_files", 1)
    dataset = NdfShards(corpus)

    def read(seed):
        places = np.random.default_rng(seed).integers(0, 50, 64)
        return np.array_equal(dataset.take(places, np.empty)[0], X[places])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(40)))


@pytest.mark.parametrize("opened", [False, True], ids=["not yet opened", "opened before"])
@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "truncated_rows"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "trailing_bytes"),
        (lambda path: path.write_bytes(pack_header(NdfHeader(0, 3, 1))), "changed"),
        (lambda path: path.write_bytes(pack_header(NdfHeader(19, 1, 3)) + bytes(19 * 32)), "changed"),
    ],
    ids=["missing", "cut", "empty", "longer", "another length", "another split"],
)
def test_a_shard_that_is_not_what_the_index_tells_is_named(corpus, damage, kind, opened):
    dataset = NdfShards(corpus)
    path = corpus / "part-3.ndf"
    if opened:
        assert np.array_equal(dataset[30][0], X[30])
        dataset = pickle.loads(pickle.dumps(dataset))  # with nothing open
    damage(path)
    for read in (lambda: dataset[30], lambda: dataset.take(np.array([0, 30]), np.empty)):
        with pytest.raises(NdfError) as caught:
            read()
        assert (caught.value.kind, caught.value.path) == (kind, str(path))
        assert str(path) in str(caught.value)
    # The others are still there.
    assert np.array_equal(dataset.take(np.array([0, 49]), np.empty)[0], X[[0, 49]])


def test_a_hint_for_a_missing_shard_is_no_error(corpus):
    (corpus / "part-3.ndf").unlink()
    NdfShards(corpus).prefetch([0, 30, 49])


def test_a_shard_that_was_written_over_while_it_was_closed_is_found_when_it_is_opened_again(
    corpus, monkeypatch
):
    monkeypatch.setattr(NdfShards, "max_open_files", 1)
    dataset = NdfShards(corpus)
    assert np.array_equal(dataset[0][0], X[0])
    assert np.array_equal(dataset[30][0], X[30])
    path = corpus / "part-0.ndf"
    path.write_bytes(pack_header(NdfHeader(20, 3, 1)) + bytes(20 * 32))
    os.utime(path, ns=(1, 1))
    with pytest.raises(NdfError, match="since it was first opened") as caught:
        dataset[0]
    assert caught.value.kind == "changed"


def test_an_open_shard_that_is_cut_in_the_meantime_is_an_error(corpus):
    dataset = NdfShards(corpus)
    assert np.array_equal(dataset[0][0], X[0])
    os.truncate(corpus / "part-0.ndf", 100)
    with pytest.raises(NdfError, match="changed while it was read") as caught:
        dataset.take(np.array([0, 19]), np.empty)
    assert caught.value.kind == "truncated_rows"


def test_another_index_after_unpickling_is_an_error(corpus):
    dataset = NdfShards(corpus)
    copy = pickle.loads(pickle.dumps(dataset))
    shutil.rmtree(corpus)
    make_shards(corpus, X[:40], Y[:40], [40])
    with pytest.raises(NdfError, match="is another index by now: it has 40 rows in 1 shards") as caught:
        copy[0]
    assert caught.value.kind == "changed"


def test_closing_is_no_end(corpus):
    dataset = NdfShards(corpus)
    dataset.close()
    assert np.array_equal(dataset[-1][0], X[-1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_reads_on(corpus):
    dataset = NdfShards(corpus)
    dataset.take(np.arange(50), np.empty)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if np.array_equal(dataset.take(np.arange(50)[::-1], np.empty)[0], X[::-1]) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert np.array_equal(dataset[7][0], X[7])


def test_an_empty_corpus_is_a_dataset_of_no_items(tmp_path):
    dataset = NdfShards(make_shards(tmp_path / "c", X[:0], Y[:0], [0, 0]))
    assert len(dataset) == 0
    assert dataset.take(np.empty(0, np.int64), np.empty)[0].shape == (0, 3)
    dataset.prefetch([])
    with pytest.raises(IndexError):
        dataset[0]


def test_bad_options_fail_at_once(corpus, tmp_path):
    with pytest.raises(OptionError, match="dtype"):
        NdfShards(corpus, dtype="int32")
    with pytest.raises(TypeError, match="mmap"):
        NdfShards(corpus, mmap=1)
    with pytest.raises(TypeError, match="path"):
        NdfShards(3)
    with pytest.raises(FileNotFoundError, match="no index"):
        NdfShards(tmp_path)


def test_it_tells_what_it_is(corpus):
    assert (
        repr(NdfShards(corpus, "float32", True)) == f"NdfShards({str(corpus)!r}, dtype='float32', mmap=True)"
    )
    assert NdfShards(corpus).kind() == "feedline.NdfShards"
