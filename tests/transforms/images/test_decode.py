"""`Decode`: what it takes, what it gives, and how it refuses."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from feedline.errors import ImageError, MissingExtraError, OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.color import ToRgb
from feedline.transforms.images.decode import MODES, Decode
from feedline.transforms.images.image_type import ImageKind
from feedline.transforms.images.limits import DecodeLimits
from image_files import BAD, FILES, GOOD, MANIFEST, encode, picture, pillow, read

VIEWS = {"rgb8": "RGB", "rgba8": "RGBA", "l8": "L", "l16": None, "index8": "P", "rgb8_upright": "RGB"}
KNOWN = [(entry["file"], view) for entry in MANIFEST if "views" in entry for view in entry["views"]]


@pytest.mark.parametrize(("name", "view"), KNOWN)
def test_a_known_file_has_its_known_pixels(name, view):
    expected = next(entry["views"][view] for entry in MANIFEST if entry["file"] == name)
    image = Decode(VIEWS[view], exif=view == "rgb8_upright")(read(name))
    assert image.shape[:2] == tuple(reversed(expected["size"]))
    assert image.dtype == (np.uint16 if view == "l16" else np.uint8)
    for x, y, values in expected["pixels"]:
        assert np.abs(image[y, x].astype(int) - values).max() <= expected["tol"]


@pytest.mark.parametrize(("name", "kind"), BAD)
@pytest.mark.parametrize("mode", [None, *MODES])
def test_a_bad_file_is_refused_with_its_kind(name, kind, mode):
    with pytest.raises(ImageError) as caught:
        Decode(mode)(read(name))
    assert caught.value.kind == kind


def test_messages_show_how_the_bytes_begin_and_what_they_seem_to_be():
    with pytest.raises(ImageError, match=r"HTML page.*begin with b'<!DOCTYPE html>"):
        Decode()(read("html_error.png"))
    with pytest.raises(ImageError, match=r"210 bytes that are no JPEG, PNG.*b'this is not a picture"):
        Decode()(read("text.jpg"))
    with pytest.raises(ImageError, match="bytes stand before the image, and are not skipped"):
        Decode()(read("prefix_garbage.jpg"))
    with pytest.raises(ImageError, match="no bytes at all"):
        Decode()(b"")


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\0\0\0\x20ftypavif", "AVIF"),
        (b"\0\0\0\x20ftypheic", "HEIC"),
        (b"\0\0\0\x0cjP  \r\n", "JPEG 2000"),
        (b"II+\0\x08\0\0\0", "BigTIFF"),
    ],
)
def test_images_of_other_formats_are_unsupported_by_name(head, name):
    with pytest.raises(ImageError, match=name) as caught:
        Decode()(head + bytes(100))
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("name", ["control_rgb.jpg", "control_rgb.png", "rgb.webp", "rgb.bmp", "cmyk.tif"])
def test_bytes_in_every_form_decode_alike(name, tmp_path):
    data = read(name)
    expected = Decode()(data)
    path = FILES / name
    for source in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8), path, str(path)):
        np.testing.assert_array_equal(Decode()(source), expected)
    longer = memoryview(b"xx" + data + b"yy")[2:-2]
    np.testing.assert_array_equal(Decode()(longer), expected)


def test_a_file_object_is_read_from_where_it_stands_and_left_open():
    data = read("control_rgb.png")
    file = io.BytesIO(b"before" + data)
    file.seek(6)
    np.testing.assert_array_equal(Decode()(file), Decode()(data))
    assert not file.closed
    assert file.tell() == 6 + len(data)


@pytest.mark.parametrize("item", [3, None, ["bytes"], {"image": b""}, np.zeros((2, 2, 3), np.uint8)])
def test_what_is_no_encoded_image_is_a_type_error(item):
    with pytest.raises(TypeError, match="Decode takes an encoded image"):
        Decode()(item)


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 3), (5, 2, 3, 3)])
def test_an_array_of_pixels_is_a_type_error_that_says_what_it_is_and_what_to_do(shape):
    with pytest.raises(TypeError, match=r"takes an encoded image .* but got an array of shape") as caught:
        Decode()(np.zeros(shape, np.uint8))
    assert f"{shape} and dtype uint8: that is decoded already, so leave Decode out" in str(caught.value)


def test_errors_name_the_file():
    with pytest.raises(ImageError, match=r"truncated_60pct\.jpg: the JPEG"):
        Decode()(FILES / "truncated_60pct.jpg")
    with open(FILES / "text.jpg", "rb") as file, pytest.raises(ImageError, match=r"text\.jpg: 210 bytes"):
        Decode()(file)


def test_no_descriptor_stays_open(tmp_path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("descriptors are counted in /proc")
    before = len(os.listdir("/proc/self/fd"))
    kept = [Decode()(FILES / name) for name in GOOD for _ in range(3)]
    for name, _ in BAD:
        with pytest.raises(ImageError):
            Decode()(FILES / name)
    assert len(os.listdir("/proc/self/fd")) == before
    assert kept


def test_labels_travel_along():
    data = read("rgb.bmp")
    pair = Decode()((data, 7))
    assert type(pair) is tuple
    assert pair[1] == 7
    sample = namedtuple("sample", "image name label")(data, "a", 3)
    result = Decode()(sample)
    assert (result.name, result.label) == ("a", 3)
    assert result.image.shape == (32, 61, 3)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_a_mode_gives_its_channels_in_uint8(name, mode):
    image = Decode(mode)(read(name))
    assert image.ndim == 3
    assert image.shape[2] == len(mode)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert image.flags.writeable
    assert image.flags.owndata or image.base is not None


@pytest.mark.parametrize("name", GOOD)
def test_without_a_mode_the_image_keeps_its_form(name):
    image = Decode()(read(name))
    with Image.open(FILES / name) as opened:
        form = opened.mode
        if form == "P":
            form = "RGBA" if "transparency" in opened.info else "RGB"
    channels = {"1": 1, "L": 1, "I;16": 1, "LA": 2, "RGB": 3, "CMYK": 3, "RGBA": 4}[form]
    assert image.shape[2] == channels
    assert image.dtype == (np.uint16 if form == "I;16" else np.uint8)


def test_alpha_is_dropped_and_not_blended():
    pixels = np.array([[[200, 40, 40, 0], [10, 20, 30, 128]]], np.uint8)
    data = encode(Image.fromarray(pixels), "PNG")
    np.testing.assert_array_equal(Decode("RGB")(data), pixels[..., :3])


def test_palette_indices_are_asked_for_or_refused():
    with pytest.raises(ImageError, match="no palette") as caught:
        Decode("P")(read("control_rgb.png"))
    assert caught.value.kind == "unsupported"
    with pytest.raises(ImageError, match="no palette"):
        Decode("P")(read("control_rgb.jpg"))
    with pytest.raises(ImageError, match="no palette"):
        Compose([Decode("P")])(read("gray.jpg"))


@pytest.mark.parametrize("name", [name for name in GOOD if name not in ("gray16.png", "gray16_le.tif")])
def test_pixels_are_those_of_pillow(name):
    data = read(name)
    mode = "RGBA" if name == "palette_trns.png" else "RGB"
    np.testing.assert_array_equal(Decode(mode)(data), pillow(data, mode))


@pytest.mark.parametrize(
    "options",
    [
        {"quality": 95, "subsampling": 0},
        {"quality": 60, "subsampling": 1},
        {"quality": 90, "subsampling": 2},
        {"progressive": True},
        {"restart_marker_blocks": 5},
    ],
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpegs_have_the_pixels_of_pillow(options, mode):
    data = encode(picture(93, 141).convert(mode), "JPEG", **options)
    np.testing.assert_array_equal(Decode("RGB")(data), pillow(data, "RGB"))


def test_a_gray_view_of_a_jpeg_is_the_luma_that_it_stores():
    data = encode(picture(64, 64), "JPEG", quality=95)
    with Image.open(io.BytesIO(data)) as image:
        image.draft("L", image.size)
        np.testing.assert_array_equal(Decode("L")(data)[..., 0], np.asarray(image))


def test_a_jpeg_as_rgba_is_opaque():
    image = Decode("RGBA")(read("control_rgb.jpg"))
    assert (image[..., 3] == 255).all()
    np.testing.assert_array_equal(image[..., :3], Decode("RGB")(read("control_rgb.jpg")))


def test_the_fast_way_differs_by_a_few_levels_at_most():
    data = encode(picture(120, 160), "JPEG", quality=90, subsampling=0)
    difference = np.abs(Decode(fast=True)(data).astype(int) - Decode()(data))
    assert difference.max() <= 8
    assert difference.mean() < 1


@pytest.mark.parametrize("name", [name for name in GOOD if not name.startswith("exif_orientation")])
def test_upright_images_are_the_same_with_exif(name):
    np.testing.assert_array_equal(Decode(exif=True)(read(name)), Decode()(read(name)))


@pytest.mark.parametrize("name", ["truncated_60pct.jpg", "truncated_60pct.png", "progressive.jpg"])
def test_pillows_switch_for_truncated_files_changes_nothing(name, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    data = read(name)
    with pytest.raises(ImageError) as caught:
        Decode()(data[: len(data) * 3 // 5] if name == "progressive.jpg" else data)
    assert caught.value.kind == "truncated"
    assert ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("name", GOOD)
def test_pillows_limit_of_pixels_changes_nothing(name, monkeypatch):
    expected = Decode()(read(name))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    np.testing.assert_array_equal(Decode()(read(name)), expected)
    assert Image.MAX_IMAGE_PIXELS == 1


FORMATS = {
    "JPEG": encode(picture(40, 50), "JPEG"),
    "progressive JPEG": encode(picture(40, 50), "JPEG", progressive=True),
    "PNG": encode(picture(40, 50), "PNG"),
    "WebP": encode(picture(40, 50), "WEBP"),
    "lossless WebP": encode(picture(20, 30), "WEBP", lossless=True),
    "GIF": encode(picture(40, 50).quantize(64), "GIF"),
    "BMP": encode(picture(20, 30), "BMP"),
    "TIFF": encode(picture(20, 30), "TIFF"),
}


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_cut_anywhere_is_truncated(format):
    data = FORMATS[format]
    # What a TIFF has after its pixels is its directory's business; the last byte of a GIF only says that it ends.
    end = {"GIF": 3, "PNG": 1}.get(format, 1)
    for size in range(1, len(data) - end + 1, 7):
        with pytest.raises(ImageError) as caught:
            Decode()(data[:size])
        allowed = {"truncated"} if size >= 16 else {"truncated", "not_an_image"}
        assert caught.value.kind in allowed, size


@pytest.mark.parametrize("format", FORMATS)
def test_bytes_after_the_end_are_ignored(format):
    data = FORMATS[format]
    np.testing.assert_array_equal(Decode()(data + b"\xff\xd8 something else \0\0"), Decode()(data))


@pytest.mark.parametrize("format", FORMATS)
def test_bytes_before_the_start_are_not_skipped(format):
    with pytest.raises(ImageError) as caught:
        Decode()(b"\r\n" + FORMATS[format])
    assert caught.value.kind == "not_an_image"


@pytest.mark.parametrize("format", FORMATS)
def test_threads_decode_at_the_same_time(format):
    data = FORMATS[format]
    expected = Decode("RGB")(data)
    results: list[np.ndarray] = []

    def work() -> None:
        for _ in range(10):
            results.append(Decode("RGB")(data))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 40
    for image in results:
        np.testing.assert_array_equal(image, expected)


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for entry in MANIFEST:
            for step in (Decode(), Decode("RGB", exif=True)):
                if entry["outcome"] == "ok":
                    step(read(entry["file"]))
                else:
                    with pytest.raises(ImageError):
                        step(read(entry["file"]))


def test_a_bomb_takes_no_memory():
    script = textwrap.dedent(
        """
        import resource, struct, sys
        from feedline.errors import ImageError
        from feedline.transforms.images.decode import Decode

        def bombs():
            png = bytearray(open(sys.argv[1], "rb").read())
            yield bytes(png)
            yield b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\\0\\0\\0\\0" + b"\\xff\\xff\\xff\\xff\\0\\2\\2\\0\\0"
            yield b"BM" + struct.pack("<IIIIiiHHIIiiII", 70, 0, 54, 40, 60000, 60000, 1, 24, 0, 0, 0, 0, 0, 0) + b"\\0" * 16
            yield b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<II", 10, 0) + b"\\x5f\\xea\\0" * 2
            jpeg = bytearray(open(sys.argv[2], "rb").read())
            at = jpeg.index(b"\\xff\\xc0")
            struct.pack_into(">HH", jpeg, at + 5, 60000, 60000)
            yield bytes(jpeg)
            yield (b"II*\\0\\x08\\0\\0\\0" + struct.pack("<H", 4)
                + struct.pack("<HHII", 256, 4, 1, 60000) + struct.pack("<HHII", 257, 4, 1, 60000)
                + struct.pack("<HHII", 273, 4, 1, 8) + struct.pack("<HHII", 279, 4, 1, 2**31 - 1) + b"\\0" * 4)

        Decode()(open(sys.argv[2], "rb").read())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for data in bombs():
            try:
                Decode()(data)
            except ImageError as error:
                assert error.kind == "too_large", error
            else:
                raise SystemExit("decoded")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(grown // 1024)
        """
    )
    if sys.platform != "linux":
        pytest.skip("peak memory is measured in kilobytes on Linux only")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            script,
            FILES / "bomb_declared_60000.png",
            FILES / "control_rgb.jpg",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "rgb"}, OptionError, "mode must be None or one of L, LA, RGB, RGBA, P, not 'rgb'"),
        ({"limits": 5}, TypeError, "limits must be a DecodeLimits"),
        ({"exif": 1}, TypeError, "exif must be a bool"),
        ({"fast": None}, TypeError, "fast must be a bool"),
    ],
)
def test_bad_options_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        Decode(**arguments)


def test_decode_may_not_come_after_an_image():
    with pytest.raises(
        OptionError, match=r"Decode.* takes encoded bytes, but the steps before it give a decoded"
    ):
        Compose([Decode(), ToRgb(), Decode()])


def test_decode_tells_what_it_gives():
    assert Compose([Decode()]).result == ImageKind("HWC", frozenset({"uint8", "uint16"}))
    assert Compose([Decode("LA")]).result == ImageKind("HWC", frozenset({"uint8"}), frozenset({2}))


def test_decode_pickles_and_shows_its_options():
    step = Decode("RGB", DecodeLimits(max_width=100), exif=True, fast=True)
    again = pickle.loads(pickle.dumps(step))
    assert repr(again) == repr(step)
    assert repr(step).startswith("Decode('RGB', limits=DecodeLimits(max_width=100,")
    assert repr(step).endswith("exif=True, fast=True)")
    with pytest.raises(ImageError, match="500 x 3 pixels"):
        again(encode(Image.new("L", (500, 3)), "PNG"))


def test_libraries_are_imported_when_they_are_needed():
    script = (
        "import sys, feedline.images\n"
        "from feedline.images import Decode\n"
        "Decode('RGB')\n"
        "print(sorted({'cv2', 'PIL', 'simplejpeg', 'cykooz_resizer'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("simplejpeg", "control_rgb.jpg"),
        ("PIL", "control_rgb.png"),
        ("PIL", "two_frames.gif"),
        ("PIL", "cmyk.tif"),
        ("cv2", "rgb.webp"),
    ],
)
def test_a_missing_library_is_told_with_the_command_that_installs_it(library, name, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'feedline\[images\]'"):
        Decode()(read(name))
