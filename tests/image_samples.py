"""Images for tests, made from nothing but a seed."""

from __future__ import annotations

import numpy as np

from feedline.transforms.protocol import ItemContext

#: (height, width) of pictures that break arithmetic.
EXTREME_SIZES = [(1, 1), (1, 1000), (1000, 1), (17, 33)]


def noise(height, width, channels=3, dtype="uint8", seed=0):
    """Return an image in which every pixel differs from its neighbours."""
    values = np.random.default_rng(seed).random((height, width, channels))
    if dtype == "float32":
        return values.astype(np.float32)
    return (values * (np.iinfo(dtype).max + 1)).astype(dtype)


def edges(height, width, channels=3, seed=0):
    """Return an image of nothing but 0 and 255: the hardest edges there are."""
    return (noise(height, width, channels, seed=seed) > 127).astype(np.uint8) * np.uint8(255)


def context(index=0, epoch=0, seed=0):
    """Return the context of one item."""
    return ItemContext(index, epoch, seed)


class Scripted(ItemContext):
    """A context whose generator gives the numbers that a test wrote down."""

    def __init__(self, *numbers):
        super().__init__(0, 0, 0)
        self.numbers = list(numbers)

    @property
    def rng(self):
        return self

    def random(self, count=None):
        if count is None:
            return self.numbers.pop(0)
        taken, self.numbers = self.numbers[:count], self.numbers[count:]
        return np.array(taken)
