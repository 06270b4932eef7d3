"""Random changes of colour: `ColorJitter` and `RandomGrayscale`, and the four adjustments that they are made of.

The meaning is that of torchvision 0.29. `uint8` images are computed as it computes Pillow images (`ImageEnhance`: Pillow's
luma, results cut to whole levels), `float32` images, whose range is 0 to 1, as it computes tensors. Hue is computed in
float32 for both, as for tensors; Pillow's 8-bit HSV would lose up to a dozen levels. Alpha is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.transforms.images.arguments import interval, probability, real
from feedline.transforms.images.engines import cv2_module
from feedline.transforms.images.image_type import Image, ImageStep
from feedline.transforms.protocol import ItemContext

__all__ = [
    "ColorJitter",
    "RandomGrayscale",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "colors_of",
    "gray_of",
    "uniform",
]

Span = tuple[float, float]


def uniform(context: ItemContext, span: Span) -> float:
    """Draw a float between the two ends of `span`."""
    return span[0] + (span[1] - span[0]) * context.uniform()


def gray_of(colors: Image) -> Image:
    """Return the luma of `colors` (height, width, 3), shape (height, width, 1), in its dtype."""
    if colors.dtype == np.uint8:
        red, green, blue = (colors[..., channel].astype(np.uint32) for channel in range(3))
        luma = (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
        return luma.astype(np.uint8)[..., None]
    weighted: Image = colors @ np.array([0.2989, 0.587, 0.114], np.float32)
    return weighted[..., None]


def _blend(first: Any, second: Image, factor: float) -> Image:
    """Return `first + factor * (second - first)`, cut to the range of `second`'s dtype."""
    base = np.asarray(first, np.float32)
    mixed = second.astype(np.float32)
    mixed -= base
    mixed *= np.float32(factor)
    mixed += base
    np.clip(mixed, 0.0, 255.0 if second.dtype == np.uint8 else 1.0, out=mixed)
    return mixed.astype(second.dtype, copy=False)


def _blend_with_level(level: float, colors: Image, factor: float) -> Image:
    if colors.dtype != np.uint8:
        return _blend(level, colors, factor)
    # All pixels of one value become one value: 256 of them are computed, the rest is looked up.
    table = _blend(level, np.arange(256, dtype=np.uint8), factor)
    return table[colors]


def adjust_brightness(colors: Image, factor: float) -> Image:
    """Return `colors` mixed with black: 0 is black, 1 the image, more is brighter."""
    return _blend_with_level(0.0, colors, factor)


def adjust_contrast(colors: Image, factor: float) -> Image:
    """Return `colors` mixed with the mean of its luma: 0 is flat gray, 1 the image, more has more contrast."""
    mean = float((gray_of(colors) if colors.shape[2] == 3 else colors).mean(dtype=np.float64))
    return _blend_with_level(int(mean + 0.5) if colors.dtype == np.uint8 else mean, colors, factor)


def adjust_saturation(colors: Image, factor: float) -> Image:
    """Return `colors` mixed with its luma: 0 is gray, 1 the image, more has stronger colours. Gray images stay as they are."""
    return colors if colors.shape[2] == 1 else _blend(gray_of(colors), colors, factor)


def adjust_hue(colors: Image, shift: float) -> Image:
    """Return `colors` with the hue turned by `shift` of a full circle (-0.5 to 0.5). Gray images stay as they are."""
    if colors.shape[2] == 1:
        return colors
    cv2 = cv2_module()
    whole = colors.dtype == np.uint8
    values = np.array(colors, np.float32, order="C")
    if whole:
        values /= np.float32(255)
    hsv: npt.NDArray[np.float32] = cv2.cvtColor(values, cv2.COLOR_RGB2HSV)
    hue = hsv[..., 0]
    hue += np.float32(shift * 360.0)
    hue %= np.float32(360)
    turned: Image = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
    if not whole:
        return turned
    # torchvision's way back: the 256 levels share the range from 0 to 1 evenly.
    turned *= np.float32(255.999)
    return np.clip(turned, 0, 255).astype(np.uint8)


