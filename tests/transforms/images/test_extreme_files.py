"""Every geometric step on files of 1 x 1, 1 x 1000, 1000 x 1 and 17 x 33 pixels, planned and step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feedline.errors import ImageError
from feedline.images import (
    CenterCrop,
    ColorJitter,
    Decode,
    GaussianBlur,
    HorizontalFlip,
    Normalize,
    Pad,
    PadTo,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotate90,
    RandomVerticalFlip,
    Resize,
    Rotate90,
    ToChw,
    ToFloat,
    VerticalFlip,
)
from feedline.transforms.compose import Compose
from image_samples import context

FILES = Path(__file__).parent / "files"
# (height, width)
SIZES = {
    "size_1x1.jpg": (1, 1),
    "size_1x1.png": (1, 1),
    "size_1x1000.jpg": (1000, 1),
    "size_1000x1.jpg": (1, 1000),
    "size_17x33_420.jpg": (33, 17),
}
STEPS = {
    "shorter side 8": (Resize(8), None),
    "longer side 8": (Resize(None, max_size=8), None),
    "8 x 8": (Resize((8, 8)), (8, 8)),
    "8 x 8, lanczos3": (Resize((8, 8), filter="lanczos3"), (8, 8)),
    "centre crop": (CenterCrop(8, 8), (8, 8)),
    "random crop": (RandomCrop(8, pad_if_needed=True), (8, 8)),
    "random resized crop": (RandomResizedCrop(8), (8, 8)),
    "pad": (Pad(1, 2, 3, 4, "reflect"), None),
    "pad to": (PadTo(1000, 1000), (1000, 1000)),
    "erase": (RandomErasing(1.0), None),
    "blur": (GaussianBlur(5), None),
    "jitter": (ColorJitter(0.4, 0.4, 0.4, 0.1), None),
    "gray": (RandomGrayscale(1.0), None),
}
TURNS = [
    HorizontalFlip(),
    VerticalFlip(),
    RandomHorizontalFlip(),
    RandomVerticalFlip(),
    Rotate90(),
    RandomRotate90(),
]


@pytest.mark.parametrize("plan", [True, False])
@pytest.mark.parametrize("name", list(STEPS))
@pytest.mark.parametrize("file", list(SIZES))
def test_a_step_gives_an_image_of_its_size(file, name, plan):
    step, size = STEPS[name]
    data = (FILES / file).read_bytes()
    result = Compose([Decode("RGB"), step], plan=plan)(data, context(3))
    assert result.ndim == 3
    assert result.shape[2] == 3
    assert min(result.shape) >= 1
    if size is not None:
        assert result.shape[:2] == size


@pytest.mark.parametrize("file", list(SIZES))
def test_decoding_gives_the_size_that_the_name_tells(file):
    assert Decode("RGB")((FILES / file).read_bytes()).shape == (*SIZES[file], 3)


@pytest.mark.parametrize("file", list(SIZES))
def test_turns_end_in_a_batch(file):
    tail = [ToFloat(), Normalize.imagenet(), ToChw()]
    data = (FILES / file).read_bytes()
    for step in TURNS:
        planned = Compose([Decode("RGB"), step, *tail])(data, context(3))
        plain = Compose([Decode("RGB"), step, *tail], plan=False)(data, context(3))
        np.testing.assert_array_equal(planned, plain)


def test_a_shorter_side_of_a_line_keeps_its_ratio():
    assert Compose([Decode("RGB"), Resize(8)])((FILES / "size_1000x1.jpg").read_bytes()).shape == (8, 8000, 3)
    assert Compose([Decode("RGB"), Resize(None, max_size=8)])(
        (FILES / "size_1000x1.jpg").read_bytes()
    ).shape == (1, 8, 3)


def test_a_crop_larger_than_the_file_names_both_sizes():
    with pytest.raises(ValueError, match=r"at least 8 x 8.* not 1 x 1") as caught:
        Compose([Decode("RGB"), RandomCrop(8)])((FILES / "size_1x1.jpg").read_bytes())
    assert not isinstance(caught.value, ImageError)
