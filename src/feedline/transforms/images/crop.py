"""Crops: `Crop`, `CenterCrop`, `RandomCrop`, `RandomResizedCrop`, as torchvision has them.

All are regions (see `Region` in `image_type.py`): they tell the box that they need before the image is decoded.
Boxes are `(top, left, height, width)` in pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from feedline.errors import OptionError
from feedline.transforms.images.arguments import flag, height_width, interval, whole
from feedline.transforms.images.convolution import Filter
from feedline.transforms.images.image_type import Image, ImageKind, ImageStep
from feedline.transforms.images.pad import Fill, Padding, check_fill, check_padding, fill_kind, pad_image
from feedline.transforms.images.resample import check_filter, resize_into, smooths
from feedline.transforms.protocol import ItemContext

__all__ = ["CenterCrop", "Crop", "RandomCrop", "RandomResizedCrop"]

Box = tuple[int, int, int, int]


def cut(image: Image, box: tuple[float, float, float, float]) -> Image:
    """Return the view of `image`, HWC, at `box`, whose numbers are whole."""
    top, left, height, width = (int(number) for number in box)
    return image[top : top + height, left : left + width]


def below(context: ItemContext, count: int) -> int:
    """Draw an int from 0 to `count - 1`, all equally likely."""
    return int(context.uniform() * count)


class _Cut(ImageStep):
    """The half of a region that crops without resizing share."""

    def least_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size itself: a crop shows every pixel."""
        return height, width

    def from_part(self, part: Image, box: tuple[float, float, float, float], context: ItemContext) -> Image:
        """Return the part at `box`, a view."""
        return cut(part, box)


