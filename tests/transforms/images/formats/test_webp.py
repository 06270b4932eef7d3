"""WebP: lossy, lossless, with alpha, animated."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from feedline.errors import ImageError
from feedline.transforms.images.decode import Decode
from image_files import encode, picture, pillow, read


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("alpha", [False, True])
def test_pixels_are_those_of_pillow(lossless, alpha):
    image = picture(40, 57)
    if alpha:
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    data = encode(image, "WEBP", lossless=lossless, exact=True)
    decoded = Decode()(data)
    assert decoded.shape == (40, 57, 4 if alpha else 3)
    np.testing.assert_array_equal(decoded, pillow(data))


def test_of_an_animation_the_first_frame_is_decoded():
    frames = [Image.new("RGB", (12, 10), colour) for colour in ("red", "blue")]
    data = encode(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    np.testing.assert_array_equal(Decode("RGB")(data), np.full((10, 12, 3), (255, 0, 0), np.uint8))


def test_orientation_in_a_webp_is_undone():
    exif = Image.Exif()
    exif[274] = 3
    data = encode(picture(20, 30), "WEBP", lossless=True, exif=exif)
    np.testing.assert_array_equal(Decode(exif=True)(data), Decode()(data)[::-1, ::-1])


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (read("rgb.webp")[:60], "truncated", "has 60 bytes of the 76"),
        (b"RIFF\x04\0\0\0WEBP", "truncated", "less than a header"),
        (b"RIFF\x20\0\0\0WEBPICCP" + bytes(40), "corrupt", "no picture where it must be, but b'ICCP'"),
        (read("rgb.webp")[:30] + bytes(46), "corrupt", "damaged"),
    ],
)
def test_broken_files_are_refused_with_the_reason(data, kind, message):
    with pytest.raises(ImageError, match=message) as caught:
        Decode()(data)
    assert caught.value.kind == kind
