"""PNG: every colour type and depth, with the pixels of an encoder of our own and of Pillow's."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from feedline.errors import ImageError
from feedline.transforms.images.decode import Decode
from image_files import encode, picture, pillow, read

ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def packed_rows(samples, depth):
    """Return the rows of `samples`, (height, width, channels), each with the filter type 0 before it."""
    rows = b""
    for row in samples.reshape(samples.shape[0], samples.shape[1] * samples.shape[2]):
        if depth == 16:
            content = row.astype(">u2").tobytes()
        elif depth == 8:
            content = row.astype(np.uint8).tobytes()
        else:
            bits = ((row[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
            content = np.packbits(bits.reshape(-1)).tobytes()
        rows += b"\0" + content
    return rows


def png(samples, depth, colour, *extra, interlaced=False):
    """Return a PNG of raw samples, (height, width, channels)."""
    height, width = samples.shape[:2]
    if interlaced:
        parts = (samples[top::down, left::across] for top, left, down, across in ADAM7)
        data = b"".join(packed_rows(part, depth) for part in parts if part.size)
    else:
        data = packed_rows(samples, depth)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")]
    )


def samples(depth, channels, seed=0):
    return np.random.default_rng(seed).integers(0, 2**depth, (13, 21, channels))


CASES = [
    (depth, colour)
    for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 4: (8, 16), 6: (8, 16)}.items()
    for depth in depths
]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("depth", "colour"), CASES)
def test_every_form_gives_its_samples(depth, colour, interlaced):
    values = samples(depth, CHANNELS[colour])
    image = Decode()(png(values, depth, colour, interlaced=interlaced))
    assert image.dtype == (np.uint16 if depth == 16 else np.uint8)
    scale = 255 // (2**depth - 1) if depth < 8 else 1
    np.testing.assert_array_equal(image, values * scale)


@pytest.mark.parametrize(("depth", "colour"), [(16, 0), (16, 2), (16, 4), (16, 6)])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_sixteen_bits_become_eight_by_their_upper_byte(depth, colour, mode):
    values = samples(depth, CHANNELS[colour])
    data = png(values, depth, colour)
    eight = png(values >> 8, 8, colour)
    np.testing.assert_array_equal(Decode(mode)(data), Decode(mode)(eight))


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("interlaced", [False, True])
def test_palettes_give_colours_alphas_and_indices(depth, interlaced):
    values = samples(depth, 1)
    colours = np.random.default_rng(1).integers(0, 256, (2**depth, 3), np.uint8)
    palette = chunk(b"PLTE", colours.tobytes())
    data = png(values, depth, 3, palette, interlaced=interlaced)
    np.testing.assert_array_equal(Decode()(data), colours[values[..., 0]])
    np.testing.assert_array_equal(Decode("P")(data), values)
    alphas = chunk(b"tRNS", bytes([0, 100]))
    image = Decode()(png(values, depth, 3, palette, alphas, interlaced=interlaced))
    np.testing.assert_array_equal(image[..., :3], colours[values[..., 0]])
    np.testing.assert_array_equal(
        image[..., 3], np.where(values == 0, 0, np.where(values == 1, 100, 255))[..., 0]
    )


@pytest.mark.parametrize(("depth", "colour"), [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2)])
def test_a_transparent_colour_becomes_an_alpha_channel(depth, colour):
    values = samples(depth, CHANNELS[colour])
    key = values[5, 7]
    data = png(values, depth, colour, chunk(b"tRNS", key.astype(">u2").tobytes()))
    image = Decode()(data)
    assert image.shape[2] == CHANNELS[colour] + 1
    opaque = 65535 if depth == 16 else 255
    np.testing.assert_array_equal(image[..., -1], np.where((values == key).all(axis=2), 0, opaque))
    np.testing.assert_array_equal(image[..., :-1], Decode()(png(values, depth, colour)))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA"])
def test_filtered_files_have_the_pixels_of_pillow(mode):
    data = encode(picture(57, 91).convert(mode), "PNG")
    expected = pillow(data)
    np.testing.assert_array_equal(
        Decode()(data), expected * np.uint8(255) if expected.dtype == bool else expected
    )


def test_pixels_may_be_cut_into_many_chunks():
    data = read("control_rgb.png")
    at = data.index(b"IDAT")
    (length,) = struct.unpack_from(">I", data, at - 4)
    content = data[at + 4 : at + 4 + length]
    pieces = b"".join(chunk(b"IDAT", content[i : i + 5]) for i in range(0, length, 5))
    split = data[: at - 4] + pieces + chunk(b"IEND", b"")
    np.testing.assert_array_equal(Decode()(split), Decode()(data))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("depth", "colour"), [*CASES, (8, 3)])
def test_rows_missing_inside_a_whole_file_are_truncated(depth, colour, interlaced):
    values = samples(depth, CHANNELS[colour])
    extra = [chunk(b"PLTE", bytes(768))] if colour == 3 else []
    whole = png(values, depth, colour, *extra, interlaced=interlaced)
    Decode()(whole)
    at = whole.index(b"IDAT")
    (length,) = struct.unpack_from(">I", whole, at - 4)
    raw = zlib.decompress(whole[at + 4 : at + 4 + length])
    for kept in (0, 1, len(raw) // 2, len(raw) - 1):
        hollow = whole[: at - 4] + chunk(b"IDAT", zlib.compress(raw[:kept])) + chunk(b"IEND", b"")
        with pytest.raises(ImageError, match=r"rows are missing|not enough image data") as caught:
            Decode()(hollow)
        assert caught.value.kind == "truncated"


def test_a_black_picture_is_no_truncated_one():
    values = np.zeros((300, 200, 3), int)
    for interlaced in (False, True):
        np.testing.assert_array_equal(Decode()(png(values, 8, 2, interlaced=interlaced)), values)


def damaged(data):
    at = data.index(b"IDAT") + 9
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (damaged(read("control_rgb.png")), "corrupt", r"chunk b'IDAT' at byte \d+ has a wrong checksum"),
        (png(samples(8, 1), 8, 5), "corrupt", "header is impossible: depth 8, colour type 5"),
        (png(samples(4, 1), 4, 2), "corrupt", "header is impossible"),
        (png(samples(8, 1), 8, 3), "corrupt", "palette of 0 bytes"),
        (png(samples(8, 1), 8, 3, chunk(b"PLTE", bytes(4))), "corrupt", "palette of 4 bytes"),
        (png(samples(8, 3), 8, 2, chunk(b"tRNS", bytes(2))), "corrupt", "transparent colour has 2 bytes"),
        (png(samples(8, 3), 8, 2, chunk(b"ABCD", b"")), "unsupported", "unknown critical chunk b'ABCD'"),
        (b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""), "corrupt", "does not begin with its header"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0d????" + bytes(20), "corrupt", "no chunk at byte 8"),
        (png(np.zeros((0, 5, 3), int), 8, 2), "corrupt", "declares 5 x 0 pixels"),
    ],
)
def test_broken_files_are_refused_with_the_reason(data, kind, message):
    with pytest.raises(ImageError, match=message) as caught:
        Decode()(data)
    assert caught.value.kind == kind


def test_odd_chunks_of_other_programs_do_no_harm():
    values = samples(8, 3)
    extra = [chunk(b"tEXt", b"Comment\0" + b"x" * 100), chunk(b"acTL", b"\0"), chunk(b"gAMA", bytes(4))]
    np.testing.assert_array_equal(Decode()(png(values, 8, 2, *extra)), values)


def test_orientation_in_a_png_is_undone():
    exif = Image.Exif()
    exif[274] = 6
    data = encode(picture(20, 30), "PNG", exif=exif)
    upright = Decode(exif=True)(data)
    np.testing.assert_array_equal(upright, np.rot90(Decode()(data), -1))
