"""`RandomErasing`, as torchvision has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.errors import OptionError
from feedline.transforms.images.arguments import interval, probability
from feedline.transforms.images.color_jitter import uniform
from feedline.transforms.images.image_type import Image, ImageKind, ImageStep
from feedline.transforms.images.pad import check_fill, fill_kind
from feedline.transforms.protocol import ItemContext

__all__ = ["RandomErasing"]


@dataclass(frozen=True)
class RandomErasing(ImageStep):
    """Overwrites a random rectangle, with probability `p`.

    The algorithm and the defaults of torchvision 0.29: ten times an area (a share of the image's, from `scale`) and an
    aspect ratio (height by width, log-uniform in `ratio`) are drawn; the first that fits goes to a random place;
    if none does, nothing is erased. `uint8` or `float32`, either layout; alpha is left alone.

    Args:
        p: the probability.
        scale: lower and upper bound of the area.
        ratio: lower and upper bound of the aspect ratio.
        value: what is written: one value, one for each colour channel, or `"random"`: numbers of a normal distribution
            (mean 0, standard deviation 1) for `float32`, all 256 levels alike for `uint8`.

    Raises:
        OptionError: a bad value when built; when called, or when the chain is built and the dtype is known by then, a
            `value` that does not suit dtype or channels.

    Determinism: `context.rng` of its place in the chain.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Any = 0

    layout = None
    dtypes = frozenset({"uint8", "float32"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability("RandomErasing", self.p))
        object.__setattr__(self, "scale", interval("RandomErasing", "scale", self.scale, 0.0))
        object.__setattr__(self, "ratio", interval("RandomErasing", "ratio", self.ratio, 0.0))
        if self.scale[1] > 1.0:
            raise OptionError(
                f"RandomErasing: scale is a share of the area, so at most 1, not {self.scale!r}"
            )
        if self.ratio[0] <= 0.0:
            raise OptionError(f"RandomErasing: ratio must be above 0, not {self.ratio!r}")
        if isinstance(self.value, str):
            if self.value != "random":
                raise OptionError(f"RandomErasing: value must be numbers or 'random', not {self.value!r}")
        else:
            object.__setattr__(self, "value", check_fill("RandomErasing", self.value, "value"))

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return `kind`; a `value` that suits none of its dtypes is an error."""
        if self.value != "random":
            colors = frozenset(count if count in (1, 3) else count - 1 for count in kind.channels)
            fill_kind(self, self.value, kind.with_(channels=colors), "value")
        return kind

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image, or a copy with a rectangle overwritten."""
        if context.uniform() >= self.p:
            return image
        planar = self.layout == "CHW"
        pixels = image.transpose(1, 2, 0) if planar else image
        box = self._box(pixels.shape[0], pixels.shape[1], context)
        if box is None:
            return image
        erased = pixels.copy()
        top, left, rows, columns = box
        channels = pixels.shape[2]
        colors = channels if channels in (1, 3) else channels - 1
        target = erased[top : top + rows, left : left + columns, :colors]
        target[...] = self._content(target, context)
        return erased.transpose(2, 0, 1) if planar else erased

    def _box(self, height: int, width: int, context: ItemContext) -> tuple[int, int, int, int] | None:
        logs = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = height * width * uniform(context, self.scale)
            aspect = math.exp(uniform(context, logs))
            rows, columns = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if rows < height and columns < width:
                top = int(context.uniform() * (height - rows + 1))
                left = int(context.uniform() * (width - columns + 1))
                return top, left, rows, columns
        return None

    def _content(self, target: Image, context: ItemContext) -> Any:
        if self.value != "random":
            kind = ImageKind("HWC", frozenset({target.dtype.name}), frozenset({target.shape[2]}))
            fill_kind(self, self.value, kind, "value")
            return self.value
        if target.dtype == np.uint8:
            return (context.rng.random(target.shape, np.float32) * 256).astype(np.uint8)
        return context.rng.standard_normal(target.shape, np.float32)
