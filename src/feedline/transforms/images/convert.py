"""Conversions at the end of a chain: `ToFloat`, `Normalize`, `ToChw`, `ToHwc`; and all of them at once.

Note [tables]
    A `uint8` pixel has 256 values, so what `ToFloat` and `Normalize` make of it is a table of 256 float32 a channel,
    computed with the very operations of the steps. Looking pixels up gives bit for bit what the steps give, in one
    pass, at nearly the speed of a multiplication (which would round differently).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.transforms.images.arguments import numbers_of, real
from feedline.transforms.images.engines import cv2_module, packed
from feedline.transforms.images.image_type import Image, ImageKind, ImageStep, Layout
from feedline.transforms.protocol import ItemContext

__all__ = [
    "Normalize",
    "ToChw",
    "ToFloat",
    "ToHwc",
    "float_into",
    "look_up_into",
    "normalize_into",
    "tables_of",
]

Floats = tuple[float, ...]

# A thread keeps the planes of images up to this size.
_KEPT_PIXELS = 1 << 20


@dataclass(frozen=True)
class ToFloat(ImageStep):
    """Makes integer images float32 between 0 and 1: `uint8` divided by 255, `uint16` by 65535.

    Determinism: no randomness.

    >>> ToFloat()(np.array([[[0], [51]]], np.uint8)).ravel()
    array([0. , 0.2], dtype=float32)
    """

    layout = None
    dtypes = frozenset({"uint8", "uint16"})

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind as float32."""
        return kind.with_(dtypes=frozenset({"float32"}))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return a new float32 image."""
        values = context.temporary(image.shape, np.float32)
        values[...] = image
        values /= np.float32(np.iinfo(image.dtype).max)
        return values

    def plan(self, steps: tuple[Any, ...], place: int) -> tuple[Any, int] | None:
        """Be one pass with the conversions after this one, at the end of a chain (see `plan.py`)."""
        from feedline.transforms.images.plan import plan_tail

        return plan_tail(steps, place)


@dataclass(frozen=True)
class Normalize(ImageStep):
    """Subtracts `mean`, then divides by `std`, channel by channel, in float32.

    Works along the channel axis of either layout.

    Args:
        mean, std: one number for each channel, or one for all.

    Raises:
        OptionError: when built, for unequal lengths, numbers that are not finite in float32, or a `std` of 0; when the
            chain is built, for another number of channels than the image's, where that is known.
        ValueError: when called, for another number of channels.

    Determinism: no randomness.
    """

    mean: Any
    std: Any

    layout = None
    dtypes = frozenset({"float32"})

    def __post_init__(self) -> None:
        mean, std = _values("mean", self.mean), _values("std", self.std)
        if len(mean) != len(std) and 1 not in (len(mean), len(std)):
            raise OptionError(
                f"Normalize: mean has {len(mean)} values and std {len(std)}; one for each channel in both"
            )
        if any(np.float32(value) == 0.0 for value in std):
            raise OptionError(
                f"Normalize: std must not be 0 in float32, for the image is divided by it: {std!r}"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)
        count = max(len(mean), len(std))
        if count > 1:
            object.__setattr__(self, "channels", frozenset({count}))

    @classmethod
    def imagenet(cls) -> Normalize:
        """Return the step with mean and standard deviation of ImageNet's RGB pixels, as torchvision's models want it."""
        return cls((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return a new float32 image."""
        shape = (-1, 1, 1) if self.layout == "CHW" else (-1,)
        values = context.temporary(image.shape, np.float32)
        np.subtract(image, np.array(self.mean, np.float32).reshape(shape), out=values)
        values /= np.array(self.std, np.float32).reshape(shape)
        return values


def _values(name: str, value: Any) -> Floats:
    many = isinstance(value, (tuple, list, np.ndarray)) and np.ndim(value) > 0
    values = numbers_of("Normalize", name, value, (1, 2, 3, 4)) if many else (real("Normalize", name, value),)
    if any(abs(number) > float(np.finfo(np.float32).max) for number in values):
        raise OptionError(f"Normalize: {name} must be finite in float32, not {value!r}")
    return values


@dataclass(frozen=True)
class ToChw(ImageStep):
    """Turns HWC (rows, columns, channels) into CHW; the result is a view.

    Raises:
        OptionError: when the chain is built, the image is CHW already.

    Determinism: no randomness.
    """

    layout = "HWC"

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind as CHW."""
        return kind.with_(layout="CHW")

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the view."""
        return image.transpose(2, 0, 1)

    def plan(self, steps: tuple[Any, ...], place: int) -> tuple[Any, int] | None:
        """Be one pass with the conversions after this one, at the end of a chain (see `plan.py`)."""
        from feedline.transforms.images.plan import plan_tail

        return plan_tail(steps, place)


