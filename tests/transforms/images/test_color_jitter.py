"""Tests of `feedline.transforms.images.color_jitter`."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.color_jitter import (
    ColorJitter,
    RandomGrayscale,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    gray_of,
)
from feedline.transforms.images.convert import ToChw, ToHwc
from image_samples import EXTREME_SIZES, Scripted, context, noise

ENHANCE = {
    adjust_brightness: ImageEnhance.Brightness,
    adjust_contrast: ImageEnhance.Contrast,
    adjust_saturation: ImageEnhance.Color,
}
FACTORS = [0.0, 0.3, 0.97, 1.0, 1.2, 2.5]


@pytest.mark.parametrize("adjust", list(ENHANCE))
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("height", "width"), [*EXTREME_SIZES, (40, 50)])
def test_whole_levels_are_those_of_pillow(height, width, factor, adjust):
    image = noise(height, width)
    expected = np.asarray(ENHANCE[adjust](Image.fromarray(image)).enhance(factor))
    difference = np.abs(adjust(image, factor).astype(int) - expected)
    # Pillow's rounding of a product by a hair is not specified; nothing else may differ.
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize("factor", FACTORS)
def test_floats_follow_the_formulas_of_torchvision(factor):
    image = noise(20, 30, 3, "float32")
    gray = (image * np.float32([0.2989, 0.587, 0.114])).sum(axis=2, keepdims=True)

    def blended(other):
        return np.clip(factor * image + (1 - factor) * other, 0, 1)

    np.testing.assert_allclose(adjust_brightness(image, factor), blended(0), atol=1e-6)
    np.testing.assert_allclose(adjust_contrast(image, factor), blended(gray.mean()), atol=1e-6)
    np.testing.assert_allclose(adjust_saturation(image, factor), blended(gray), atol=1e-6)


def hue_by_the_book(image, shift):
    pixels = []
    for red, green, blue in image.reshape(-1, 3).tolist():
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        pixels.append(colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value))
    return np.array(pixels, np.float32).reshape(image.shape)


@pytest.mark.parametrize("shift", [-0.5, -0.1, 0.0, 0.25, 0.5])
def test_hue_is_turned_in_hsv(shift):
    image = noise(15, 20, 3, "float32")
    np.testing.assert_allclose(adjust_hue(image, shift), hue_by_the_book(image, shift), atol=2e-5)
    whole = noise(15, 20)
    expected = np.floor(hue_by_the_book(whole / 255, shift) * 255.999)
    assert np.abs(adjust_hue(whole, shift) - expected).max() <= 1


def test_a_shift_of_nothing_keeps_every_level():
    ramp = np.arange(256, dtype=np.uint8)
    image = np.stack([ramp, ramp[::-1], np.roll(ramp, 77)], axis=1)[None]
    np.testing.assert_array_equal(adjust_hue(image, 0.0), image)


def test_gray_images_keep_saturation_and_hue():
    image = noise(5, 6, 1)
    assert adjust_saturation(image, 0.2) is image
    assert adjust_hue(image, 0.2) is image
    assert adjust_brightness(image, 0.5).shape == image.shape
    assert adjust_contrast(image, 0.5).shape == image.shape


def test_gray_is_pillows_luma():
    image = noise(30, 40)
    np.testing.assert_array_equal(gray_of(image)[..., 0], np.asarray(Image.fromarray(image).convert("L")))
    assert gray_of(np.full((1, 1, 3), 255, np.uint8))[0, 0, 0] == 255


def test_changes_come_in_the_order_that_is_drawn():
    image = noise(8, 9)
    step = ColorJitter(0.5, 0.5, 0.5, 0.2)
    # order: the places of the drawn numbers by size; factors: 0.5 + drawn, and -0.2 + 0.4 * drawn
    result = step(image, Scripted(0.9, 0.1, 0.5, 0.3, 0.2, 0.4, 0.6, 0.8))
    expected = adjust_brightness(
        adjust_saturation(adjust_hue(adjust_contrast(image, 0.9), -0.2 + 0.4 * 0.8), 1.1), 0.7
    )
    np.testing.assert_array_equal(result, expected)


def test_jitter_of_nothing_changes_nothing():
    image = noise(8, 9)
    np.testing.assert_array_equal(ColorJitter()(image, context()), image)
    np.testing.assert_array_equal(ColorJitter((1, 1), hue=(0, 0))(image, context()), image)


@pytest.mark.parametrize("step", [ColorJitter(0.8, 0.8, 0.8, 0.4), RandomGrayscale(1.0)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_alpha_and_input_are_left_alone_in_either_layout(channels, dtype, step):
    image = noise(7, 8, channels, dtype)
    image.flags.writeable = False
    result = step(image, context(3))
    assert result.shape == image.shape
    assert result.dtype == image.dtype
    if channels in (2, 4):
        np.testing.assert_array_equal(result[..., -1], image[..., -1])
    planar = Compose([ToChw(), step, ToHwc()], plan=False)
    placed = context(3)
    placed.place = 1
    np.testing.assert_array_equal(planar(image, context(3)), step(image, placed))


def test_grayscale_keeps_three_equal_channels_and_its_probability():
    image = noise(6, 7)
    result = RandomGrayscale(0.3)(image, Scripted(0.29))
    np.testing.assert_array_equal(result, gray_of(image).repeat(3, 2))
    assert RandomGrayscale(0.3)(image, Scripted(0.3)) is image
    gray = noise(6, 7, 1)
    np.testing.assert_array_equal(RandomGrayscale(1)(gray), gray)


def test_the_same_item_is_changed_alike():
    image = noise(9, 9)
    step = ColorJitter(0.4, 0.4, 0.4, 0.1)
    np.testing.assert_array_equal(step(image, context(3, 1, 7)), step(image, context(3, 1, 7)))
    assert not np.array_equal(step(image, context(3, 1, 7)), step(image, context(4, 1, 7)))


def test_sixteen_bits_are_refused():
    with pytest.raises(TypeError, match="dtype float32 or uint8, not uint16"):
        ColorJitter(0.1)(noise(2, 2, 3, "uint16"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"brightness": -0.1}, OptionError, "brightness must be finite and at least 0"),
        ({"contrast": (0.5, 0.1)}, OptionError, r"contrast must be \(low, high\)"),
        ({"saturation": (-0.5, 0.1)}, OptionError, "saturation must be"),
        ({"hue": 0.6}, OptionError, "hue must stay within -0.5 and 0.5, not 0.6"),
        ({"hue": (-0.6, 0)}, OptionError, "hue must be"),
        ({"brightness": (1, 2, 3)}, OptionError, "brightness must have 2 numbers"),
        ({"brightness": "much"}, TypeError, "brightness must be a number"),
        ({"brightness": float("inf")}, OptionError, "brightness must be finite"),
    ],
)
def test_bad_arguments_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        ColorJitter(**arguments)
