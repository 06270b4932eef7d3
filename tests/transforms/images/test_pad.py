"""Tests of `feedline.transforms.images.pad`."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.transforms.images.image_type import ImageKind
from feedline.transforms.images.pad import Pad, PadTo
from image_samples import EXTREME_SIZES, noise

MODES = ["constant", "edge", "reflect", "symmetric"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize(("height", "width"), EXTREME_SIZES)
def test_every_mode_is_numpys(height, width, dtype, mode):
    image = noise(height, width, 3, dtype)
    expected = np.pad(image, ((2, 4), (1, 3), (0, 0)), mode=mode)
    result = Pad(1, 2, 3, 4, mode)(image)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == dtype


def test_fill_is_one_value_or_one_for_each_channel():
    image = noise(3, 4)
    result = Pad(1, 1, 1, 1, fill=(1, 2, 3))(image)
    for corner in (result[0, 0], result[0, -1], result[-1, 0], result[-1, -1]):
        np.testing.assert_array_equal(corner, (1, 2, 3))
    np.testing.assert_array_equal(result[1:-1, 1:-1], image)
    assert (Pad(0, 1, 0, 0, fill=200)(image)[0] == 200).all()
    assert Pad(0, 1, 0, 0, fill=0.25)(noise(3, 4, 3, "float32"))[0, 0, 0] == np.float32(0.25)


def test_padding_nothing_returns_the_image():
    image = noise(3, 4)
    assert Pad(0, 0, 0, 0)(image) is image


@pytest.mark.parametrize(
    ("fill", "dtype"), [(256, "uint8"), (-1, "uint8"), (0.5, "uint8"), (65536, "uint16"), (1e39, "float32")]
)
def test_a_fill_that_the_dtype_can_not_hold_is_refused(fill, dtype):
    step = Pad(1, 1, 1, 1, fill=fill)
    with pytest.raises(OptionError, match=f"can't be represented in the image's dtype, {dtype}"):
        step(noise(2, 2, 3, dtype))
    with pytest.raises(OptionError, match="can't be represented"):
        step.follow(ImageKind("HWC", frozenset({dtype})))


def test_a_fill_for_another_number_of_channels_is_refused():
    step = Pad(1, 1, 1, 1, fill=(1, 2))
    with pytest.raises(OptionError, match="one value for each of 2 channels, but the image has 3"):
        step(noise(2, 2))
    assert step.follow(ImageKind()).channels == {2}


def test_pad_to_reaches_its_size_from_any_smaller_one():
    image = noise(3, 4) | 1
    top_left = PadTo(6, 9)(image)
    np.testing.assert_array_equal(top_left[:3, :4], image)
    assert np.count_nonzero(top_left) == image.size
    centre = PadTo(6, 9, anchor="center")(image)
    np.testing.assert_array_equal(centre[1:4, 2:6], image)
    assert np.count_nonzero(centre) == image.size
    assert PadTo(3, 4)(image) is image
    assert (PadTo(4, 4, fill=5)(image)[3] == 5).all()


@pytest.mark.parametrize("size", [(2, 9), (9, 3)])
def test_pad_to_refuses_a_larger_image(size):
    with pytest.raises(ValueError, match=r"refuses an image of 3 x 4 \(height x width\)"):
        PadTo(*size)(noise(3, 4))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Pad(-1, 0, 0, 0), OptionError, "Pad: left must be at least 0, not -1"),
        (lambda: Pad(0, 0, 0, 1.0), TypeError, "Pad: bottom must be an int"),
        (
            lambda: Pad(0, 0, 0, 0, mode="wrap"),
            OptionError,
            "'constant', 'edge', 'reflect', 'symmetric', not 'wrap'",
        ),
        (lambda: Pad(0, 0, 0, 0, fill="black"), TypeError, "fill must be a number, not str 'black'"),
        (lambda: Pad(0, 0, 0, 0, fill=float("nan")), OptionError, "fill must be finite"),
        (lambda: Pad(0, 0, 0, 0, fill=()), OptionError, "one for each of 1 to 4 channels"),
        (lambda: PadTo(0, 4), OptionError, "PadTo: height must be at least 1"),
        (lambda: PadTo(4, 4, anchor="bottom"), OptionError, "anchor must be 'top_left' or 'center'"),
    ],
)
def test_bad_arguments_are_refused_when_built(build, error, message):
    with pytest.raises(error, match=message):
        build()
