"""Tests of `feedline.transforms.images.resize`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.errors import OptionError
from feedline.transforms.images.resample import resize_into
from feedline.transforms.images.resize import Resize, resized_size
from image_samples import EXTREME_SIZES, context, noise


def torchvision_size(height, width, size, max_size):
    """The rule in torchvision's words: the shorter edge becomes `size`, the longer one at most `max_size`."""
    short, long = (width, height) if width <= height else (height, width)
    if size is None:
        new_short, new_long = int(max_size * short / long), max_size
    else:
        new_short, new_long = size, int(size * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


@settings(max_examples=300, deadline=None)
@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    size=st.none() | st.integers(1, 600),
    more=st.none() | st.integers(1, 600),
)
def test_sizes_follow_torchvision_except_that_no_side_is_below_one(height, width, size, more):
    max_size = more if size is None or more is None else size + more
    if size is None and max_size is None:
        max_size = 7
    expected = torchvision_size(height, width, size, max_size)
    assert resized_size(height, width, size, max_size) == tuple(max(side, 1) for side in expected)


@pytest.mark.parametrize(("height", "width"), EXTREME_SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("step", [Resize(8), Resize(None, max_size=8), Resize((8, 8)), Resize(8, max_size=9)])
def test_extreme_pictures_have_no_side_below_one(step, dtype, height, width):
    image = noise(height, width, 3, dtype)
    result = step(image)
    assert result.shape == (*step.size_of(height, width), 3)
    assert min(result.shape) >= 1
    assert result.dtype == dtype
    assert np.abs(result.astype(float).mean() / image.astype(float).mean() - 1) < 0.15


def test_a_pair_is_the_size_whatever_the_ratio():
    assert Resize((5, 9))(noise(30, 30)).shape == (5, 9, 3)
    assert Resize([5, 9]) == Resize((5, 9))
    assert Resize([5]) == Resize(5)


def test_an_image_of_the_size_comes_back_as_it_is():
    image = noise(8, 9)
    assert np.shares_memory(Resize((8, 9))(image), image)


def test_the_filter_is_that_of_resize_into():
    image = noise(40, 50)
    for filter in ("nearest", "bilinear", "bicubic", "lanczos3"):
        for antialias in (True, False):
            out = np.empty((13, 17, 3), np.uint8)
            resize_into(image, (0, 0, 40, 50), out, filter, antialias)
            np.testing.assert_array_equal(Resize((13, 17), filter=filter, antialias=antialias)(image), out)


def test_a_part_decoded_at_half_the_scale_gives_the_size_of_the_whole():
    step = Resize(50)
    for height, width in ((375, 500), (333, 501), (500, 375), (127, 1001)):
        part = noise((height + 1) // 2, (width + 1) // 2)
        result = step.from_part(part, (0.0, 0.0, height / 2, width / 2), context())
        assert result.shape[:2] == step.size_of(height, width)


def test_only_steps_that_smooth_may_get_less_detail():
    assert Resize(50).least_size(100, 200) == (50, 100)
    assert Resize(50, antialias=False).least_size(100, 200) == (100, 200)
    assert Resize(50, filter="nearest").least_size(100, 200) == (100, 200)


def test_a_ratio_that_would_need_gigabytes_is_refused():
    with pytest.raises(ValueError, match="limit the longer side with max_size"):
        Resize(224)(np.zeros((1, 16384, 1), np.uint8))
    assert Resize(224, max_size=448)(np.zeros((1, 16384, 1), np.uint8)).shape == (1, 448, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 0}, OptionError, "size must be at least 1, not 0"),
        ({"size": (5, 0)}, OptionError, r"size\[1\] must be at least 1"),
        ({"size": (1, 2, 3)}, OptionError, r"size must be an int or \(height, width\), not \(1, 2, 3\)"),
        ({"size": 2.5}, TypeError, "size must be an int, not float 2.5"),
        ({"size": True}, TypeError, "size must be an int, not bool"),
        ({"size": "8"}, TypeError, "size must be an int, not str"),
        ({"size": None}, OptionError, "size=None needs max_size"),
        ({"size": 8, "max_size": 8}, OptionError, "max_size must be more than size"),
        ({"size": (8, 8), "max_size": 9}, OptionError, "max_size is for an int as size"),
        ({"size": 8, "filter": "area"}, OptionError, "filter must be one of"),
        ({"size": 8, "antialias": 1}, TypeError, "antialias must be True or False"),
    ],
)
def test_bad_arguments_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        Resize(**arguments)
