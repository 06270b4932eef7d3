"""The same seed gives the same pixels, whatever the workers, planned or not, and after a resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import feedline
from feedline import images

FILES = Path(__file__).parents[1] / "transforms" / "images" / "files"
NAMES = [
    "control_rgb.jpg",
    "control_rgb_420.jpg",
    "gray.jpg",
    "progressive.jpg",
    "cmyk_adobe.jpg",
    "rgb.webp",
]


class Photos:
    """Encoded images with labels; every one comes up several times."""

    def __init__(self):
        self.data = [(FILES / name).read_bytes() for name in NAMES]

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return self.data[index % len(self.data)], index


def chain(plan=True, antialias=True):
    return feedline.Compose(
        [
            images.Decode("RGB"),
            images.RandomResizedCrop(16, antialias=antialias),
            images.RandomHorizontalFlip(),
            images.ColorJitter(0.3, 0.3, 0.3, 0.1),
            images.RandomErasing(0.5, value="random"),
            images.ToFloat(),
            images.Normalize.imagenet(),
            images.ToChw(),
        ],
        plan=plan,
    )


def loader(plan=True, antialias=True, **options):
    return feedline.DataLoader(
        Photos(),
        5,
        shuffle=True,
        seed=3,
        transform=chain(plan, antialias),
        collate_fn=images.ImageCollator(),
        **options,
    )


def epochs(made, count=2):
    with made:
        return [(batch.data.copy(), labels.copy()) for _ in range(count) for batch, labels in made]


@pytest.fixture(scope="module")
def expected():
    return epochs(loader())


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for (data, labels), (other, others) in zip(batches, expected):
        np.testing.assert_array_equal(data, other)
        np.testing.assert_array_equal(labels, others)


@pytest.mark.parametrize("options", [{"num_workers": n} for n in (1, 2, 4)], ids=str)
def test_threads_give_the_pixels_of_one_thread(options, expected):
    assert_same(epochs(loader(**options)), expected)


def test_processes_give_the_pixels_of_one_thread(expected):
    assert_same(epochs(loader(num_workers=2, worker_type="process")), expected)


def test_parallel_items_give_the_pixels_of_one_thread(expected):
    assert_same(epochs(loader(num_workers=2, item_concurrency=3)), expected)


def test_a_planned_chain_gives_the_pixels_of_the_steps():
    # Without antialiasing nothing is decoded at a reduced scale, so there is no tolerance.
    assert_same(epochs(loader(antialias=False)), epochs(loader(plan=False, antialias=False)))


def test_epochs_and_items_differ(expected):
    first, second = expected[0][0], expected[len(expected) // 2][0]
    assert not np.array_equal(first, second)
    by_label = {int(label): image for data, labels in expected[:5] for image, label in zip(data, labels)}
    # Items 0 and 6 are the same file.
    assert not np.array_equal(by_label[0], by_label[6])


@pytest.mark.parametrize("position", range(5))
def test_a_resumed_run_gives_the_pixels_of_the_first(position, expected):
    with loader(num_workers=2) as made:
        iterator = iter(made)
        for _ in range(position):
            next(iterator)
        state = iterator.state_dict()
    with loader() as resumed:
        resumed.load_state_dict(state)
        rest = [(batch.data.copy(), labels.copy()) for batch, labels in resumed]
    assert_same(rest, expected[position:5])


def test_batches_of_the_loader_are_images_in_the_layout_that_is_asked_for():
    with loader() as made:
        batch, labels = next(iter(made))
    assert batch.layout == "NCHW"
    assert batch.shape == (5, 3, 16, 16)
    assert batch.dtype == np.float32
    assert labels.dtype == np.int64


def test_items_of_different_sizes_name_the_item():
    made = feedline.DataLoader(
        Photos(),
        24,
        transform=feedline.Compose([images.Decode("RGB"), images.Resize(None, max_size=24)]),
        collate_fn=images.ImageCollator(),
    )
    sizes = {images.Decode("RGB")(data).shape for data in Photos().data}
    assert len(sizes) > 1
    with made, pytest.raises(feedline.CollateError, match=r"item \d+ \(row \d+ of the batch\) is"):
        list(made)