def colors_of(step: ImageStep, image: Image, change: Callable[[Image], Image]) -> Image:
    """Return a new image in which `change` was applied to the colour channels, as HWC; alpha is copied."""
    pixels = image.transpose(1, 2, 0) if step.layout == "CHW" else image
    channels = pixels.shape[2]
    count = channels if channels in (1, 3) else channels - 1
    changed = change(pixels[..., :count])
    if count < channels:
        changed = np.concatenate([changed, pixels[..., count:]], axis=2)
    return changed.transpose(2, 0, 1) if step.layout == "CHW" else changed


def _span(name: str, value: Any, centre: float, least: float, most: float) -> Span | None:
    """Return the span that an argument of `ColorJitter` stands for; `None` if it changes nothing."""
    if isinstance(value, (tuple, list, np.ndarray)):
        low, high = interval("ColorJitter", name, value, least)
    else:
        spread = real("ColorJitter", name, value, 0.0)
        low, high = centre - spread, centre + spread
        if centre == 1.0:
            low = max(low, 0.0)
    if low < least or high > most:
        raise OptionError(f"ColorJitter: {name} must stay within {least:g} and {most:g}, not {value!r}")
    return None if low == high == centre else (low, high)


_ADJUSTMENTS = (
    ("brightness", adjust_brightness),
    ("contrast", adjust_contrast),
    ("saturation", adjust_saturation),
    ("hue", adjust_hue),
)


@dataclass(frozen=True)
class ColorJitter(ImageStep):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    Signature and meaning of torchvision's. `uint8` or `float32` (between 0 and 1), either layout; alpha is left alone;
    saturation and hue do nothing to gray images.

    Args:
        brightness, contrast, saturation: a number `v` for factors between `max(0, 1 - v)` and `1 + v`, or (low, high),
            not negative. A factor of 1 changes nothing.
        hue: a number up to 0.5 for shifts between `-hue` and `hue` of a full circle, or (low, high) within -0.5 and 0.5.

    Raises:
        OptionError: a bad value when built.

    Determinism: `context.rng` of its place in the chain: four numbers for the order, then one for each change.
    """

    brightness: Any = 0
    contrast: Any = 0
    saturation: Any = 0
    hue: Any = 0

    layout = None
    dtypes = frozenset({"uint8", "float32"})

    def __post_init__(self) -> None:
        for name, _ in _ADJUSTMENTS:
            value = getattr(self, name)
            if isinstance(value, (list, np.ndarray)):
                object.__setattr__(self, name, tuple(value))
            self._range(name)

    def _range(self, name: str) -> Span | None:
        if name == "hue":
            return _span(name, self.hue, 0.0, -0.5, 0.5)
        return _span(name, getattr(self, name), 1.0, 0.0, float("inf"))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the changed image."""
        order = np.argsort(context.rng.random(4), kind="stable")
        spans = [self._range(name) for name, _ in _ADJUSTMENTS]
        factors = [None if span is None else uniform(context, span) for span in spans]

        def change(colors: Image) -> Image:
            for place in order:
                factor = factors[place]
                if factor is not None:
                    colors = _ADJUSTMENTS[place][1](colors, factor)
            return colors

        return colors_of(self, image, change)


@dataclass(frozen=True)
class RandomGrayscale(ImageStep):
    """Makes the three colours one gray, with probability `p`; the number of channels stays.

    `uint8` or `float32`, either layout; alpha is left alone.

    Raises:
        OptionError: `p` is not between 0 and 1.

    Determinism: `context.rng` of its place in the chain; one number is drawn.
    """

    p: float = 0.1

    layout = None
    dtypes = frozenset({"uint8", "float32"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability("RandomGrayscale", self.p))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image, or a gray one of the same shape."""
        if context.uniform() >= self.p:
            return image
        return colors_of(
            self, image, lambda colors: np.repeat(gray_of(colors), 3, 2) if colors.shape[2] == 3 else colors
        )