@dataclass(frozen=True)
class ToHwc(ImageStep):
    """Turns CHW (channels, rows, columns) into HWC; the result is a view.

    Raises:
        OptionError: when the chain is built, the image is HWC already.

    Determinism: no randomness.
    """

    layout = "CHW"

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind as HWC."""
        return kind.with_(layout="HWC")

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the view."""
        return image.transpose(1, 2, 0)


@lru_cache(maxsize=64)
def tables_of(mean: Floats | None, std: Floats | None, channels: int) -> tuple[npt.NDArray[np.float32], ...]:
    """Return what the steps make of all values of `uint8`, a table of shape `(1, 256)` for each channel."""
    values = np.repeat(np.arange(256, dtype=np.float32)[:, None], channels, axis=1)
    values /= np.float32(255)
    if mean is not None and std is not None:
        values -= np.array(mean, np.float32)
        values /= np.array(std, np.float32)
    return tuple(np.ascontiguousarray(values[:, channel]).reshape(1, 256) for channel in range(channels))


def normalize_into(
    image: npt.NDArray[Any], mean: Floats, std: Floats, out: npt.NDArray[np.float32], layout: Layout = "CHW"
) -> None:
    """Write what `ToFloat`, `Normalize(mean, std)` and, for CHW, `ToChw` make of `image` into `out`, bit for bit.

    Args:
        image: HWC, `uint8` or `uint16`, any strides; never written to.
        mean, std: as `Normalize` keeps them: one number, or one for each channel.
        out: float32, `(channels, height, width)`, or for the layout HWC `(height, width, channels)`.

    Concurrency: any number of threads.
    """
    _convert_into(image, mean, std, out, layout)


def float_into(image: npt.NDArray[Any], out: npt.NDArray[np.float32], layout: Layout = "CHW") -> None:
    """Write what `ToFloat` and, for CHW, `ToChw` make of `image` into `out`, bit for bit (as `normalize_into`)."""
    _convert_into(image, None, None, out, layout)


def _convert_into(
    image: npt.NDArray[Any],
    mean: Floats | None,
    std: Floats | None,
    out: npt.NDArray[np.float32],
    layout: Layout,
) -> None:
    channels = image.shape[2]
    if image.dtype == np.uint8 and out.flags.c_contiguous:
        look_up_into(image, tables_of(mean, std, channels), out, layout)
        return
    target = out.transpose(1, 2, 0) if layout == "CHW" else out
    np.divide(image, np.float32(np.iinfo(image.dtype).max), out=target, dtype=np.float32, casting="unsafe")
    if mean is not None and std is not None:
        target -= np.array(mean, np.float32)
        target /= np.array(std, np.float32)


def look_up_into(
    image: npt.NDArray[Any],
    tables: tuple[npt.NDArray[np.float32], ...],
    out: npt.NDArray[np.float32],
    layout: Layout,
) -> None:
    """Write what `tables` say of the values of `image`, HWC and `uint8`, into `out`, contiguous and in `layout`."""
    if layout == "CHW":
        _look_up_planes(image, tables, out)
    else:
        _look_up_pixels(image, tables, out)


class _Planes(threading.local):
    """The planes that a thread split its last image into, to be used again for one of that size."""

    def __init__(self) -> None:
        self.last: list[npt.NDArray[np.uint8]] = []

    def of(self, image: npt.NDArray[Any]) -> list[npt.NDArray[np.uint8]]:
        """Return the planes of `image`, HWC; valid until this thread's next call."""
        height, width, channels = image.shape
        planes = self.last
        if len(planes) != channels or planes[0].shape != (height, width):
            planes = [np.empty((height, width), np.uint8) for _ in range(channels)]
            self.last = planes if height * width <= _KEPT_PIXELS else []
        cv2_module().split(packed(image), planes)
        return planes


_planes = _Planes()


def _look_up_planes(
    image: npt.NDArray[Any], tables: tuple[npt.NDArray[np.float32], ...], out: npt.NDArray[np.float32]
) -> None:
    cv2 = cv2_module()
    planes = [np.ascontiguousarray(image[..., 0])] if image.shape[2] == 1 else _planes.of(image)
    for plane, table, target in zip(planes, tables, out):
        cv2.LUT(plane, table, dst=target)


def _look_up_pixels(
    image: npt.NDArray[Any], tables: tuple[npt.NDArray[np.float32], ...], out: npt.NDArray[np.float32]
) -> None:
    cv2 = cv2_module()
    table = np.stack(tables, axis=-1) if len(tables) > 1 else tables[0]
    cv2.LUT(packed(image), table, dst=out)