@dataclass(frozen=True)
class Crop(_Cut):
    """Cuts one rectangle, at a fixed place, out of HWC images; the result is a view.

    Args:
        top, left: where it begins, from 0.
        height, width: its size, 1 or more.

    Raises:
        OptionError: a bad value when built.
        ValueError: when called, the rectangle is not all within the image.

    Determinism: no randomness.

    >>> Crop(1, 0, 1, 2)(np.arange(6, dtype=np.uint8).reshape(3, 2, 1)).ravel()
    array([2, 3], dtype=uint8)
    """

    top: int
    left: int
    height: int
    width: int

    def __post_init__(self) -> None:
        for name, least in (("top", 0), ("left", 0), ("height", 1), ("width", 1)):
            object.__setattr__(self, name, whole("Crop", name, getattr(self, name), least))

    def box(self, height: int, width: int, context: ItemContext) -> Box:
        """Return the rectangle, checked against an image of that size."""
        if self.top + self.height > height or self.left + self.width > width:
            raise ValueError(
                f"{self!r} reaches out of an image of {height} x {width} (height x width): it needs rows up to "
                f"{self.top + self.height} and columns up to {self.left + self.width}"
            )
        return self.top, self.left, self.height, self.width

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the rectangle."""
        return cut(image, self.box(image.shape[0], image.shape[1], context))


@dataclass(frozen=True)
class CenterCrop(_Cut):
    """Cuts the middle out of HWC images; a smaller image is padded with zeros, as torchvision does.

    Args:
        height, width: the size of the result; `width=None` for a square.

    Raises:
        OptionError: a bad value when built.

    Determinism: no randomness. Half pixels are rounded to even numbers, as torchvision rounds them.
    """

    height: int
    width: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "height", whole("CenterCrop", "height", self.height, 1))
        width = self.height if self.width is None else whole("CenterCrop", "width", self.width, 1)
        object.__setattr__(self, "width", width)

    def _size(self) -> tuple[int, int]:
        return self.height, self.height if self.width is None else self.width

    def box(self, height: int, width: int, context: ItemContext) -> Box | None:
        """Return the middle of an image of that size; `None` if it must be padded."""
        rows, columns = self._size()
        if rows > height or columns > width:
            return None
        return round((height - rows) / 2), round((width - columns) / 2), rows, columns

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the middle, a view where nothing is padded."""
        rows, columns = self._size()
        more_rows, more_columns = max(rows - image.shape[0], 0), max(columns - image.shape[1], 0)
        sides = (more_columns // 2, more_rows // 2, (more_columns + 1) // 2, (more_rows + 1) // 2)
        padded = pad_image(self, image, sides)
        box = self.box(padded.shape[0], padded.shape[1], context)
        return padded if box is None else cut(padded, box)


@dataclass(frozen=True)
class RandomCrop(_Cut):
    """Cuts a rectangle of one size out of HWC images, at a random place.

    Signature and meaning are those of torchvision 0.29: first `padding` is added, then, with `pad_if_needed`, what is
    still missing, on both sides; then all places are equally likely.

    Args:
        size: an int (a square), or (height, width).
        padding: pixels around the image: an int, (left and right, top and bottom), or (left, top, right, bottom).
        pad_if_needed: pad smaller images; without it they are an error.
        fill, padding_mode: as in `Pad`.

    Raises:
        OptionError: a bad value when built, or a `fill` that does not suit the image.
        ValueError: when called, the image is smaller than `size`.

    Determinism: `context.rng` of its place in the chain.
    """

    size: Any
    padding: Any = None
    pad_if_needed: bool = False
    fill: Fill = 0
    padding_mode: Padding = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", height_width("RandomCrop", self.size))
        object.__setattr__(self, "padding", _padding(self.padding))
        object.__setattr__(self, "pad_if_needed", flag("RandomCrop", "pad_if_needed", self.pad_if_needed))
        object.__setattr__(self, "fill", check_fill("RandomCrop", self.fill))
        check_padding("RandomCrop", self.padding_mode)

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return `kind`, narrowed to what `fill` suits where something may be padded."""
        pads = self.padding is not None or self.pad_if_needed
        return fill_kind(self, self.fill, kind) if pads and self.padding_mode == "constant" else kind

    def _sides(self, height: int, width: int) -> tuple[int, int, int, int]:
        left, top, right, bottom = self.padding or (0, 0, 0, 0)
        if self.pad_if_needed:
            rows = max(self.size[0] - height - top - bottom, 0)
            columns = max(self.size[1] - width - left - right, 0)
            left, top, right, bottom = left + columns, top + rows, right + columns, bottom + rows
        return left, top, right, bottom

    def _draw(self, height: int, width: int, context: ItemContext) -> Box:
        rows, columns = self.size
        if rows > height or columns > width:
            raise ValueError(
                f"{self!r} needs an image of at least {rows} x {columns} (height x width), not {height} x {width}: "
                f"use pad_if_needed=True, padding, or resize it before"
            )
        if (rows, columns) == (height, width):
            return 0, 0, rows, columns
        return below(context, height - rows + 1), below(context, width - columns + 1), rows, columns

    def box(self, height: int, width: int, context: ItemContext) -> Box | None:
        """Draw the rectangle for an image of that size; `None` if it must be padded."""
        return None if any(self._sides(height, width)) else self._draw(height, width, context)

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the rectangle, a view where nothing is padded."""
        sides = self._sides(*image.shape[:2])
        padded = pad_image(self, image, sides, self.padding_mode, self.fill) if any(sides) else image
        return cut(padded, self._draw(padded.shape[0], padded.shape[1], context))


def _padding(padding: Any) -> tuple[int, int, int, int] | None:
    if padding is None:
        return None
    parts = [padding] if not isinstance(padding, (tuple, list)) else list(padding)
    parts = [whole("RandomCrop", "padding", part) for part in parts]
    if len(parts) not in (1, 2, 4):
        raise OptionError(
            f"RandomCrop: padding must be 1, 2 or 4 ints (left, top, right, bottom), not {padding!r}"
        )
    left, top, right, bottom = parts * (4 // len(parts))
    return left, top, right, bottom


@dataclass(frozen=True)
class RandomResizedCrop(ImageStep):
    """Cuts out a rectangle of random area and aspect ratio, and resizes it to one size; HWC.

    The algorithm and the defaults of torchvision 0.29: ten times an area (a share of the image's, from `scale`) and an
    aspect ratio (width by height, log-uniform in `ratio`) are drawn; the first that fits goes to a random place;
    if none does, it is the largest middle part whose aspect ratio is within `ratio`.

    Args:
        size: an int (a square), or (height, width).
        scale: lower and upper bound of the area.
        ratio: lower and upper bound of the aspect ratio.
        filter: `"nearest"`, `"bilinear"`, `"bicubic"` or `"lanczos3"`.
        antialias: widen the filter where the image shrinks, as Pillow does.

    Raises:
        OptionError: a bad value when built.

    Determinism: `context.rng` of its place in the chain; the rectangle depends on the image's size alone.
    """

    size: Any
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", height_width("RandomResizedCrop", self.size))
        object.__setattr__(self, "scale", interval("RandomResizedCrop", "scale", self.scale, 0.0))
        object.__setattr__(self, "ratio", interval("RandomResizedCrop", "ratio", self.ratio, 0.0))
        if self.ratio[0] <= 0.0:
            raise OptionError(f"RandomResizedCrop: ratio must be above 0, not {self.ratio!r}")
        check_filter(self.filter, "RandomResizedCrop")
        flag("RandomResizedCrop", "antialias", self.antialias)

    def box(self, height: int, width: int, context: ItemContext) -> Box:
        """Draw the rectangle for an image of that size."""
        random = context.uniform
        low, high = self.scale
        slim, wide = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = height * width * (low + (high - low) * random())
            aspect = math.exp(slim + (wide - slim) * random())
            columns, rows = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < columns <= width and 0 < rows <= height:
                return below(context, height - rows + 1), below(context, width - columns + 1), rows, columns
        return self._middle(height, width)

    def _middle(self, height: int, width: int) -> Box:
        slim, wide = self.ratio
        rows, columns = height, width
        if width / height < slim:
            rows = max(round(width / slim), 1)
        elif width / height > wide:
            columns = max(round(height * wide), 1)
        return (height - rows) // 2, (width - columns) // 2, rows, columns

    def least_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the least size at which a box of that size may be decoded."""
        return self.size if smooths(self.filter, self.antialias) else (height, width)

    def from_part(self, part: Image, box: tuple[float, float, float, float], context: ItemContext) -> Image:
        """Return the part at `box`, resized."""
        out = context.result((*self.size, part.shape[2]), part.dtype)
        resize_into(part, box, out, self.filter, self.antialias)
        return out

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the resized rectangle."""
        return self.from_part(image, self.box(image.shape[0], image.shape[1], context), context)
