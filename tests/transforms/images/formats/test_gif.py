"""GIF: the first frame, on a canvas of the screen's size."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from feedline.errors import ImageError
from feedline.transforms.images.decode import Decode
from image_files import encode, picture, pillow, read


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize("colours", [2, 16, 200])
def test_pixels_are_those_of_pillow(interlace, colours):
    image = picture(41, 33).quantize(colours)
    data = encode(image, "GIF", interlace=interlace)
    np.testing.assert_array_equal(Decode()(data), pillow(data, "RGB"))
    np.testing.assert_array_equal(Decode("P")(data), pillow(data))


def test_a_transparent_index_becomes_alpha():
    data = encode(picture(20, 20).quantize(8), "GIF", transparency=3)
    image = Decode()(data)
    indices = Decode("P")(data)[..., 0]
    np.testing.assert_array_equal(image[..., 3], np.where(indices == 3, 0, 255))
    np.testing.assert_array_equal(image, pillow(data, "RGBA"))


def test_of_an_animation_the_first_frame_is_decoded():
    frames = [Image.new("RGB", (12, 10), colour) for colour in ("red", "blue", "lime")]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(Decode("RGB")(data), np.full((10, 12, 3), (255, 0, 0), np.uint8))


def test_rows_missing_inside_a_whole_file_are_truncated():
    data = encode(picture(41, 33).quantize(200), "GIF")
    at = data.index(b",", 13 + 768) + 11
    blocks = []
    while data[at]:
        blocks.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    kept = b"".join(blocks)[:400]
    start = data.index(b",", 13 + 768) + 11
    hollow = data[:start] + bytes([200]) + kept[:200] + bytes([200]) + kept[200:] + b"\0;"
    with pytest.raises(ImageError) as caught:
        Decode()(hollow)
    assert caught.value.kind == "truncated"


def test_an_early_end_code_is_truncated():
    # Codes of 3 bits: clear (4), one pixel of colour 1, end (5).
    packed = 4 | 1 << 3 | 5 << 6
    data = (
        b"GIF89a"
        + struct.pack("<HHBBB", 5, 5, 0x80, 0, 0)
        + bytes(6)
        + b","
        + struct.pack("<HHHHB", 0, 0, 5, 5, 0)
        + b"\2\2"
        + struct.pack("<H", packed)
        + b"\0;"
    )
    with pytest.raises(ImageError) as caught:
        Decode()(data)
    assert caught.value.kind == "truncated"


def framed(left, top, screen=(30, 25)):
    """Return a GIF whose frame, 16 x 16, lies at (left, top) of a screen of its own size."""
    data = bytearray(read("two_frames.gif"))
    at = data.index(b",", 13)
    struct.pack_into("<HH", data, 6, *screen)
    struct.pack_into("<HH", data, at + 1, left, top)
    return bytes(data)


def test_a_frame_lies_where_it_says_on_the_screen():
    image = Decode("RGB")(framed(7, 4))
    assert image.shape == (25, 30, 3)
    np.testing.assert_array_equal(image[4:20, 7:23], Decode("RGB")(read("two_frames.gif")))
    np.testing.assert_array_equal(image, pillow(framed(7, 4), "RGB"))


def test_the_screen_grows_with_a_frame_that_reaches_over_it():
    assert Decode("RGB")(framed(20, 20)).shape == (36, 36, 3)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0) + b";", "corrupt", "no frame"),
        (b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0) + b"x", "corrupt", "no block at byte 13"),
        (b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0), "truncated", "before its first frame"),
        (b"GIF89a" + bytes(7) + b"," + struct.pack("<HHHHB", 0, 0, 0, 5, 0) + b"\2", "corrupt", "0 x 5"),
        (b"GIF89a" + bytes(7) + b"," + struct.pack("<HHHHB", 0, 0, 5, 5, 0) + b"\x0d", "corrupt", "13 bits"),
    ],
)
def test_broken_files_are_refused_with_the_reason(data, kind, message):
    with pytest.raises(ImageError, match=message) as caught:
        Decode()(data)
    assert caught.value.kind == kind
