"""Flips and quarter turns, which lose nothing, whatever the layout.

`HorizontalFlip`, `VerticalFlip`, `RandomHorizontalFlip`, `RandomVerticalFlip`, `Rotate90`, `RandomRotate90`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feedline.transforms.images.arguments import probability, whole
from feedline.transforms.images.engines import cv2_module, packed
from feedline.transforms.images.image_type import Image, ImageStep
from feedline.transforms.protocol import ItemContext

__all__ = [
    "HorizontalFlip",
    "RandomHorizontalFlip",
    "RandomRotate90",
    "RandomVerticalFlip",
    "Rotate90",
    "VerticalFlip",
]


def rows_and_columns(step: ImageStep) -> tuple[int, int]:
    """Return the axes of the rows and of the columns in the step's layout."""
    return (1, 2) if step.layout == "CHW" else (0, 1)


def mirrored(image: Image, step: ImageStep, context: ItemContext) -> Image:
    """Return `image` with left and right changed over.

    A new array for HWC: pixels that go backwards in memory slow down every step that follows, and OpenCV turns them in
    a twentieth of the time that NumPy needs.
    """
    if step.layout == "CHW":
        return np.flip(image, 2)
    flipped = context.result(image.shape, image.dtype)
    cv2_module().flip(packed(image), 1, dst=flipped)
    return flipped


class _AnyLayout(ImageStep):
    """A step that works on HWC, and on CHW where the chain says so."""

    layout = None


@dataclass(frozen=True)
class HorizontalFlip(_AnyLayout):
    """Mirrors left and right.

    Determinism: no randomness.

    >>> HorizontalFlip()(np.array([[[1], [2]]], np.uint8)).ravel()
    array([2, 1], dtype=uint8)
    """

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the mirrored image."""
        return mirrored(image, self, context)

    def draw(self, context: ItemContext) -> bool:
        """Tell that the image is to be mirrored."""
        return True


@dataclass(frozen=True)
class VerticalFlip(_AnyLayout):
    """Mirrors top and bottom.

    Determinism: no randomness.
    """

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the mirrored image, a view."""
        return np.flip(image, rows_and_columns(self)[0])


@dataclass(frozen=True)
class RandomHorizontalFlip(_AnyLayout):
    """Mirrors left and right with probability `p`.

    Raises:
        OptionError: `p` is not between 0 and 1.

    Determinism: `context.rng` of its place in the chain; one number is drawn.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability("RandomHorizontalFlip", self.p))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image, or its mirror image."""
        if self.draw(context):
            return mirrored(image, self, context)
        if not context.last or self.layout == "CHW":
            return image
        # Into the batch at once, as all of its images must lie there, or they are copied later.
        same = context.result(image.shape, image.dtype)
        same[...] = image
        return same

    def draw(self, context: ItemContext) -> bool:
        """Draw whether the image is to be mirrored."""
        return context.uniform() < self.p


@dataclass(frozen=True)
class RandomVerticalFlip(_AnyLayout):
    """Mirrors top and bottom with probability `p`.

    Raises:
        OptionError: `p` is not between 0 and 1.

    Determinism: `context.rng` of its place in the chain; one number is drawn.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability("RandomVerticalFlip", self.p))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image, or a mirrored view of it."""
        return np.flip(image, rows_and_columns(self)[0]) if context.uniform() < self.p else image


@dataclass(frozen=True)
class Rotate90(_AnyLayout):
    """Turns the image by `k` quarters, counter-clockwise.

    Args:
        k: any int; negative ones turn clockwise, and only `k % 4` counts.

    Determinism: no randomness.

    >>> Rotate90()(np.array([[[1], [2]]], np.uint8))[..., 0]
    array([[2],
           [1]], dtype=uint8)
    """

    k: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("Rotate90", "k", self.k, -(2**63)))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the turned image, a view."""
        return np.rot90(image, self.k % 4, rows_and_columns(self))


@dataclass(frozen=True)
class RandomRotate90(_AnyLayout):
    """Turns the image by 0, 1, 2 or 3 quarters, all equally likely.

    Images that are not square then come in two shapes; a batch has one, so crop to a square before or after.

    Determinism: `context.rng` of its place in the chain; one number is drawn.
    """

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the turned image, a view."""
        return np.rot90(image, int(context.uniform() * 4), rows_and_columns(self))
