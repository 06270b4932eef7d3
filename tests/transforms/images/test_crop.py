"""Tests of `feedline.transforms.images.crop`."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.transforms.images.crop import CenterCrop, Crop, RandomCrop, RandomResizedCrop
from feedline.transforms.images.image_type import ImageKind, Region
from feedline.transforms.images.resample import resize_into
from image_samples import EXTREME_SIZES, Scripted, context, noise

ALL = [Crop(0, 0, 1, 1), CenterCrop(8), RandomCrop(8, pad_if_needed=True), RandomResizedCrop(8)]


@pytest.mark.parametrize("step", ALL)
def test_every_crop_is_a_region_that_pickles(step):
    assert isinstance(step, Region)
    assert pickle.loads(pickle.dumps(step)) == step


@pytest.mark.parametrize("step", ALL)
@pytest.mark.parametrize(("height", "width"), [*EXTREME_SIZES, (40, 50)])
def test_a_region_gives_the_same_by_its_box_and_by_apply(step, height, width):
    image = noise(height, width)
    box = step.box(height, width, context(5))
    if box is not None:
        np.testing.assert_array_equal(step.from_part(image, box, context(5)), step(image, context(5)))


def test_crop_cuts_at_its_place():
    image = noise(10, 12)
    np.testing.assert_array_equal(Crop(2, 3, 4, 5)(image), image[2:6, 3:8])


@pytest.mark.parametrize("step", [Crop(7, 0, 4, 1), Crop(0, 12, 1, 1), Crop(0, 0, 11, 1)])
def test_crop_out_of_bounds_is_an_error_with_both_sizes(step):
    with pytest.raises(ValueError, match=r"reaches out of an image of 10 x 12"):
        step(noise(10, 12))


@pytest.mark.parametrize("size", [(4, 4), (5, 4), (10, 12), (3, 7), (1, 1)])
def test_center_crop_takes_torchvisions_middle(size):
    image = noise(10, 12)
    top, left = round((10 - size[0]) / 2.0), round((12 - size[1]) / 2.0)
    expected = image[top : top + size[0], left : left + size[1]]
    np.testing.assert_array_equal(CenterCrop(*size)(image), expected)


@pytest.mark.parametrize(("height", "width"), [*EXTREME_SIZES, (5, 20), (20, 5)])
def test_center_crop_pads_smaller_images_with_zeros(height, width):
    image = noise(height, width) | 1
    result = CenterCrop(8, 9)(image)
    assert result.shape == (8, 9, 3)
    rows, columns = max(8 - height, 0), max(9 - width, 0)
    inner = result[rows // 2 : rows // 2 + min(height, 8), columns // 2 : columns // 2 + min(width, 9)]
    assert inner.all()
    assert np.count_nonzero(result) == inner.size
    if height <= 8 and width <= 9:
        np.testing.assert_array_equal(inner, image)


def test_center_crop_of_one_number_is_a_square():
    assert CenterCrop(4)(noise(10, 12)).shape == (4, 4, 3)


def test_random_crop_draws_every_place_alike():
    image = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    seen = np.zeros((2, 3), int)
    for index in range(1200):
        seen[np.unravel_index(int(RandomCrop((2, 2))(image, context(index))[0, 0, 0]), (3, 4))] += 1
    # 1200 draws over 6 places: 200 each, standard deviation 13.
    assert abs(seen - 200).max() < 60


def test_random_crop_of_the_whole_draws_nothing():
    image = noise(5, 6)
    np.testing.assert_array_equal(RandomCrop((5, 6))(image, Scripted()), image)


def test_random_crop_refuses_smaller_images_and_says_what_to_do():
    with pytest.raises(
        ValueError, match=r"at least 8 x 8 \(height x width\), not 1 x 1: use pad_if_needed=True"
    ):
        RandomCrop(8)(noise(1, 1))


@pytest.mark.parametrize(("height", "width"), EXTREME_SIZES)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crop_pads_where_it_must(mode, height, width):
    result = RandomCrop(40, pad_if_needed=True, padding_mode=mode)(noise(height, width), context(3))
    assert result.shape == (40, 40, 3)


def test_random_crop_pads_both_sides_by_what_is_missing():
    image = np.full((2, 2, 1), 9, np.uint8)
    # 3 are missing on either axis, so 3 are added on either side: 8 x 8, and 4 places on either axis.
    result = RandomCrop(5, pad_if_needed=True)(image, Scripted(0.99, 0.0))
    np.testing.assert_array_equal(np.argwhere(result[..., 0]), [[0, 3], [0, 4], [1, 3], [1, 4]])


@pytest.mark.parametrize(
    ("padding", "shape"), [(2, (9, 10)), ([2], (9, 10)), ((1, 2), (9, 8)), ((1, 2, 3, 4), (11, 10))]
)
def test_padding_is_left_top_right_bottom(padding, shape):
    image = np.full((5, 6, 1), 7, np.uint8)
    result = RandomCrop(shape, padding=padding)(image)
    left, top = (1, 2) if isinstance(padding, tuple) else (2, 2)
    np.testing.assert_array_equal(result[top : top + 5, left : left + 6], image)
    assert result.sum(dtype=int) == image.sum(dtype=int)


def test_random_resized_crop_follows_torchvisions_algorithm():
    step = RandomResizedCrop(10, scale=(0.2, 0.8), ratio=(0.5, 2.0))
    # area = 100 * 50 * (0.2 + 0.6 * 0.5) = 2500, aspect = exp(0) = 1
    assert step.box(100, 50, Scripted(0.5, 0.5, 0.999, 0.5)) == (50, 0, 50, 50)
    # a first try that does not fit (60 columns of 50) is followed by a second one
    too_wide = [(3600 * 0.9 / 5000 - 0.2) / 0.6, 0.5 + 0.5 * math.log(1 / 0.9) / math.log(2)]
    assert step.box(100, 50, Scripted(*too_wide, 0.5, 0.5, 0.0, 0.5)) == (0, 0, 50, 50)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (1000, 1, (499, 0, 1, 1)),  # 1 / 0.75 rounds to 1 row
        (1, 1000, (0, 499, 1, 1)),  # 1 * 4 / 3 rounds to 1 column
        (300, 30, (130, 0, 40, 30)),
        (30, 300, (0, 130, 30, 40)),
    ],
)
def test_random_resized_crop_falls_back_to_the_middle(height, width, expected):
    # An area of the whole image can't have an aspect ratio within the bounds.
    step = RandomResizedCrop(8, scale=(1.0, 1.0))
    assert step.box(height, width, context()) == expected
    assert step(noise(height, width)).shape == (8, 8, 3)


def test_the_fallback_never_has_an_empty_side():
    assert RandomResizedCrop(8, scale=(1, 1), ratio=(50, 60)).box(1, 1, context())[2:] == (1, 1)


def test_random_resized_crop_resizes_its_box():
    step = RandomResizedCrop((12, 14), filter="bicubic", antialias=False)
    image = noise(60, 80)
    box = step.box(60, 80, context(4))
    expected = np.empty((12, 14, 3), np.uint8)
    resize_into(image, box, expected, "bicubic", False)
    np.testing.assert_array_equal(step(image, context(4)), expected)
    assert step.least_size(30, 40) == (30, 40)
    assert RandomResizedCrop((12, 14)).least_size(30, 40) == (12, 14)


def test_areas_and_ratios_have_the_distribution_that_is_asked_for():
    step = RandomResizedCrop(8)
    boxes = np.array([step.box(2000, 2000, context(index)) for index in range(2000)], float)
    share = boxes[:, 2] * boxes[:, 3] / 4e6
    ratio = np.log(boxes[:, 3] / boxes[:, 2])
    assert 0.079 < share.min() < 0.1
    # A share s fits with the probability min(1, -log(s) / log(4/3)); over that, the mean of s is 0.4777.
    assert abs(share.mean() - 0.4777) < 0.02
    assert abs(ratio.mean()) < 0.02
    assert abs(ratio).max() <= math.log(4 / 3) + 1e-2


def test_the_same_item_is_cropped_alike_and_another_one_otherwise():
    step = RandomResizedCrop(8)
    image = noise(50, 60)
    np.testing.assert_array_equal(step(image, context(3, 1)), step(image, context(3, 1)))
    assert len({step.box(50, 60, context(index, epoch)) for index in range(5) for epoch in range(2)}) == 10


def test_a_fill_that_no_dtype_can_hold_is_an_error_when_the_chain_is_built():
    step = RandomCrop(8, padding=1, fill=300)
    with pytest.raises(OptionError, match="fill=300 can't be represented"):
        step.follow(ImageKind("HWC", frozenset({"uint8"})))
    assert RandomCrop(8, fill=300).follow(ImageKind("HWC", frozenset({"uint8"}))).dtypes == {"uint8"}


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Crop(-1, 0, 1, 1), OptionError, "Crop: top must be at least 0, not -1"),
        (lambda: Crop(0, 0, 0, 1), OptionError, "Crop: height must be at least 1, not 0"),
        (lambda: Crop(0.5, 0, 1, 1), TypeError, "Crop: top must be an int, not float 0.5"),
        (lambda: CenterCrop(0), OptionError, "CenterCrop: height must be at least 1"),
        (lambda: CenterCrop(4, 0), OptionError, "CenterCrop: width must be at least 1"),
        (lambda: RandomCrop(0), OptionError, "RandomCrop: size must be at least 1"),
        (lambda: RandomCrop(4, padding=(1, 2, 3)), OptionError, "padding must be 1, 2 or 4 ints"),
        (lambda: RandomCrop(4, padding=-1), OptionError, "padding must be at least 0"),
        (lambda: RandomCrop(4, padding_mode="wrap"), OptionError, "mode must be one of"),
        (lambda: RandomCrop(4, pad_if_needed="yes"), TypeError, "pad_if_needed must be True or False"),
        (lambda: RandomResizedCrop(0), OptionError, "size must be at least 1"),
        (lambda: RandomResizedCrop(4, scale=(0.5, 0.1)), OptionError, r"scale must be \(low, high\)"),
        (lambda: RandomResizedCrop(4, scale=(-0.1, 1)), OptionError, "scale must be"),
        (lambda: RandomResizedCrop(4, scale=0.5), TypeError, "scale must be a sequence of numbers"),
        (lambda: RandomResizedCrop(4, ratio=(0, 1)), OptionError, "ratio must be above 0"),
        (lambda: RandomResizedCrop(4, ratio=(1, math.nan)), OptionError, r"ratio\[1\] must be finite"),
        (
            lambda: RandomResizedCrop(4, filter="cubic"),
            OptionError,
            "RandomResizedCrop: filter must be one of",
        ),
    ],
)
def test_bad_arguments_are_refused_when_built(build, error, message):
    with pytest.raises(error, match=message):
        build()
