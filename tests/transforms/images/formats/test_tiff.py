"""TIFF: depths, compressions, planes and tiles, with the pixels of Pillow and of an encoder of our own."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image, features

from feedline.errors import ImageError
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.formats.tiff_tags import read_tags, with_tags
from image_files import encode, picture, pillow, read

COMPRESSIONS = [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"]


def forms():
    base = picture(37, 53)
    yield from ((mode, base.convert(mode)) for mode in ("1", "L", "LA", "RGB", "RGBA", "CMYK"))
    yield "P", base.quantize(200)
    yield "I;16", Image.fromarray((np.asarray(base.convert("L")).astype(np.uint16) << 8) + 77)


FORMS = dict(forms())


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("mode", FORMS)
def test_pixels_are_those_of_pillow(mode, compression):
    data = encode(FORMS[mode], "TIFF", compression=compression)
    view = {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(mode)
    image = Decode()(data)
    np.testing.assert_array_equal(image, pillow(data, view))
    assert image.dtype == (np.uint16 if mode == "I;16" else np.uint8)
    assert image.flags.writeable


@pytest.mark.parametrize("compression", ["group3", "group4", "tiff_ccitt"])
def test_fax_pages_are_those_of_pillow(compression):
    data = encode(FORMS["1"], "TIFF", compression=compression)
    np.testing.assert_array_equal(Decode()(data), pillow(data, "L"))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpeg_inside_a_tiff_is_decoded(mode):
    data = encode(FORMS[mode], "TIFF", compression="jpeg", quality=90)
    np.testing.assert_array_equal(Decode()(data), pillow(data))


def test_palette_indices_can_be_had():
    data = encode(FORMS["P"], "TIFF")
    np.testing.assert_array_equal(Decode("P")(data)[..., 0], np.asarray(FORMS["P"]))


def tiff(
    values, *, order="<", planar=False, tile=None, compress=False, photometric=None, extra=(), **changes
):
    """Return a TIFF of `values`, (height, width, samples), in strips of 5 rows or in tiles."""
    height, width, count = values.shape
    typed = values.astype(values.dtype.newbyteorder(order))
    planes = np.split(typed, count, axis=2) if planar else [typed]
    down, across = tile or (5, width)
    parts = []
    for plane in planes:
        for top in range(0, height, down):
            for left in range(0, width, across):
                part = plane[top : top + down, left : left + across]
                if tile:
                    part = np.pad(part, ((0, down - part.shape[0]), (0, across - part.shape[1]), (0, 0)))
                raw = np.ascontiguousarray(part).tobytes()
                parts.append(zlib.compress(raw) if compress else raw)
    data = b"".join(parts)
    data += b"\0" * (len(data) % 2)
    offsets = np.cumsum([8] + [len(part) for part in parts])[:-1].tolist()
    kind = "tile" if tile else "strip"
    tags = {
        "width": [width],
        "height": [height],
        "bits": [8 * values.itemsize] * count,
        "compression": [8 if compress else 1],
        "photometric": [photometric if photometric is not None else (2 if count >= 3 else 1)],
        "samples": [count],
        "planar": [2 if planar else 1],
        f"{kind}_offsets": offsets,
        f"{kind}_counts": [len(part) for part in parts],
        **({"tile_width": [across], "tile_height": [down]} if tile else {"rows_per_strip": [down]}),
        **({"extra": list(extra)} if extra else {}),
        **changes,
    }
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 0)
    return with_tags(memoryview(head + data), {name: value for name, value in tags.items() if value})[0]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("tile", [None, (16, 32)])
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_layout_gives_its_samples(dtype, count, order, planar, tile, compress):
    values = np.random.default_rng(count).integers(0, np.iinfo(dtype).max + 1, (23, 41, count)).astype(dtype)
    extra = (2,) if count in (2, 4) else ()
    data = tiff(values, order=order, planar=planar, tile=tile, compress=compress, extra=extra)
    image = Decode()(data)
    assert image.dtype == dtype
    np.testing.assert_array_equal(image, values)


def test_samples_beyond_the_colours_that_are_no_alpha_are_left_out():
    values = np.random.default_rng(0).integers(0, 256, (9, 8, 4)).astype(np.uint8)
    np.testing.assert_array_equal(Decode()(tiff(values, extra=(0,))), values[..., :3])
    np.testing.assert_array_equal(Decode()(tiff(values[..., :2], extra=(0,), photometric=1)), values[..., :1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_white_may_be_zero(dtype):
    values = np.random.default_rng(0).integers(0, 256, (9, 8, 1)).astype(dtype)
    np.testing.assert_array_equal(Decode()(tiff(values, photometric=0)), np.iinfo(dtype).max - values)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_tag_is_undone_only_if_asked_for(orientation):
    values = np.asarray(picture(12, 20))
    data = tiff(values, orientation=[orientation])
    np.testing.assert_array_equal(Decode()(data), values)
    upright = pillow(data)
    np.testing.assert_array_equal(Decode(exif=True)(data), upright)


def test_strips_that_are_missing_or_short_are_truncated():
    values = np.asarray(picture(23, 20))
    short = tiff(values, strip_offsets=[8, 8], strip_counts=[300, 300])
    with pytest.raises(ImageError, match="has 2 strips of 5") as caught:
        Decode()(short)
    assert caught.value.kind == "truncated"
    with pytest.raises(ImageError, match="strip 4 has 10 bytes, not 180") as caught:
        Decode()(tiff(values, strip_counts=[300, 300, 300, 300, 10]))
    assert caught.value.kind == "truncated"
    with pytest.raises(ImageError, match=r"strips go to byte 1\d{6}") as caught:
        Decode()(tiff(values, strip_offsets=[8, 308, 608, 908, 10**6]))
    assert caught.value.kind == "truncated"


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"compression": [6]}, "unsupported", "compression 6"),
        ({"compression": [34676]}, "unsupported", "compression 34676"),
        ({"photometric": 8}, "unsupported", "photometric interpretation 8"),
        ({"bits": [8, 8, 16]}, "unsupported", r"\[8, 16\] bits per sample"),
        ({"bits": [12]}, "unsupported", r"\[12\] bits"),
        ({"formats": [3]}, "unsupported", "floating-point"),
        ({"samples": [7]}, "unsupported", "7 samples per pixel"),
        ({"width": None}, "corrupt", "does not tell its width"),
        ({"rows_per_strip": [0]}, "corrupt", "strips without rows"),
        ({"width": [20000]}, "too_large", "20000 x 23 pixels"),
        (
            {"tile_offsets": [8], "tile_counts": [8], "tile_width": [60000], "tile_height": [60000]},
            "corrupt",
            "tiles",
        ),
    ],
)
def test_what_is_not_decoded_is_refused_with_the_reason(changes, kind, message):
    with pytest.raises(ImageError, match=message) as caught:
        Decode()(tiff(np.asarray(picture(23, 20)), **changes))
    assert caught.value.kind == kind


def test_a_tag_with_millions_of_values_is_refused():
    data = tiff(np.asarray(picture(23, 20))) + bytes(2**21)
    tags = read_tags(memoryview(data))
    with pytest.raises(ImageError, match="1048577 values for tag 278") as caught:
        Decode()(with_tags(memoryview(data), {**tags, "rows_per_strip": [5] * (2**20 + 1)})[0])
    assert caught.value.kind == "corrupt"


def test_tags_survive_being_written():
    data = memoryview(read("gray16_le.tif"))
    tags = read_tags(data)
    again, start = with_tags(data, tags)
    assert read_tags(memoryview(again)) == tags
    assert struct.unpack_from("<I", again, 4) == (start,)


def test_libtiff_is_there():
    assert features.check("libtiff")
