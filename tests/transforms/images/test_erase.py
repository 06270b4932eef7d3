"""Tests of `feedline.transforms.images.erase`."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.convert import ToChw, ToHwc
from feedline.transforms.images.erase import RandomErasing
from feedline.transforms.images.image_type import ImageKind
from image_samples import EXTREME_SIZES, Scripted, context, noise


def test_the_rectangle_follows_torchvisions_algorithm():
    image = np.full((100, 80, 3), 9, np.uint8)
    step = RandomErasing(p=0.5, scale=(0.0, 0.4), ratio=(0.25, 4.0), value=0)
    # erased: area 8000 * 0.4 * 0.5 = 1600, aspect exp(0) = 1: 40 x 40, at row 0.5 * 61 and column 0.999 * 41
    result = step(image, Scripted(0.49, 0.5, 0.5, 0.5, 0.999))
    expected = image.copy()
    expected[30:70, 40:80] = 0
    np.testing.assert_array_equal(result, expected)
    assert step(image, Scripted(0.5)) is image


def test_the_aspect_is_height_by_width():
    image = np.full((100, 100, 1), 9, np.uint8)
    result = RandomErasing(1, (0.16, 0.16), (4.0, 4.0))(image, context())
    rows, columns = np.nonzero(result[..., 0] == 0)
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == (80, 20)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 1000), (1000, 1)])
def test_pictures_of_one_row_or_column_stay_whole(height, width):
    image = noise(height, width)
    for index in range(20):
        np.testing.assert_array_equal(RandomErasing(1.0)(image, context(index)), image)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("value", [0, 1, "random"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_alpha_and_input_are_left_alone_in_either_layout(channels, value, dtype):
    image = noise(40, 50, channels, dtype)
    before = image.copy()
    step = RandomErasing(1.0, value=value)
    result = step(image, context(2))
    np.testing.assert_array_equal(image, before)
    assert result.dtype == image.dtype
    changed = (result != image).any(axis=(0, 1))
    assert changed.tolist() == [True] * (channels if channels in (1, 3) else channels - 1) + [False] * (
        channels in (2, 4)
    )
    placed = context(2)
    placed.place = 1
    np.testing.assert_array_equal(
        Compose([ToChw(), step, ToHwc()], plan=False)(image, context(2)), step(image, placed)
    )


def test_one_value_for_each_channel():
    result = RandomErasing(1.0, value=(1, 2, 3))(np.zeros((40, 40, 3), np.uint8), context(1))
    erased = result[result[..., 0] == 1]
    assert len(erased) > 0
    assert (erased == (1, 2, 3)).all()


def test_random_content_is_normal_for_floats_and_uniform_for_levels():
    big = RandomErasing(1.0, (0.33, 0.33), (1.0, 1.0), "random")
    floats = big(np.full((300, 300, 3), 7, np.float32), context(1))
    content = floats[floats != 7]
    assert abs(content.mean()) < 0.02
    assert abs(content.std() - 1) < 0.02
    levels = big(np.full((300, 300, 1), 7, np.uint8), context(1))
    assert set(np.unique(levels)) == set(range(256))


@pytest.mark.parametrize(("height", "width"), EXTREME_SIZES)
def test_the_same_item_is_erased_alike(height, width):
    image = noise(height, width)
    step = RandomErasing(1.0, value="random")
    np.testing.assert_array_equal(step(image, context(3)), step(image, context(3)))


def test_a_value_that_does_not_suit_is_refused():
    with pytest.raises(OptionError, match=r"value=0\.5 can't be represented in the image's dtype, uint8"):
        RandomErasing(1.0, value=0.5)(noise(40, 40), context(1))
    with pytest.raises(OptionError, match="can't be represented"):
        RandomErasing(value=0.5).follow(ImageKind("HWC", frozenset({"uint8"})))
    with pytest.raises(OptionError, match="one value for each of 2"):
        RandomErasing(value=(1, 2)).follow(ImageKind("HWC", channels=frozenset({3, 4})))
    assert RandomErasing(value=(1, 2, 3)).follow(ImageKind("HWC", channels=frozenset({4}))).channels == {4}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"p": 2}, OptionError, "p is a probability"),
        ({"scale": (0.5, 0.1)}, OptionError, r"scale must be \(low, high\)"),
        ({"scale": (0.5, 1.1)}, OptionError, "at most 1"),
        ({"ratio": (0.0, 1.0)}, OptionError, "ratio must be above 0"),
        ({"value": "noise"}, OptionError, "value must be numbers or 'random', not 'noise'"),
        ({"value": None}, TypeError, "value must be a number"),
    ],
)
def test_bad_arguments_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        RandomErasing(**arguments)
