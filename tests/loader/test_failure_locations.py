"""Where an item that failed lies: as its error tells, else as its dataset does."""

from __future__ import annotations

import pytest

from feedline import (
    ConcatDataset,
    DataLoader,
    FileDataset,
    HttpDataset,
    ImageFolderDataset,
    LabeledDataset,
    Subset,
)
from feedline.loader.failures import Failure


class Known(list):
    """Items that know where they lie; what fails is the transform."""

    def location(self, index):
        return f"shelf/{index}"


class Placed(ValueError):
    location = "told by the error"


class NotPlaced(ValueError):
    location = ""


def refuse_negative(item):
    if item < 0:
        raise ValueError("negative")
    return item


def refuse_broken(item):
    if (item[0] if isinstance(item, tuple) else item) == b"broken":
        raise ValueError("broken")
    return len(item)


def failures_of(dataset, transform, **options):
    loader = DataLoader(dataset, batch_size=2, transform=transform, on_error="skip", **options)
    for _ in loader:
        pass
    return [(failure.index, failure.location) for failure in loader.failures]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1, "worker_type": "process"}], ids=["here", "a process"]
)
def test_the_dataset_tells_where_an_item_lies_that_fails_in_the_transform(options):
    assert failures_of(Known([0, -1, 2, -3]), refuse_negative, **options) == [(1, "shelf/1"), (3, "shelf/3")]


def test_what_the_error_tells_goes_first():
    assert Failure.of(Placed(), 3, 0, 0, Known()).location == "told by the error"
    assert Failure.of(NotPlaced(), 3, 0, 0, Known()).location == "shelf/3"
    assert Failure.of(NotPlaced(), 3, 0, 0, [1]).location is None


@pytest.mark.parametrize(
    "location",
    [None, "Berlin", lambda index: 7, lambda index: "", lambda: "x", lambda index: [][index]],
    ids=["none", "a text", "an int", "nothing", "no argument", "an error"],
)
def test_a_dataset_that_can_not_tell_changes_nothing(location):
    dataset = Known([0, -1])
    dataset.location = location
    assert failures_of(dataset, refuse_negative) == [(1, None)]


@pytest.fixture
def folder(tmp_path):
    for name, data in (("ant/a.png", b"fine"), ("ant/b.png", b"broken"), ("bee/c.png", b"broken")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_broken_images_of_a_folder_are_named(folder):
    dataset = ImageFolderDataset(folder)
    broken = [str(folder / "ant" / "b.png"), str(folder / "bee" / "c.png")]
    assert failures_of(dataset, refuse_broken) == list(zip([1, 2], broken))
    parts = ConcatDataset([Subset(dataset, [2, 0]), [(b"broken", 0)]])
    assert failures_of(parts, refuse_broken) == [(0, broken[1]), (2, None)]
    assert Subset([1, 2], [0]).location is None


def test_files_beside_labels_are_named(folder):
    paths = [folder / "ant" / "a.png", folder / "bee" / "c.png"]
    dataset = LabeledDataset(FileDataset(paths), [0, 1])
    assert failures_of(dataset, refuse_broken) == [(1, str(paths[1]))]
    assert FileDataset.from_function(lambda index: f"{index}.bin", 2).location(-1) == "1.bin"


def test_the_location_of_a_url_has_no_secrets_in_it():
    dataset = HttpDataset(["http://user:secret@localhost/a.jpg?token=secret"])
    assert "secret" not in dataset.location(0)
    assert dataset.location(0).endswith("localhost/a.jpg")
