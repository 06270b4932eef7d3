"""`Pad` and `PadTo`: more pixels around an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.transforms.images.arguments import real, whole
from feedline.transforms.images.image_type import Image, ImageKind, ImageStep
from feedline.transforms.protocol import ItemContext

__all__ = ["Fill", "Pad", "PadTo", "Padding", "check_fill", "check_padding", "fill_kind", "pad_image"]

Padding = Literal["constant", "edge", "reflect", "symmetric"]
PADDINGS: tuple[str, ...] = ("constant", "edge", "reflect", "symmetric")
Fill = float | tuple[float, ...]


def check_fill(step: str, fill: Any, name: str = "fill") -> Fill:
    """Return `fill` as a number, or as a tuple of one to four."""
    if isinstance(fill, (Sequence, np.ndarray)) and not isinstance(fill, (str, bytes)):
        if not 1 <= len(fill) <= 4:
            raise OptionError(
                f"{step}: {name} must be one value, or one for each of 1 to 4 channels, not {fill!r}"
            )
        return tuple(_number(real(step, f"{name}[{place}]", value)) for place, value in enumerate(fill))
    return _number(real(step, name, fill))


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value


def check_padding(step: str, mode: Any) -> None:
    """Raise an `OptionError` unless `mode` is a way to pad."""
    if mode not in PADDINGS:
        choices = ", ".join(repr(name) for name in PADDINGS)
        raise OptionError(f"{step}: mode must be one of {choices}, not {mode!r}")


def _fits(fill: Fill, dtype: str) -> bool:
    values = fill if isinstance(fill, tuple) else (fill,)
    if dtype == "float32":
        return all(abs(value) <= float(np.finfo(np.float32).max) for value in values)
    return all(value == int(value) and 0 <= value <= np.iinfo(dtype).max for value in values)


def fill_kind(step: ImageStep, fill: Fill, kind: ImageKind, name: str = "fill") -> ImageKind:
    """Return `kind` narrowed to the dtypes and numbers of channels that `fill` suits.

    Raises:
        OptionError: none is left.
    """
    dtypes = frozenset(dtype for dtype in kind.dtypes if _fits(fill, dtype))
    if not dtypes:
        raise OptionError(
            f"{step!r}: {name}={fill!r} can't be represented in the image's dtype, {' or '.join(sorted(kind.dtypes))}"
        )
    channels = kind.channels & {len(fill)} if isinstance(fill, tuple) and len(fill) > 1 else kind.channels
    if not channels:
        raise OptionError(
            f"{step!r}: {name}={fill!r} has one value for each of {len(fill) if isinstance(fill, tuple) else 1} "
            f"channels, but the image has {' or '.join(str(count) for count in sorted(kind.channels))}"
        )
    return kind.with_(dtypes=dtypes, channels=channels)


def pad_image(
    step: ImageStep,
    image: Image,
    sides: tuple[int, int, int, int],
    mode: Padding = "constant",
    fill: Fill = 0,
) -> Image:
    """Return `image`, HWC, with (left, top, right, bottom) more pixels; itself where there are none to add.

    Raises:
        OptionError: `fill` does not suit the image's dtype or channels.
    """
    left, top, right, bottom = sides
    height, width, channels = image.shape
    if mode == "constant":
        fill_kind(step, fill, ImageKind("HWC", frozenset({image.dtype.name}), frozenset({channels})))
    if not any(sides):
        return image
    if mode != "constant":
        rows = np.pad(np.arange(height), (top, bottom), mode=mode)
        columns = np.pad(np.arange(width), (left, right), mode=mode)
        return np.ascontiguousarray(image[rows][:, columns])
    padded: npt.NDArray[Any] = np.empty((top + height + bottom, left + width + right, channels), image.dtype)
    for border in (padded[:top], padded[top + height :], padded[:, :left], padded[:, left + width :]):
        border[...] = np.asarray(fill, image.dtype)
    padded[top : top + height, left : left + width] = image
    return padded


@dataclass(frozen=True)
class Pad(ImageStep):
    """Adds rows and columns at the four sides of an HWC image.

    Args:
        left, top, right, bottom: how many pixels, 0 or more.
        mode: `"constant"` (with `fill`), `"edge"` (the border's pixels again), `"reflect"` (mirrored at the border's
            pixels, which are not repeated) or `"symmetric"` (mirrored, with the border's pixels repeated). More pixels
            than the image has are reflected to and fro.
        fill: one value, or one for each channel, which the image's dtype can represent.

    Raises:
        OptionError: a bad value when built; when called, or when the chain is built and the dtype is known by then, a
            `fill` that does not suit dtype or channels.

    Determinism: no randomness.

    >>> Pad(1, 0, 1, 0, fill=9)(np.zeros((1, 1, 1), np.uint8))[..., 0]
    array([[9, 0, 9]], dtype=uint8)
    """

    left: int
    top: int
    right: int
    bottom: int
    mode: Padding = "constant"
    fill: Fill = 0

    def __post_init__(self) -> None:
        for name in ("left", "top", "right", "bottom"):
            object.__setattr__(self, name, whole("Pad", name, getattr(self, name)))
        check_padding("Pad", self.mode)
        object.__setattr__(self, "fill", check_fill("Pad", self.fill))

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return `kind`, narrowed to what `fill` suits."""
        return fill_kind(self, self.fill, kind) if self.mode == "constant" else kind

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the larger image."""
        return pad_image(self, image, (self.left, self.top, self.right, self.bottom), self.mode, self.fill)


@dataclass(frozen=True)
class PadTo(ImageStep):
    """Pads HWC images of any size up to one size.

    Args:
        height, width: the size of the result.
        anchor: where the image goes: `"top_left"`, or `"center"` (an odd pixel goes to the bottom and the right).
        fill: one value, or one for each channel, which the image's dtype can represent.

    Raises:
        OptionError: a bad value when built, or a `fill` that does not suit the image.
        ValueError: when called, with an image that is higher or wider.

    Determinism: no randomness.
    """

    height: int
    width: int
    anchor: Literal["top_left", "center"] = "top_left"
    fill: Fill = 0

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            object.__setattr__(self, name, whole("PadTo", name, getattr(self, name), 1))
        if self.anchor not in ("top_left", "center"):
            raise OptionError(f"PadTo: anchor must be 'top_left' or 'center', not {self.anchor!r}")
        object.__setattr__(self, "fill", check_fill("PadTo", self.fill))

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return `kind`, narrowed to what `fill` suits."""
        return fill_kind(self, self.fill, kind)

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the image of the full size."""
        height, width = image.shape[:2]
        rows, columns = self.height - height, self.width - width
        if rows < 0 or columns < 0:
            raise ValueError(
                f"{self!r} refuses an image of {height} x {width} (height x width): it is larger than "
                f"{self.height} x {self.width}; crop or resize it before"
            )
        left, top = (columns // 2, rows // 2) if self.anchor == "center" else (0, 0)
        return pad_image(self, image, (left, top, columns - left, rows - top), "constant", self.fill)
