"""BMP: depths, bit fields, run lengths and row orders."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from feedline.errors import ImageError
from feedline.transforms.images.decode import Decode
from image_files import encode, picture, pillow


def bmp(pixels, width, height, depth, *, packing=0, masks=b"", palette=b"", size=40):
    """Return a BMP of raw rows."""
    header = struct.pack("<IiiHHIIiiII", size, width, height, 1, depth, packing, len(pixels), 0, 0, 0, 0)
    header = header.ljust(size, b"\0") if size > 40 + len(masks) else header
    start = 14 + len(header) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + header + masks + palette + pixels


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
@pytest.mark.parametrize("width", [1, 7, 8, 33])
def test_pixels_are_those_of_pillow(mode, width):
    data = encode(picture(19, width).convert(mode), "BMP")
    np.testing.assert_array_equal(Decode()(data), pillow(data, "L" if mode == "1" else None))


def test_a_palette_gives_colours_and_indices():
    image = picture(19, 30).quantize(100)
    data = encode(image, "BMP")
    np.testing.assert_array_equal(Decode()(data), pillow(data, "RGB"))
    np.testing.assert_array_equal(Decode("P")(data)[..., 0], np.asarray(image))


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_small_indices_are_unpacked_from_the_upper_bits(depth):
    indices = np.random.default_rng(depth).integers(0, 2**depth, (5, 11))
    bits = (indices[..., None] >> np.arange(depth - 1, -1, -1)) & 1
    rows = np.packbits(bits.reshape(5, -1).astype(np.uint8), axis=1)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    colours = np.random.default_rng(9).integers(0, 256, (2**depth, 4), np.uint8)
    data = bmp(rows[::-1].tobytes(), 11, 5, depth, palette=colours.tobytes())
    np.testing.assert_array_equal(Decode()(data), colours[indices][..., 2::-1])


def test_a_negative_height_begins_at_the_top():
    values = np.asarray(picture(6, 8))
    rows = values[..., ::-1]
    upward = bmp(rows[::-1].tobytes(), 8, 6, 24)
    downward = bmp(rows.tobytes(), 8, -6, 24)
    np.testing.assert_array_equal(Decode()(upward), values)
    np.testing.assert_array_equal(Decode()(downward), values)


def test_sixteen_bits_have_five_for_each_colour_or_as_their_fields_say():
    words = np.random.default_rng(0).integers(0, 2**16, (4, 6)).astype("<u2")
    image = Decode()(bmp(words[::-1].tobytes(), 6, 4, 16))
    np.testing.assert_array_equal(image[..., 0], (words >> 10 & 31).astype(int) * 255 // 31)
    fields = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    image = Decode()(bmp(words[::-1].tobytes(), 6, 4, 16, packing=3, masks=fields))
    np.testing.assert_array_equal(image[..., 1], (words >> 5 & 63).astype(int) * 255 // 63)
    np.testing.assert_array_equal(
        image, pillow(bmp(words[::-1].tobytes(), 6, 4, 16, packing=3, masks=fields))
    )


def test_thirty_two_bits_have_alpha_only_where_there_is_a_field_for_it():
    values = np.random.default_rng(0).integers(0, 256, (4, 6, 4), np.uint8)
    np.testing.assert_array_equal(Decode()(bmp(values[::-1].tobytes(), 6, 4, 32)), values[..., 2::-1])
    fields = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    image = Decode()(bmp(values[::-1].tobytes(), 6, 4, 32, packing=3, masks=fields, size=56))
    np.testing.assert_array_equal(image, values[..., [2, 1, 0, 3]])


def test_run_lengths_are_undone():
    palette = bytes(range(16)) * 64
    rle8 = bytes([3, 9, 0, 3, 1, 2, 3, 0, 0, 0, 0, 2, 2, 0, 4, 5, 0, 1])
    expected = [[0, 0, 5, 5, 5, 5], [9, 9, 9, 1, 2, 3]]
    np.testing.assert_array_equal(
        Decode("P")(bmp(rle8, 6, 2, 8, packing=1, palette=palette))[..., 0], expected
    )
    rle4 = bytes([5, 0x12, 0, 0, 0, 5, 0x34, 0x56, 0x70, 0, 0, 1])
    expected = [[3, 4, 5, 6, 7, 0], [1, 2, 1, 2, 1, 0]]
    np.testing.assert_array_equal(
        Decode("P")(bmp(rle4, 6, 2, 4, packing=2, palette=palette[:64]))[..., 0], expected
    )


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (bmp(bytes(99), 6, 10, 24), "truncated", "its pixels go to byte"),
        (bmp(b"\3\1", 6, 2, 8, packing=1, palette=bytes(1024)), "truncated", "run lengths end"),
        (bmp(b"\6\1\0\1", 6, 2, 8, packing=1, palette=bytes(1024)), "truncated", "before its last row"),
        (bmp(b"", 6, 2, 24, packing=4), "unsupported", "24 bits with compression 4"),
        (bmp(b"", 6, 2, 9), "unsupported", "9 bits"),
        (bmp(b"", 6, -2, 8, packing=1, palette=bytes(1024)), "corrupt", "top-down"),
        (bmp(b"", 0, 2, 24), "corrupt", "declares 0 x 2"),
        (bmp(b"", -3, 2, 24), "corrupt", "declares -3 x 2"),
        (bmp(b"", 3, 2, 16, packing=3, masks=struct.pack("<III", 5, 2, 8)), "corrupt", "bit field 0x5"),
        (bmp(b"", 6, 2, 8, palette=bytes(100)), "truncated", "palette"),
    ],
)
def test_broken_files_are_refused_with_the_reason(data, kind, message):
    with pytest.raises(ImageError, match=message) as caught:
        Decode()(data)
    assert caught.value.kind == kind
