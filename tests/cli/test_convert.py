"""`feedline convert`, and `info` and `verify` of what it makes."""

from __future__ import annotations

import contextlib
import json
import os

import numpy as np
import pytest

from feedline.datasets.ndf_shards import NdfShards

X = np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture
def corpus(cli, tmp_path):
    np.savez(tmp_path / "rows.npz", x=X, y=np.arange(20))
    assert cli("convert", tmp_path / "rows.npz", tmp_path / "corpus", "--shards", 4).code == 0
    return tmp_path / "corpus"


def test_a_corpus_is_made_and_told_in_a_line(cli, tmp_path):
    np.savez(tmp_path / "rows.npz", x=X, y=np.arange(20))
    result = cli("convert", tmp_path / "rows.npz", tmp_path / "corpus", "--rows-per-shard", 6)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("corpus: 20 rows of 3 features and 1 label in 4 shards, 752 bytes\n")
    result = cli("convert", tmp_path / "rows.npz", tmp_path / "out.ndf")
    assert result.out.endswith("out.ndf: 20 rows of 3 features and 1 label, 668 bytes\n")


def test_labels_columns_and_workers_are_passed_on(cli, tmp_path):
    (tmp_path / "a.csv").write_text("name,a,b,y\n" + "".join(f"n{k},{k},{-k},7\n" for k in range(9)))
    words = ["--labels", "y", "--columns", "b, a", "--workers", 2, "--shards", 3]
    assert cli("convert", tmp_path / "a.csv", tmp_path / "corpus", *words).code == 0
    assert [part.tolist() for part in NdfShards(tmp_path / "corpus")[8]] == [[-8, 8], [7]]


def test_images_are_resized(cli, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need the extra 'images'")
    pytest.importorskip("cv2", reason="images need the extra 'images'")
    (tmp_path / "images" / "one").mkdir(parents=True)
    image.new("RGB", (9, 5), (10, 20, 30)).save(tmp_path / "images" / "one" / "a.png")
    words = ["--size", "2x3", "--mode", "RGBA"]
    assert cli("convert", tmp_path / "images", tmp_path / "corpus", *words).code == 0
    row, label = NdfShards(tmp_path / "corpus")[0]
    assert row.reshape(2, 3, 4)[1, 2].tolist() == [10, 20, 30, 255]
    assert label.tolist() == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing argument 'SRC'"),
        (["a.npy"], "Missing argument 'DST'"),
        (["a.npy", "out", "--shards", "0"], "Invalid value for '--shards'"),
        (["a.npy", "out", "--shards", "2", "--rows-per-shard", "3"], "exclude each other"),
        (["a.npy", "out.ndf", "--shards", "2"], "'out.ndf' is one file"),
        (["a.npy", "out", "--workers", "no"], "Invalid value for '--workers'"),
        (["a.npy", "out", "--size", "64"], "--size must be HEIGHTxWIDTH"),
        (["a.npy", "out", "--size", "0x4"], "--size must be HEIGHTxWIDTH"),
        (["a.npy", "out", "--mode", "CMYK"], "--mode must be one of L, RGB, RGBA"),
        (["a.npy", "out", "--labels", "a,,b"], "--labels must be names with commas"),
        (["a.txt", "out"], "'a.txt' ends with '.txt', which is not known: it may be .npy, .npz, .csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_one_line_and_exit_code_2(cli, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", X)
    (tmp_path / "a.txt").write_text("1")
    result = cli("convert", *words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "a.txt"]


def test_a_failed_run_is_one_line_and_exit_code_1(cli, tmp_path, corpus):
    (tmp_path / "a.csv").write_text("1,2\n3\n")
    for words, said in [
        (["nothing.npy", "out"], "no such file or folder"),
        ([tmp_path / "a.csv", tmp_path / "out"], "line 2 of"),
        ([tmp_path / "rows.npz", corpus], "exists; overwrite=True (--overwrite) replaces it"),
        (["no_such_module:rows", tmp_path / "out"], "there is no module"),
    ]:
        result = cli("convert", *words)
        assert (result.code, result.out) == (1, "")
        assert said in result.err
        assert result.err.startswith("feedline: ")
        assert result.err.count("\n") == 1
    assert cli("convert", tmp_path / "rows.npz", corpus, "--overwrite").code == 0


def test_a_run_that_failed_in_the_middle_tells_how_to_go_on_and_what_was_kept(cli, tmp_path):
    rows = np.arange(30, dtype=np.int64)[:, None]
    rows[25] = 2**53 + 1
    np.save(tmp_path / "a.npy", rows)
    words = ["convert", tmp_path / "a.npy", tmp_path / "out", "--rows-per-shard", 10]
    result = cli(*words)
    assert result.code == 1
    assert "can't hold exactly" in result.err
    assert "the same command goes on from what is finished" in result.err
    assert (
        cli("info", tmp_path / "out").err.count("was not finished, run the same 'feedline convert' again")
        == 0
    )
    rows[25] = 0
    np.save(tmp_path / "a.npy", rows)
    result = cli(*words)
    assert result.code == 0
    assert "is of no use: source or options are others by now" in result.out


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_on_a_terminal_there_is_a_progress_bar(start_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    np.save(tmp_path / "a.npy", X)
    ours, theirs = os.openpty()
    with start_cli("convert", tmp_path / "a.npy", tmp_path / "out", stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while part := os.read(ours, 4096):
                shown += part
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert b"converting" in shown
    assert "20 rows of 3 features" in out


def test_info_shows_a_corpus_as_one(cli, corpus):
    out = cli("info", corpus, "--rows", 1).out
    assert "20 rows of 3 features and 1 label in 4 shards, float64, 752 bytes" in out
    facts = json.loads(cli("info", corpus, "--json", "--rows", 20).out)
    assert (facts["n"], facts["d"], facts["l"], facts["shards"], facts["size_bytes"]) == (20, 3, 1, 4, 752)
    assert np.array_equal([row[:3] for row in facts["first_rows"]], X)
    assert facts["columns"][3]["max"] == 19


def test_verify_reads_every_shard_and_checks_its_checksum(cli, corpus):
    result = cli("verify", corpus)
    assert (result.code, result.err) == (0, "")
    assert "corpus: 4 whole shards, as the index tells" in result.out
    facts = json.loads(cli("verify", corpus, "--json").out)
    assert facts == {
        "path": str(corpus),
        "n": 20,
        "d": 3,
        "l": 1,
        "size_bytes": 752,
        "nan": 0,
        "infinite": 0,
        "shards": 4,
    }


def flip_last_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (flip_last_byte, "changed", "is not what it was when it was written: its SHA-256 is"),
        (lambda path: path.unlink(), "missing", "the index names it as shard 1 of 4"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "truncated_rows", "is cut short"),
    ],
    ids=["a flipped bit", "missing", "cut"],
)
def test_verify_names_the_shards_that_are_damaged(cli, corpus, damage, kind, said):
    damage(corpus / "shard-00001.ndf")
    damage(corpus / "shard-00003.ndf")
    result = cli("verify", corpus)
    assert (result.code, result.out) == (1, "")
    assert said in result.err
    assert f"(kind: {kind})" in result.err
    assert "shard-00001.ndf" in result.err
    assert result.err.endswith("; damaged, too: shard-00003.ndf, of 4 shards\n")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("name", ["info", "verify"])
def test_a_damaged_index_is_told(cli, corpus, name):
    (corpus / "index.json").write_text("{}")
    result = cli(name, corpus)
    assert (result.code, result.out) == (1, "")
    assert "(kind: bad_index)" in result.err
