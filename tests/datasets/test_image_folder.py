"""`ImageFolderDataset`: a folder of class folders."""

from __future__ import annotations

import os
import pickle
import sys
import threading

import numpy as np
import pytest

from feedline.datasets.image_folder import IMAGE_EXTENSIONS, ImageFolderDataset
from feedline.datasets.kind import dataset_kind
from feedline.errors import FetchError, OptionError


def fill(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return root


def content(dataset):
    return [(data.decode(), label) for data, label in (dataset[index] for index in range(len(dataset)))]


def test_classes_are_sorted_folders_and_items_bytes_with_labels(tmp_path):
    root = fill(tmp_path, "dog/b.jpg", "dog/a.png", "Cat/z.JPEG", "bird/1.webp", "bird/10.tif", "bird/2.bmp")
    dataset = ImageFolderDataset(root)
    assert dataset.classes == ["Cat", "bird", "dog"]
    assert dataset.class_to_idx == {"Cat": 0, "bird": 1, "dog": 2}
    assert content(dataset) == [
        ("Cat/z.JPEG", 0),
        ("bird/1.webp", 1),
        ("bird/10.tif", 1),
        ("bird/2.bmp", 1),
        ("dog/a.png", 2),
        ("dog/b.jpg", 2),
    ]
    assert dataset.targets.tolist() == [0, 1, 1, 1, 2, 2]
    assert dataset.targets.dtype == np.int64
    assert dataset.path(0) == os.path.join(root, "Cat", "z.JPEG")
    assert dataset[-1] == dataset[5]
    assert type(dataset[0][1]) is int


def test_the_order_is_that_of_a_sorted_walk(tmp_path):
    names = ["c/a/1.jpg", "c/a/b/2.jpg", "c/a-b/3.jpg", "c/z.jpg", "c/a.jpg", "c/B.jpg", "c/a/0/9.jpg"]
    root = fill(tmp_path, *names)
    expected = [
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, files in sorted(os.walk(root / "c", followlinks=True))
        for name in sorted(files)
    ]
    assert [text for text, _ in content(ImageFolderDataset(root))] == expected


def test_other_files_do_not_count(tmp_path):
    root = fill(tmp_path, "a/1.jpg", "a/readme.txt", "a/jpg", "a/.jpg.swp", "top.jpg", "b/2.gif", "b/3.png")
    assert [text for text, _ in content(ImageFolderDataset(root))] == ["a/1.jpg", "b/3.png"]
    gifs = ImageFolderDataset(root, extensions=[".GIF"], allow_empty=True)
    assert content(gifs) == [("b/2.gif", 1)]
    assert gifs.classes == ["a", "b"]
    assert len(ImageFolderDataset(root, extensions=None)) == 6
    assert ".gif" not in IMAGE_EXTENSIONS


def test_folders_that_are_not_usable_are_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nothing'"):
        ImageFolderDataset(tmp_path / "nothing")
    file = tmp_path / "file.jpg"
    file.write_bytes(b"x")
    with pytest.raises(NotADirectoryError, match=r"file\.jpg' is a file; a folder of class folders"):
        ImageFolderDataset(file)
    with pytest.raises(FileNotFoundError, match=r"has no folders in it.*one folder for each class"):
        ImageFolderDataset(tmp_path)
    (tmp_path / "empty").mkdir()
    fill(tmp_path, "full/a.jpg", "text/a.txt")
    with pytest.raises(
        FileNotFoundError, match=r"classes 'empty', 'text' in .* have no files that end in \.jpg"
    ):
        ImageFolderDataset(tmp_path)
    assert len(ImageFolderDataset(tmp_path, allow_empty=True)) == 1
    for number in range(9):
        (tmp_path / f"e{number}").mkdir()
    with pytest.raises(FileNotFoundError, match="'e0', 'e1', 'e2', 'e3', 'e4' and 6 more"):
        ImageFolderDataset(tmp_path)


def test_links_are_followed_and_circles_end(tmp_path):
    fill(tmp_path, "store/x/1.jpg", "root/a/2.jpg")
    root = tmp_path / "root"
    try:
        (root / "b").symlink_to(tmp_path / "store" / "x", target_is_directory=True)
        (root / "a" / "again").symlink_to(root / "a", target_is_directory=True)
        (root / "a" / "up").symlink_to(root, target_is_directory=True)
        (root / "a" / "3.jpg").symlink_to(tmp_path / "store" / "x" / "1.jpg")
        (root / "a" / "gone.jpg").symlink_to(tmp_path / "nowhere")
    except OSError:
        pytest.skip("links can't be made here")
    dataset = ImageFolderDataset(root)
    names = [os.path.relpath(dataset.path(index), root) for index in range(len(dataset))]
    assert dataset.classes == ["a", "b"]
    assert names[:2] == [os.path.join("a", "2.jpg"), os.path.join("a", "3.jpg")]
    assert names[-1] == os.path.join("b", "1.jpg")
    # Through `up` the other class is seen once more, and there the circle ends.
    assert len(names) == 4
    assert not any("gone" in name for name in names)


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no text need a file system of bytes")
def test_names_that_are_no_text_work(tmp_path):
    folder = os.path.join(os.fsencode(tmp_path), b"k\xff")
    os.mkdir(folder)
    with open(os.path.join(folder, b"\xfe\n\xe4.jpg"), "wb") as file:
        file.write(b"here")
    for root in (tmp_path, os.fsencode(tmp_path)):
        dataset = pickle.loads(pickle.dumps(ImageFolderDataset(root)))
        assert dataset[0] == (b"here", 0)
        assert os.fsencode(dataset.classes[0]) == b"k\xff"


def test_errors_of_an_item_carry_where_and_why(tmp_path):
    root = fill(tmp_path, "a/1.jpg", "a/2.jpg", "a/3.jpg")
    dataset = ImageFolderDataset(root, max_bytes=7)
    assert dataset[0] == (b"a/1.jpg", 0)
    (root / "a" / "2.jpg").write_bytes(b"eight...")
    (root / "a" / "3.jpg").unlink()
    with pytest.raises(FetchError, match=r"item 1: .*2\.jpg' has 8 bytes or more; max_bytes is 7") as caught:
        dataset[1]
    assert (caught.value.kind, caught.value.index) == ("too_large", 1)
    with pytest.raises(FetchError, match="is gone since the folder was listed") as caught:
        dataset[-1]
    assert (caught.value.kind, caught.value.index, caught.value.location) == (
        "not_found",
        2,
        str(root / "a" / "3.jpg"),
    )
    (root / "a" / "3.jpg").mkdir()
    with pytest.raises(OSError, match="directory"):
        dataset[2]
    with pytest.raises(IndexError, match="index 3 is out of range"):
        dataset[3]
    with pytest.raises(TypeError):
        dataset[0.5]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_denied(tmp_path):
    root = fill(tmp_path, "a/1.jpg")
    dataset = ImageFolderDataset(root)
    (root / "a" / "1.jpg").chmod(0)
    with pytest.raises(FetchError, match="may not be read") as caught:
        dataset[0]
    assert caught.value.kind == "denied"


def test_an_empty_file_is_empty_bytes(tmp_path):
    root = fill(tmp_path, "a/1.jpg")
    (root / "a" / "1.jpg").write_bytes(b"")
    assert ImageFolderDataset(root)[0] == (b"", 0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"extensions": ".jpg"}, TypeError, "must be a list like"),
        ({"extensions": [3]}, TypeError, "an extension must be a str"),
        ({"extensions": ["jpg"]}, OptionError, "begins with a dot, unlike 'jpg'"),
        ({"extensions": []}, OptionError, "may not be empty; None stands for all"),
        ({"max_bytes": 0}, OptionError, "max_bytes must be at least 1"),
        ({"max_bytes": 1.5}, TypeError, "max_bytes must be an int"),
    ],
)
def test_bad_options_are_refused_when_built(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        ImageFolderDataset(fill(tmp_path, "a/1.jpg"), **options)


def test_it_pickles_small_and_tells_its_kind(tmp_path):
    root = fill(tmp_path, *(f"class-{number % 3}/{number:05}.jpg" for number in range(300)))
    dataset = ImageFolderDataset(root)
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 300 * 45
    again = pickle.loads(pickled)
    assert content(again) == content(dataset)
    assert dataset_kind(again) == "feedline.ImageFolderDataset"
    assert repr(again) == f"ImageFolderDataset({str(root)!r}, 300 files in 3 classes)"
    with pytest.raises(ValueError, match="read-only"):
        dataset.targets[0] = 5


def test_threads_read_at_the_same_time_and_nothing_stays_open(tmp_path, nothing_left):
    root = fill(tmp_path, *(f"c{number % 2}/{number}.jpg" for number in range(50)))
    dataset = ImageFolderDataset(root)
    expected = content(dataset)
    results = []
    threads = [threading.Thread(target=lambda: results.append(content(dataset))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [expected] * 4
