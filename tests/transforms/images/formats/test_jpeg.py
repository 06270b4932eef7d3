"""JPEG: headers, colour spaces, and what is strict about it."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from feedline.errors import ImageError
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.formats import jpeg
from image_files import BAD, GOOD, encode, picture, pillow, read

PLAIN = encode(picture(40, 56), "JPEG", quality=90)


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def test_a_header_tells_what_is_needed_to_decode_a_part():
    header = jpeg.read_header(memoryview(PLAIN), exif=False)
    assert (header.width, header.height, header.channels, header.components) == (56, 40, 3, 3)
    assert (header.step, header.across, header.interval, header.one_scan) == (2, 16, 0, True)
    header = jpeg.read_header(memoryview(encode(picture(9, 9), "JPEG", progressive=True)), exif=False)
    assert not header.one_scan
    data = encode(picture(9, 9).convert("L"), "JPEG", restart_marker_blocks=3)
    header = jpeg.read_header(memoryview(data), exif=False)
    assert (header.channels, header.step, header.across, header.interval) == (1, 1, 8, 3)


USUAL = {
    "4:2:0": PLAIN,
    "4:4:4": encode(picture(40, 56), "JPEG", subsampling=0),
    "with tables of its own": encode(picture(40, 56), "JPEG", optimize=True),
    "with a comment": encode(picture(40, 56), "JPEG", comment=b"\xff\xda in a comment"),
}


@pytest.mark.parametrize("name", USUAL)
def test_the_quick_way_through_a_header_finds_what_the_other_finds(name):
    data = memoryview(USUAL[name])
    header = jpeg._usual_header(data)
    assert header is not None
    assert header == jpeg._any_header(data, False)


@pytest.mark.parametrize(
    "name", [name for name, _ in BAD if "jp" in name] + [name for name in GOOD if "jp" in name]
)
def test_the_quick_way_leaves_what_is_unusual_to_the_other(name):
    header = jpeg._usual_header(memoryview(read(name)))
    assert header is None or header == jpeg._any_header(memoryview(read(name)), False)


def test_the_quick_way_takes_no_damage_for_a_header():
    end = jpeg.read_header(memoryview(PLAIN), exif=False).scan_at + 12
    for at in range(2, end):
        header = jpeg._usual_header(memoryview(PLAIN[:at]))
        assert header is None or header == jpeg._any_header(memoryview(PLAIN[:at]), False)
        for value in (0x00, 0x01, 0x02, 0x7F, 0xC0, 0xC2, 0xDA, 0xDD, 0xEE, 0xFF):
            changed = bytearray(PLAIN)
            changed[at] = value
            header = jpeg._usual_header(memoryview(changed))
            assert header is None or header == jpeg._any_header(memoryview(changed), False)


def test_inks_are_stored_upside_down_only_with_an_adobe_marker():
    data = read("cmyk_adobe.jpg")
    at = data.index(b"\xff\xee")
    (length,) = struct.unpack_from(">H", data, at + 2)
    plain = data[:at] + data[at + 2 + length :]
    with_marker = Decode()(data).astype(int)
    without = Decode()(plain).astype(int)
    assert np.abs(with_marker - without).max() > 100
    inks = 255 - np.asarray(Image.open(io.BytesIO(data)))  # Pillow turns the inks over, whatever the marker.
    expected = (255 - inks[..., :3].astype(int)) * (255 - inks[..., 3:].astype(int)) // 255
    assert np.abs(without - expected).max() <= 1


def test_a_jpeg_stored_as_rgb_is_not_taken_for_ycbcr():
    data = encode(picture(32, 32), "JPEG", quality=95, keep_rgb=True)
    np.testing.assert_array_equal(Decode()(data), pillow(data))
    assert np.abs(Decode("L")(data).astype(int) - pillow(data, "L")).max() <= 1


def test_odd_sampling_factors_decode_through_pillow():
    data = encode(picture(40, 56).convert("CMYK"), "JPEG", subsampling=2)
    np.testing.assert_array_equal(Decode("RGB")(data), pillow(data, "RGB"))
    assert Decode("L")(data).shape == (40, 56, 1)
    assert Decode("RGBA")(data).shape == (40, 56, 4)


def test_bytes_left_over_after_the_last_row_are_no_error():
    padded = PLAIN[:-2] + bytes(300) + PLAIN[-2:]
    np.testing.assert_array_equal(Decode()(padded), Decode()(PLAIN))


def test_fill_bytes_before_markers_are_skipped():
    np.testing.assert_array_equal(Decode()(PLAIN[:2] + b"\xff\xff\xff" + PLAIN[2:]), Decode()(PLAIN))


def test_codes_that_make_no_sense_are_corrupt():
    data = bytearray(PLAIN)
    scan = data.rindex(b"\xff\xda")
    # Ones only are no code in any table.
    data[scan + 40 : scan + 240] = b"\xff\0" * 100
    with pytest.raises(ImageError, match="bad Huffman code") as caught:
        Decode()(bytes(data))
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (PLAIN.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c"), "unsupported", "12 bits per sample"),
        (
            b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 8, 5, 5, 2) + bytes(6)),
            "unsupported",
            "2 components",
        ),
        (b"\xff\xd8" + segment(0xC0, b"\x08\0"), "corrupt", "frame header is too short"),
        (
            b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 8, 5, 5, 3)),
            "corrupt",
            "frame header is too short",
        ),
        (b"\xff\xd8" + segment(0xDA, bytes(10)), "corrupt", "scan before its frame header"),
        (b"\xff\xd8" + segment(0xFE, b"x") + b"\xff\xd9", "corrupt", "ends without a picture"),
        (b"\xff\xd8\xff\xe0\0\1" + bytes(20), "corrupt", "impossible length at byte 2"),
        (b"\xff\xd8" + segment(0xFE, b"x") + b"abcd", "corrupt", "no marker at byte 7"),
        (b"\xff\xd8\xff\xfe\xff\xff", "truncated", "ends in its header, after 6 bytes"),
        (PLAIN.replace(b"\0\x28\0\x38", b"\0\0\0\x38"), "corrupt", "declares 56 x 0 pixels"),
    ],
)
def test_broken_headers_are_refused_with_the_reason(data, kind, message):
    with pytest.raises(ImageError, match=message) as caught:
        Decode()(data)
    assert caught.value.kind == kind


def test_a_picture_of_countless_scans_is_refused():
    data = encode(picture(16, 16), "JPEG", progressive=True)
    scan = data.rindex(b"\xff\xda")
    with pytest.raises(ImageError, match="scans, more than the limit of 500") as caught:
        Decode()(data[:scan] + data[scan:-2] * 600 + data[-2:])
    assert caught.value.kind == "too_large"
