"""Colour conversions are those of Pillow."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.color import ToGray, ToRgb, ToRgba, cmyk_to_rgb, to_gray_alpha
from feedline.transforms.images.convert import Normalize, ToChw, ToFloat
from feedline.transforms.images.decode import Decode

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def noise(channels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (40, 50, channels), np.uint8)


def converted(image, mode):
    source = Image.fromarray(image if image.shape[2] > 1 else image[..., 0])
    array = np.asarray(source.convert(mode))
    return array if array.ndim == 3 else array[..., None]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("step", "mode"), [(ToGray(), "L"), (ToRgb(), "RGB"), (ToRgba(), "RGBA")])
def test_steps_convert_as_pillow(step, mode, channels):
    image = noise(channels)
    kept = image.copy()
    result = step(image)
    np.testing.assert_array_equal(result, converted(image, mode))
    np.testing.assert_array_equal(image, kept)
    assert result.flags.c_contiguous


def test_luma_is_exact_for_every_colour_of_a_fine_grid():
    levels = np.arange(0, 256, 3, dtype=np.uint8)
    image = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, len(levels), 3)
    red, green, blue = (image[..., i].astype(np.int64) for i in range(3))
    expected = (19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16
    np.testing.assert_array_equal(ToGray()(image)[..., 0], expected)


def test_luma_is_exact_where_it_lies_between_two_levels():
    green, blue = np.mgrid[:256, :256]
    halfway = []
    for red in range(256):
        total = 19595 * red + 38470 * green + 7471 * blue
        g, b = np.nonzero(total % 65536 == 32768)
        halfway += [(red, int(x), int(y)) for x, y in zip(g, b)]
    assert halfway
    image = np.array([halfway], np.uint8)
    total = image.astype(np.int64) @ [19595, 38470, 7471]
    np.testing.assert_array_equal(ToGray()(image)[..., 0], (total + 2**15) >> 16)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_gray_and_alpha_keep_alpha(channels):
    image = noise(channels)
    result = to_gray_alpha(image)
    np.testing.assert_array_equal(result[..., :1], ToGray()(image))
    np.testing.assert_array_equal(result[..., 1], image[..., -1] if channels in (2, 4) else 255)


def test_inks_become_colours_as_in_pillow():
    inks = noise(4)
    expected = np.asarray(Image.frombytes("CMYK", (50, 40), inks.tobytes()).convert("RGB"))
    np.testing.assert_array_equal(cmyk_to_rgb(inks), expected)


def test_views_are_taken_as_they_are():
    image = noise(4)[::-1, ::2]
    np.testing.assert_array_equal(ToRgb()(image), image[..., :3])
    np.testing.assert_array_equal(ToGray()(image), ToGray()(image.copy()))


def test_an_image_that_is_right_already_is_passed_on():
    image = noise(3)
    assert ToRgb()(image) is image


def test_labels_travel_along():
    image, label = ToGray()((noise(3), "cat"))
    assert image.shape == (40, 50, 1)
    assert label == "cat"


@pytest.mark.parametrize("step", [ToRgb(), ToRgba(), ToGray()])
def test_wrong_images_are_refused_by_name(step):
    with pytest.raises(TypeError, match=r"To\w+\(\) takes images of dtype uint8, not float32"):
        step(np.zeros((2, 2, 3), np.float32))
    with pytest.raises(ValueError, match=r"three axes, not shape \(2, 2\); a gray image has shape"):
        step(np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match="1 or 2 or 3 or 4 channels"):
        step(np.zeros((2, 2, 5), np.uint8))
    with pytest.raises(TypeError, match=r"not bytes: put Decode\(\) before it"):
        step(b"\xff\xd8\xff")
    with pytest.raises(TypeError, match=r"not Image: convert it with numpy\.asarray"):
        step(Image.new("RGB", (2, 2)))


def test_a_wrong_order_is_an_error_when_the_chain_is_built():
    with pytest.raises(
        OptionError, match=r"ToRgb\(\) takes images in the layout HWC.*CHW: put it before ToChw"
    ):
        Compose([Decode(), ToChw(), ToRgb()])
    with pytest.raises(OptionError, match=r"ToGray\(\) takes images of dtype uint8.*put it before ToFloat"):
        Compose([Decode(), ToFloat(), ToGray()])
    with pytest.raises(OptionError, match="with 3 channels, but the steps before it give 1"):
        Compose([Decode(), ToGray(), ToFloat(), Normalize.imagenet()])
    with pytest.raises(OptionError, match=r"put ToFloat\(\) before it"):
        Compose([Decode("RGB"), Normalize.imagenet()])
