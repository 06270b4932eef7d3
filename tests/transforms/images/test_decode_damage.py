"""Damaged files of every kind: an `ImageError` or an image, never anything else, and never a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from feedline.errors import ImageError
from feedline.transforms.compose import Compose
from feedline.transforms.images.crop import RandomResizedCrop
from feedline.transforms.images.decode import Decode
from image_files import GOOD, encode, picture, read

KINDS = {"empty", "not_an_image", "truncated", "corrupt", "too_large", "unsupported"}
BASE = picture(23, 31)
WHOLE = {
    **{name: read(name) for name in GOOD},
    "baseline": encode(BASE, "JPEG"),
    "progressive": encode(BASE, "JPEG", progressive=True),
    "restarts": encode(BASE, "JPEG", restart_marker_blocks=1),
    "ink": encode(BASE.convert("CMYK"), "JPEG"),
    "interlaced": encode(BASE.quantize(30), "GIF", interlace=1, transparency=2),
    "alpha": encode(BASE.convert("RGBA"), "PNG"),
    "webp": encode(BASE, "WEBP"),
    "bmp palette": encode(BASE.quantize(30), "BMP"),
    "lzw": encode(BASE, "TIFF", compression="tiff_lzw"),
    "deflate": encode(BASE.convert("L"), "TIFF", compression="tiff_adobe_deflate"),
    "packbits": encode(BASE.quantize(30), "TIFF", compression="packbits"),
    "16 bits": encode(Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30)), "TIFF"),
}
CHAINS = [
    Decode(),
    Decode("RGB", exif=True),
    Decode("P"),
    Compose([Decode("RGB"), RandomResizedCrop(8)]),
]


def check(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for chain in CHAINS:
            refused = None
            try:
                image = chain(data)
            except ImageError as error:
                refused = error
            if refused is not None:
                assert refused.kind in KINDS
                assert len(str(refused)) < 2000
            else:
                assert image.ndim == 3
                assert image.size
                assert image.dtype in (np.uint8, np.uint16)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_decoded(data):
    check(data)


@pytest.mark.parametrize(
    "head", [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0", b"MM\0*", b"BM"]
)
@settings(max_examples=60)
@given(tail=st.binary(max_size=200))
def test_any_bytes_after_a_signature_are_refused_or_decoded(head, tail):
    check(head + tail)


@settings(max_examples=250)
@given(data=st.data())
def test_changed_and_cut_files_are_refused_or_decoded(data):
    whole = bytearray(WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))])
    near = st.integers(0, min(100, len(whole) - 1))
    places = st.one_of(near, st.integers(0, len(whole) - 1))
    changes = data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8))
    for place, value in changes:
        whole[place] = value
    end = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    check(bytes(whole[:end]))
