"""`Resize`: an image of another size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.errors import OptionError
from feedline.transforms.images.arguments import flag, height_width, whole
from feedline.transforms.images.convolution import Filter
from feedline.transforms.images.image_type import Image, ImageStep
from feedline.transforms.images.resample import check_filter, resize_into, smooths
from feedline.transforms.protocol import ItemContext

__all__ = ["Resize", "resized_size"]

# A side computed from a ratio may be anything: a picture of 1 x 16384 with its shorter side made 224 has 822 million
# pixels. Sizes that a user wrote down are not limited.
_MAX_RATIO_BYTES = 1 << 30


def resized_size(height: float, width: float, size: int | None, max_size: int | None) -> tuple[int, int]:
    """Return (height, width) after the shorter side was made `size`, by torchvision's rules.

    The longer side is `int(size * longer / shorter)`. If that is more than `max_size`, the longer side becomes
    `max_size` and the shorter one `int(max_size * shorter / longer)` of these. With `size=None` the longer side becomes
    `max_size` in any case. No side is ever below 1.
    """
    short, long = min(height, width), max(height, width)
    new_short, new_long = (short, long) if size is None else (size, int(size * long / short))
    if max_size is not None and (size is None or new_long > max_size):
        new_short, new_long = int(max_size * new_short / new_long), max_size
    new = max(int(new_short), 1), int(new_long)
    return (new[1], new[0]) if width <= height else new


@dataclass(frozen=True)
class Resize(ImageStep):
    """Makes HWC images another size.

    Args:
        size: `(height, width)`; or an int, the new length of the shorter side, the aspect ratio kept; or `None`, then
            `max_size` is the new length of the longer side.
        max_size: with an int as `size`, what the longer side may have at most (then the shorter one has less).
        filter: `"nearest"` (samples pixel centres), `"bilinear"`, `"bicubic"` (a = -0.5) or `"lanczos3"`.
        antialias: widen the filter where the image shrinks, as Pillow always does.

    The result has the image's dtype and channels. Antialiased, it is within 2, 3 and 4 levels (of 255) of Pillow's for
    the bilinear, bicubic and Lanczos filters. In `uint8` and `uint16` images with two or four channels the last one is
    alpha, and colours count by it, as in Pillow.

    Raises:
        OptionError: a bad value when built.
        ValueError: when called, the ratio would make the result larger than 1 GiB; use `max_size`.

    Determinism: no randomness.

    >>> Resize(2)(np.zeros((4, 6, 3), np.uint8)).shape
    (2, 3, 3)
    """

    size: Any
    max_size: int | None = None
    filter: Filter = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self._checked_size())
        if self.max_size is not None:
            object.__setattr__(self, "max_size", whole("Resize", "max_size", self.max_size, 1))
            if isinstance(self.size, tuple):
                raise OptionError(
                    "Resize: max_size is for an int as size; (height, width) says all there is to say"
                )
            if self.size is not None and self.max_size <= self.size:
                raise OptionError(
                    f"Resize: max_size must be more than size, the new length of the shorter side, "
                    f"not max_size={self.max_size} with size={self.size}"
                )
        elif self.size is None:
            raise OptionError("Resize: size=None needs max_size, the new length of the longer side")
        check_filter(self.filter, "Resize")
        flag("Resize", "antialias", self.antialias)

    def _checked_size(self) -> int | tuple[int, int] | None:
        size = self.size
        if size is None:
            return None
        if isinstance(size, (Sequence, np.ndarray)) and not isinstance(size, (str, bytes)):
            # A sequence of one is an int in torchvision, too.
            return whole("Resize", "size", size[0], 1) if len(size) == 1 else height_width("Resize", size)
        return whole("Resize", "size", size, 1)

    def box(self, height: int, width: int, context: ItemContext) -> tuple[int, int, int, int]:
        """Return the whole image, checked that its result has a sane size."""
        rows, columns = self.size_of(height, width)
        if not isinstance(self.size, tuple) and rows * columns > _MAX_RATIO_BYTES // 4:
            raise ValueError(
                f"{self!r} would make {rows} x {columns} (height x width) of an image of {height} x {width}: "
                f"limit the longer side with max_size"
            )
        return 0, 0, height, width

    def size_of(self, height: float, width: float) -> tuple[int, int]:
        """Return (height, width) of what becomes of an image of that size.

        The size of a part that was decoded at a reduced scale need not be whole; only its ratio matters.
        """
        if isinstance(self.size, tuple):
            rows, columns = self.size
            return rows, columns
        return resized_size(height, width, self.size, self.max_size)

    def least_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the least size at which an image of that size may be decoded."""
        return self.size_of(height, width) if smooths(self.filter, self.antialias) else (height, width)

    def from_part(self, part: Image, box: tuple[float, float, float, float], context: ItemContext) -> Image:
        """Return the part at `box`, resized to what becomes of an image of its size; a view if that is its size."""
        size = self.size_of(box[2], box[3])
        if size == (box[2], box[3]) and float(box[0]).is_integer() and float(box[1]).is_integer():
            return part[int(box[0]) : int(box[0]) + size[0], int(box[1]) : int(box[1]) + size[1]]
        out = context.result((*size, part.shape[2]), part.dtype)
        resize_into(part, box, out, self.filter, self.antialias)
        return out

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image of the new size; a view of itself if that is its own."""
        return self.from_part(image, self.box(image.shape[0], image.shape[1], context), context)
