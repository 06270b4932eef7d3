"""Tests of `feedline.transforms.images.blur`."""

from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.blur import GaussianBlur
from feedline.transforms.images.convert import ToChw, ToHwc
from image_samples import EXTREME_SIZES, Scripted, context, noise


def blurred_by_the_book(image, size, sigma):
    """torchvision's `gaussian_blur`: reflect, then weigh by the normalised outer product of two Gaussians."""
    kernels = []
    for count in size:
        places = np.linspace(-(count - 1) / 2, (count - 1) / 2, count)
        weights = np.exp(-0.5 * (places / sigma) ** 2)
        kernels.append(weights / weights.sum())
    across, down = kernels
    x, y = size[0] // 2, size[1] // 2
    padded = np.pad(image.astype(np.float64), ((y, y), (x, x), (0, 0)), mode="reflect")
    result = np.zeros(image.shape)
    for row in range(size[1]):
        for column in range(size[0]):
            weight = down[row] * across[column]
            result += weight * padded[row : row + image.shape[0], column : column + image.shape[1]]
    return result


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (5, 9), (23, 3)])
@pytest.mark.parametrize(("height", "width"), [*EXTREME_SIZES, (30, 40)])
def test_blur_is_that_of_torchvision(height, width, size):
    image = noise(height, width, 3, "float32")
    step = GaussianBlur(size, (0.5, 1.5))
    expected = blurred_by_the_book(image, size, 0.5 + 0.4)
    np.testing.assert_allclose(step(image, Scripted(0.4)), expected, atol=1e-5)
    whole = noise(height, width)
    expected = blurred_by_the_book(whole, size, 0.9)
    result = step(whole, Scripted(0.4))
    assert result.dtype == np.uint8
    assert np.abs(result - expected).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_alpha_and_input_are_left_alone_in_either_layout(channels, dtype):
    image = noise(9, 11, channels, dtype)
    image.flags.writeable = False
    step = GaussianBlur(3, 1.0)
    result = step(image, context())
    assert result.shape == image.shape
    assert not np.array_equal(result[..., 0], image[..., 0])
    if channels in (2, 4):
        np.testing.assert_array_equal(result[..., -1], image[..., -1])
    np.testing.assert_array_equal(Compose([ToChw(), step, ToHwc()], plan=False)(image, context()), result)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((4,), OptionError, "kernel_size must be odd"),
        (((3, 0),), OptionError, r"kernel_size\[1\] must be at least 1"),
        ((3, 0.0), OptionError, "sigma must be above 0"),
        ((3, (2.0, 1.0)), OptionError, r"sigma must be \(low, high\)"),
        ((3, (1.0,)), OptionError, "sigma must have 2 numbers"),
        ((3.0,), TypeError, "kernel_size must be an int"),
    ],
)
def test_bad_arguments_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        GaussianBlur(*arguments)
