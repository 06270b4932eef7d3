"""EXIF orientation: read, undone, and mapped to boxes."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from feedline.transforms.images.decode import Decode
from feedline.transforms.images.exif import orientation_of, stored_box, turn_upright, upright_box
from image_files import encode, picture, read


def block(value, order="<", kind=3, tag=274):
    mark = b"II" if order == "<" else b"MM"
    body = struct.pack(order + ("H2x" if kind == 3 else "I"), value)
    return mark + struct.pack(order + "HIHHHI", 42, 8, 1, tag, kind, 1) + body + bytes(4)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
@pytest.mark.parametrize("value", range(1, 9))
def test_the_tag_is_found_in_both_byte_orders(value, kind, order):
    assert orientation_of(block(value, order, kind)) == value
    assert orientation_of(b"Exif\0\0" + block(value, order, kind)) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Exif\0\0",
        b"II*\0",
        b"garbage" * 10,
        block(0),
        block(9),
        block(65535),
        block(6, kind=2),
        block(6, tag=275),
        block(6)[:18],
        b"II*\0\xff\xff\xff\xff" + bytes(50),
        b"II*\0\x08\0\0\0\xff\xff" + bytes(50),
    ],
)
def test_what_is_undefined_or_broken_is_upright(data):
    assert orientation_of(data) == 1


@given(st.binary(max_size=300))
def test_any_bytes_have_an_orientation(data):
    assert 1 <= orientation_of(data) <= 8
    assert 1 <= orientation_of(b"II*\0" + data) <= 8


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_pillow_turns_them(orientation):
    exif = Image.Exif()
    exif[274] = orientation
    image = picture(6, 9)
    stored = Image.open(io.BytesIO(encode(image, "PNG", exif=exif)))
    expected = np.asarray(ImageOps.exif_transpose(stored))
    np.testing.assert_array_equal(turn_upright(np.asarray(image), orientation), expected)


def test_the_eight_files_are_one_picture():
    upright = [Decode(exif=True)(read(f"exif_orientation_{n}.jpg")).astype(int) for n in range(1, 9)]
    for image in upright:
        assert image.shape == (32, 64, 3)
        assert np.abs(image - upright[0]).mean() < 2
    stored = [Decode()(read(f"exif_orientation_{n}.jpg")) for n in range(1, 9)]
    assert [image.shape[:2] for image in stored] == [(32, 64)] * 4 + [(64, 32)] * 4


@pytest.mark.parametrize("orientation", range(1, 9))
@given(top=st.integers(0, 5), left=st.integers(0, 7), height=st.integers(1, 4), width=st.integers(1, 3))
def test_a_box_of_the_upright_image_is_found_in_the_stored_one(orientation, top, left, height, width):
    stored = np.arange(9 * 10).reshape(9, 10, 1) if orientation < 5 else np.arange(90).reshape(10, 9, 1)
    upright = turn_upright(stored, orientation)
    assert upright.shape[:2] == (9, 10)
    box = (top, left, height, width)
    where = stored_box(box, 9, 10, orientation)
    part = stored[where[0] : where[0] + where[2], where[1] : where[1] + where[3]]
    np.testing.assert_array_equal(
        turn_upright(part, orientation), upright[top : top + height, left : left + width]
    )
    assert upright_box(where, 9, 10, orientation) == box


def test_broken_exif_in_a_file_counts_as_upright():
    data = read("exif_orientation_6.jpg")
    at = data.index(b"Exif\0\0")
    broken = data[: at + 6] + b"??" + data[at + 8 :]
    np.testing.assert_array_equal(Decode(exif=True)(broken), Decode()(broken))
