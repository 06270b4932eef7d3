"""Tests of `feedline.transforms.images.convert`."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.convert import Normalize, ToChw, ToFloat, ToHwc, float_into, normalize_into
from feedline.transforms.images.image_type import ImageKind
from image_samples import EXTREME_SIZES, noise


@pytest.mark.parametrize(("dtype", "top"), [("uint8", 255), ("uint16", 65535)])
def test_to_float_divides_by_the_largest_value(dtype, top):
    image = np.arange(top + 1, dtype=dtype).reshape(1, -1, 1)
    result = ToFloat()(image)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result.ravel(), np.arange(top + 1, dtype=np.float32) / np.float32(top))
    assert result.ravel()[-1] == 1.0


def test_to_float_refuses_floats():
    with pytest.raises(TypeError, match="dtype uint16 or uint8, not float32"):
        ToFloat()(noise(2, 2, 3, "float32"))


def test_normalize_subtracts_then_divides_in_float32():
    image = noise(5, 6, 3, "float32")
    result = Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))(image)
    expected = (image - np.float32([0.1, 0.2, 0.3])) / np.float32([0.5, 0.6, 0.7])
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


def test_normalize_works_along_the_channel_axis_of_either_layout():
    image = noise(3, 3, 3, "float32")
    step = Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    planar = Compose([ToChw(), step])(image)
    np.testing.assert_array_equal(planar, step(image).transpose(2, 0, 1))


def test_one_value_stands_for_all_channels():
    image = noise(4, 4, 2, "float32")
    np.testing.assert_array_equal(Normalize(0.5, [0.5])(image), Normalize((0.5, 0.5), (0.5, 0.5))(image))
    assert Normalize(0.5, (1, 2, 3)).channels == {3}


def test_imagenet_has_its_published_numbers():
    assert Normalize.imagenet() == Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_the_wrong_number_of_channels_is_refused():
    with pytest.raises(ValueError, match="with 3 channels"):
        Normalize.imagenet()(noise(4, 4, 4, "float32"))
    with pytest.raises(OptionError, match="takes images with 3 channels, but the steps before it give 1"):
        Normalize.imagenet().follow(ImageKind("HWC", frozenset({"float32"}), frozenset({1})))


def test_layouts_are_turned_and_back():
    image = noise(4, 5)
    np.testing.assert_array_equal(ToChw()(image), image.transpose(2, 0, 1))
    np.testing.assert_array_equal(ToHwc()(ToChw()(image)), image)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([ToFloat(), ToHwc()], "ToHwc.* takes images in the layout CHW, but the steps before it give HWC"),
        ([ToChw(), ToChw()], "ToChw.* takes images in the layout HWC"),
        ([ToFloat(), ToFloat()], "ToFloat.* takes images of dtype uint16 or uint8"),
    ],
)
def test_a_wrong_order_is_an_error_when_the_chain_is_built(steps, message):
    with pytest.raises(OptionError, match=message):
        Compose(steps)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize(("height", "width"), [*EXTREME_SIZES, (40, 50)])
def test_one_pass_gives_bit_for_bit_what_the_steps_give(height, width, dtype, channels):
    image = noise(height, width, channels, dtype)
    step = Normalize((0.485, 0.456, 0.406, 0.1)[:channels], (0.229, 0.224, 0.225, 3.0)[:channels])
    expected = step(ToFloat()(image))
    planar = np.empty((channels, height, width), np.float32)
    normalize_into(image, step.mean, step.std, planar)
    np.testing.assert_array_equal(planar, expected.transpose(2, 0, 1))
    pixels = np.empty((height, width, channels), np.float32)
    normalize_into(image, step.mean, step.std, pixels, "HWC")
    np.testing.assert_array_equal(pixels, expected)
    float_into(image, planar)
    np.testing.assert_array_equal(planar, ToFloat()(image).transpose(2, 0, 1))
    float_into(image, pixels, "HWC")
    np.testing.assert_array_equal(pixels, ToFloat()(image))


def test_one_pass_takes_any_strides_and_writes_into_any():
    image = noise(20, 30)
    image.flags.writeable = False
    for view in (image[::-1], image[:, ::-1], image[::2, ::3], image[..., ::-1]):
        expected = Normalize.imagenet()(ToFloat()(view)).transpose(2, 0, 1)
        block = np.zeros((4, *expected.shape[1:]), np.float32)
        normalize_into(view, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), block[:3])
        np.testing.assert_array_equal(block[:3], expected)
        assert not block[3].any()
        strided = np.zeros((3, 2 * expected.shape[1], expected.shape[2]), np.float32)
        normalize_into(view, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strided[:, ::2])
        np.testing.assert_array_equal(strided[:, ::2], expected)
        assert not strided[:, 1::2].any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((0.1, 0.2), (0.1, 0.2, 0.3)), OptionError, "mean has 2 values and std 3"),
        (((0.1,) * 5, 1.0), OptionError, "mean must have 1 or 2 or 3 or 4 numbers, not 5"),
        ((0.0, 0.0), OptionError, "std must not be 0"),
        ((0.0, 1e-60), OptionError, "std must not be 0 in float32"),
        ((0.0, float("inf")), OptionError, "std must be finite"),
        ((float("nan"), 1.0), OptionError, "mean must be finite"),
        (((0.1, float("nan"), 0.1), 1.0), OptionError, r"mean\[1\] must be finite"),
        ((1e300, 1.0), OptionError, "mean must be finite in float32"),
        (("0.5", 1.0), TypeError, "mean must be a number, not str"),
        ((None, 1.0), TypeError, "mean must be a number, not NoneType"),
    ],
)
def test_bad_arguments_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        Normalize(*arguments)
