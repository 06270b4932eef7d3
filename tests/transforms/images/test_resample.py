"""Tests of `resize_into`, of all the ways that it has, and of the filters."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from feedline.errors import OptionError
from feedline.transforms.images import resample
from feedline.transforms.images.convolution import convolve_into, taps, vertical_first
from feedline.transforms.images.resample import check_filter, resize_into
from image_samples import EXTREME_SIZES, edges, noise

PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos3": Image.Resampling.LANCZOS,
}
# How many levels of 255 the antialiased result may be away from Pillow's.
TOLERANCE = {"nearest": 0, "bilinear": 2, "bicubic": 3, "lanczos3": 4}
SIZES = [*EXTREME_SIZES, (60, 80), (100, 40), (30, 200)]
NEW_SIZES = [(1, 1), (8, 8), (64, 3), (90, 90)]


def pillow_resized(image, size, filter):
    whole = Image.fromarray(image if image.shape[2] > 1 else image[..., 0])
    resized = whole.resize((size[1], size[0]), PILLOW[filter])
    return np.asarray(resized).reshape(*size, image.shape[2])


def resized(image, size, filter="bilinear", antialias=True, box=None):
    out = np.full((*size, image.shape[2]), 77, image.dtype)
    resize_into(image, box or (0, 0, *image.shape[:2]), out, filter, antialias)
    return out


def difference(first, second):
    return float(np.abs(first.astype(np.float64) - second).max())


@pytest.fixture(params=["fast", "fallback"])
def either_way(request, monkeypatch):
    """With the fast library, and as on a system that has no wheel of it."""
    if request.param == "fallback":
        monkeypatch.setattr(resample, "fast_engine", lambda: None)
    else:
        pytest.importorskip("cykooz_resizer")


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("filter", list(PILLOW))
@pytest.mark.parametrize("make", [noise, edges])
def test_antialiased_results_are_within_the_tolerance_of_pillow(make, filter, channels):
    for height, width in SIZES:
        image = make(height, width, channels)
        for size in NEW_SIZES:
            expected = pillow_resized(image, size, filter)
            assert difference(resized(image, size, filter), expected) <= TOLERANCE[filter], (
                height,
                width,
                size,
            )


@pytest.mark.usefixtures("either_way")
@settings(max_examples=60, deadline=None)
@given(
    old=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    new=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    filter=st.sampled_from(list(PILLOW)),
    seed=st.integers(0, 1000),
)
def test_any_size_to_any_size_is_within_the_tolerance_of_pillow(old, new, filter, seed):
    image = edges(*old, 3, seed)
    assert difference(resized(image, new, filter), pillow_resized(image, new, filter)) <= TOLERANCE[filter]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos3"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("uint8", 2), ("uint16", 2), ("float32", 5e-5)])
def test_all_ways_agree_with_the_plain_one(dtype, tolerance, filter, antialias, channels):
    for height, width in SIZES:
        image = noise(height, width, channels, dtype)
        for size in NEW_SIZES:
            expected = np.empty((*size, channels), dtype)
            convolve_into(image, (0, 0, height, width), expected, filter, antialias)
            result = resized(image, size, filter, antialias)
            assert difference(result, expected) <= tolerance, (height, width, size)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("filter", list(PILLOW))
def test_a_box_is_resized_as_if_it_were_cut_out_first(filter, antialias, dtype):
    image = noise(50, 70, 3, dtype)
    part = image[11:42, 5:60].copy()
    np.testing.assert_array_equal(
        resized(image, (24, 24), filter, antialias, box=(11, 5, 31, 55)),
        resized(part, (24, 24), filter, antialias),
    )


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos3"])
def test_a_box_may_begin_and_end_within_pixels(filter):
    image = np.linspace(0, 1, 200, dtype=np.float32)[None, :, None].repeat(40, 0)
    result = resized(image, (10, 10), filter, box=(3.25, 20.5, 30.5, 150.25))
    # A ramp stays a ramp: the middle of output pixel i lies at 20.5 + (i + 0.5) * 15.025 of the input.
    expected = (20.5 + (np.arange(10) + 0.5) * 15.025 - 0.5) / 199
    np.testing.assert_allclose(result[5, 2:-2, 0], expected[2:-2], atol=2e-3)


@pytest.mark.usefixtures("either_way")
def test_any_strides_are_taken_and_read_only_images_stay_as_they_are():
    image = noise(40, 60)
    image.flags.writeable = False
    for view in (image[::-1], image[:, ::-1], image[::2, ::3], image.transpose(1, 0, 2), image[..., ::-1]):
        for filter in PILLOW:
            for antialias in (True, False):
                np.testing.assert_array_equal(
                    resized(view, (9, 11), filter, antialias),
                    resized(view.copy(), (9, 11), filter, antialias),
                )


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos3"])
def test_the_result_may_lie_anywhere(filter):
    image = noise(40, 60)
    block = np.zeros((20, 30, 6), np.uint8)
    resize_into(image, (0, 0, 40, 60), block[::2, ::2, ::2], filter, True)
    np.testing.assert_array_equal(block[::2, ::2, ::2], resized(image, (10, 15), filter))
    assert not block[1::2].any()


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("antialias", [True, False])
def test_what_is_transparent_does_not_bleed(dtype, antialias):
    top = np.iinfo(dtype).max
    image = np.zeros((8, 8, 4), dtype)
    image[:, :4] = (top, 0, 0, top)  # red that is seen, green that is not
    image[:, 4:] = (0, top, 0, 0)
    result = resized(image, (5, 5), "bilinear", antialias)
    seen = result[..., 3] > top // 8
    assert seen.any()
    assert (result[seen][:, 1] <= top // 64).all()
    assert (result[seen][:, 0] >= top - top // 64).all()


def test_float_channels_are_resampled_on_their_own():
    image = noise(30, 40, 4, "float32")
    alone = [resized(image[..., [channel]], (12, 12)) for channel in range(4)]
    np.testing.assert_allclose(resized(image, (12, 12)), np.concatenate(alone, axis=2), atol=1e-6)


def test_constant_images_stay_constant():
    for dtype, level in (("uint8", 255), ("uint16", 65535), ("float32", 1.0)):
        image = np.full((37, 53, 3), level, dtype)
        for filter in PILLOW:
            for antialias in (True, False):
                result = resized(image, (19, 90), filter, antialias)
                np.testing.assert_allclose(result, level, rtol=1e-6)


def test_weights_of_every_pixel_sum_up_to_one():
    for filter in ("bilinear", "bicubic", "lanczos3"):
        for size, new in ((5, 17), (1000, 7), (1, 9), (9, 1)):
            places, weights = taps(size, 0, size, new, filter, True)
            assert places.shape == weights.shape
            assert places.min() >= 0
            assert places.max() < size
            np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "vertical"),
    [
        ((100, 100), (15, 58), True),
        ((100, 100), (15, 57), False),
        ((100, 50), (120, 10), False),
        ((400, 100), (15, 3), True),
        ((60, 100), (15, 78), True),
        ((60, 100), (15, 77), False),
    ],
)
def test_the_height_goes_first_where_it_shrinks_by_more_than_twice_as_many_pixels(old, new, vertical):
    assert vertical_first(old, new) is vertical


def test_threads_do_not_disturb_each_other():
    pytest.importorskip("cykooz_resizer")
    inputs = [noise(40 + seed, 50, seed=seed) for seed in range(4)]
    expected = [resized(image, (20 + seed, 20), "bicubic") for seed, image in enumerate(inputs)]
    wrong = []

    def work(seed):
        for _ in range(100):
            if not np.array_equal(resized(inputs[seed], (20 + seed, 20), "bicubic"), expected[seed]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(50, 60), (90, 60), (50, 90), (90, 90)])
def test_where_no_side_shrinks_there_is_nothing_to_smooth(rows, columns, antialias):
    image = noise(50, 60)
    result = resized(image, (rows, columns), "bilinear", antialias=antialias)
    expected = np.empty_like(result)
    convolve_into(image, (0, 0, 50, 60), expected, "bilinear", True)
    assert difference(result, expected) <= 1


def test_sides_too_long_for_opencv_are_resized_all_the_same():
    image = noise(1, 40_000, 1)
    result = resized(image, (1, 10), "bilinear", antialias=False)
    expected = np.empty((1, 10, 1), np.uint8)
    convolve_into(image, (0, 0, 1, 40_000), expected, "bilinear", False)
    assert difference(result, expected) <= 1


def test_an_unknown_filter_is_refused_with_the_choices():
    with pytest.raises(
        OptionError, match=r"Resize: filter must be one of 'nearest', 'bilinear', .* not 'area'"
    ):
        check_filter("area", "Resize")
