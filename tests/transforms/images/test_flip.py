"""Tests of `feedline.transforms.images.flip`."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.convert import ToChw, ToHwc
from feedline.transforms.images.flip import (
    HorizontalFlip,
    RandomHorizontalFlip,
    RandomRotate90,
    RandomVerticalFlip,
    Rotate90,
    VerticalFlip,
)
from feedline.transforms.images.resize import Resize
from feedline.transforms.protocol import ItemContext
from image_samples import EXTREME_SIZES, Scripted, context, noise

TURNS = {
    0: None,
    1: Image.Transpose.ROTATE_90,
    2: Image.Transpose.ROTATE_180,
    3: Image.Transpose.ROTATE_270,
}


def by_pillow(image, operation):
    return np.asarray(Image.fromarray(image).transpose(operation)) if operation is not None else image


@pytest.mark.parametrize(("height", "width"), EXTREME_SIZES)
def test_flips_and_turns_are_pillows(height, width):
    image = noise(height, width)
    np.testing.assert_array_equal(HorizontalFlip()(image), by_pillow(image, Image.Transpose.FLIP_LEFT_RIGHT))
    np.testing.assert_array_equal(VerticalFlip()(image), by_pillow(image, Image.Transpose.FLIP_TOP_BOTTOM))
    for k in range(-4, 8):
        np.testing.assert_array_equal(Rotate90(k)(image), by_pillow(image, TURNS[k % 4]))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("step", [HorizontalFlip(), VerticalFlip(), Rotate90(1), Rotate90(2)])
def test_every_dtype_and_layout_is_turned_alike(step, dtype, channels):
    image = noise(6, 9, channels, dtype)
    image.flags.writeable = False
    result = step(image)
    assert result.dtype == dtype
    planar = Compose([ToChw(), step, ToHwc()])(image)
    np.testing.assert_array_equal(planar, result)
    np.testing.assert_array_equal(step(image[::-1, ::2]), step(image[::-1, ::2].copy()))


@pytest.mark.parametrize(
    ("random", "fixed"),
    [(RandomHorizontalFlip, HorizontalFlip()), (RandomVerticalFlip, VerticalFlip())],
)
def test_random_flips_flip_with_their_probability(random, fixed):
    image = noise(4, 5)
    np.testing.assert_array_equal(random(0.3)(image, Scripted(0.29)), fixed(image))
    assert random(0.3)(image, Scripted(0.3)) is image
    assert not any(np.array_equal(random(1)(image, context(i)), image) for i in range(20))
    assert all(np.array_equal(random(0)(image, context(i)), image) for i in range(20))
    flipped = sum(not np.array_equal(random(0.5)(image, context(i)), image) for i in range(400))
    assert 150 < flipped < 250


def test_random_turns_are_all_alike_likely():
    image = noise(5, 5)
    turns = [Rotate90(k)(image) for k in range(4)]
    counts = [0, 0, 0, 0]
    for index in range(800):
        result = RandomRotate90()(image, context(index))
        counts[next(k for k in range(4) if np.array_equal(turns[k], result))] += 1
    assert min(counts) > 140


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_the_last_step_puts_its_image_into_the_batch(p):
    chain = Compose([Resize((128, 128)), RandomHorizontalFlip(p)])
    inputs = [noise(140, 150, seed=seed) for seed in range(6)]
    memory = BatchMemory(BufferPool(), 6)
    items = [chain(image, ItemContext(place, 0, 0, memory, place)) for place, image in enumerate(inputs)]
    block = memory.match(items)
    assert block is not None
    expected = [chain(image, ItemContext(place, 0, 0)) for place, image in enumerate(inputs)]
    np.testing.assert_array_equal(block, np.stack(expected))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: RandomHorizontalFlip(1.5), OptionError, "p is a probability, so between 0 and 1, not 1.5"),
        (lambda: RandomVerticalFlip(-0.1), OptionError, "p is a probability"),
        (lambda: RandomHorizontalFlip(float("nan")), OptionError, "p must be finite"),
        (lambda: RandomVerticalFlip("0.5"), TypeError, "p must be a number, not str"),
        (lambda: Rotate90(0.5), TypeError, "k must be an int, not float"),
    ],
)
def test_bad_arguments_are_refused_when_built(build, error, message):
    with pytest.raises(error, match=message):
        build()
