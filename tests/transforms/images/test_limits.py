"""Limits on the size, checked on the header."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image

from feedline.errors import ImageError, OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.crop import Crop
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.limits import DecodeLimits
from image_files import encode

FORMATS = ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"]


def image_file(format, width, height):
    return encode(Image.new("RGB", (width, height)), format)


@pytest.mark.parametrize("format", FORMATS)
def test_each_side_has_its_limit_in_every_format(format):
    limits = DecodeLimits(max_width=40, max_height=30)
    assert Decode("RGB", limits)(image_file(format, 40, 30)).shape == (30, 40, 3)
    for width, height in [(41, 30), (40, 31)]:
        for chain in (Decode("RGB", limits), Compose([Decode(None, limits), Crop(0, 0, 1, 1)])):
            with pytest.raises(ImageError, match=f"{width} x {height} pixels, more than the limit") as caught:
                chain(image_file(format, width, height))
            assert caught.value.kind == "too_large"


@pytest.mark.parametrize("format", FORMATS)
def test_the_decoded_size_must_be_less_than_the_limit(format):
    size = 30 * 40 * 3
    assert Decode("RGB", DecodeLimits(max_bytes=size + 1))(image_file(format, 40, 30)).nbytes == size
    with pytest.raises(
        ImageError, match=f"{size} bytes decoded; the size must be less than {size}"
    ) as caught:
        Decode("RGB", DecodeLimits(max_bytes=size))(image_file(format, 40, 30))
    assert caught.value.kind == "too_large"


def test_the_size_counts_what_is_asked_for_and_16_bits_double():
    gray = encode(Image.new("L", (10, 10)), "PNG")
    assert Decode(None, DecodeLimits(max_bytes=101))(gray).nbytes == 100
    with pytest.raises(ImageError):
        Decode("RGBA", DecodeLimits(max_bytes=400))(gray)
    deep = encode(Image.fromarray(np.zeros((10, 10), np.uint16)), "PNG")
    with pytest.raises(ImageError):
        Decode(None, DecodeLimits(max_bytes=200))(deep)


def test_the_defaults_are_16384_each_way_and_256_mebibytes():
    assert DecodeLimits() == DecodeLimits(16384, 16384, 2**28)
    assert Decode().limits == DecodeLimits()
    with pytest.raises(ImageError, match="16385 x 1"):
        Decode()(encode(Image.new("1", (16385, 1)), "PNG"))


@pytest.mark.parametrize("name", ["max_width", "max_height", "max_bytes"])
def test_bad_limits_are_refused_when_built(name):
    with pytest.raises(OptionError, match=f"{name} must be at least 1, not 0"):
        DecodeLimits(**{name: 0})
    for value in (1.5, "9", None, True):
        with pytest.raises(TypeError, match=f"{name} must be an int"):
            DecodeLimits(**{name: value})


def test_limits_take_numpy_ints_and_pickle():
    limits = DecodeLimits(max_width=np.int64(7))
    assert type(limits.max_width) is int
    assert pickle.loads(pickle.dumps(limits)) == limits
