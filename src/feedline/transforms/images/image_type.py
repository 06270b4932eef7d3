"""What an image is, and the base of all steps that take one.

An image is a NumPy array with three axes, `uint8`, `uint16` or `float32`, 1 to 4 channels, in the layout HWC (rows,
columns, channels; the default) or CHW. An item is an image, or a tuple `(image, extras...)`: image steps work on the
first part and pass the others on, so that labels travel along.

Note [kinds]
    A chain of steps is checked when it is built: each step is told the `ImageKind` that it will get (`follow`), and
    answers with the kind that it makes. `None` stands for "not known": plain functions give it. A step with
    `layout = None` works on either layout; when a chain is built it is replaced by `bind(state)`, a copy that knows
    which, since an array does not tell.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.transforms.protocol import ItemContext, Transform

__all__ = [
    "CHANNELS",
    "IMAGE_DTYPES",
    "Image",
    "ImageKind",
    "ImageStep",
    "Layout",
    "Region",
    "check_image",
    "dtype_name",
    "map_first",
]

Layout = Literal["HWC", "CHW"]
Image = npt.NDArray[Any]

IMAGE_DTYPES = frozenset({"uint8", "uint16", "float32"})
CHANNELS = frozenset({1, 2, 3, 4})


@dataclass(frozen=True)
class ImageKind:
    """What is known of an image while a chain of steps is built.

    Attributes:
        layout: `"HWC"` or `"CHW"`; `None` where it is not known (steps then take it for HWC).
        dtypes: names of the dtypes that it may have.
        channels: numbers of channels that it may have.
    """

    layout: Layout | None = None
    dtypes: frozenset[str] = IMAGE_DTYPES
    channels: frozenset[int] = CHANNELS

    def with_(self, **changes: Any) -> ImageKind:
        """Return a copy with `changes`."""
        return replace(self, **changes)


@runtime_checkable
class Region(Protocol):
    """A step that needs a part of its image, or less than all detail: `Decode` before it decodes no more than that.

    Its `apply(image, context)` gives the same as `from_part(image, box(height, width, context), context)`.
    """

    def box(self, height: int, width: int, context: ItemContext) -> tuple[int, int, int, int] | None:
        """Return (top, left, height, width) of the part that is needed of an image of that size.

        Called at most once an item, with `context.place` set to the step's own; draws what the step draws. `None`:
        nothing was drawn, the image is needed as it is, and `apply` must do the work.
        """
        ...

    def least_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the least (height, width) at which a box of that size may be decoded.

        A step that smooths while it makes the box smaller answers with the size of its result; any other (no resizing,
        `nearest`, `antialias=False`) needs all detail, and answers with (height, width).
        """
        ...

    def from_part(self, part: Image, box: tuple[float, float, float, float], context: ItemContext) -> Image:
        """Return the result, where the needed part lies in `part` at `box` (top, left, height, width).

        `part` may be smaller than the image was (decoded at a reduced scale); `box` is in its pixels, then, and its
        numbers need not be whole. A step that does not resize is only given whole numbers.
        """
        ...


# A dtype works out its name anew each time, which costs more than all the rest of the checks.
_NAMES = {np.dtype(name): name for name in IMAGE_DTYPES}


def dtype_name(image: Image) -> str:
    """Return the name of the image's dtype."""
    return _NAMES.get(image.dtype) or image.dtype.name


def map_first(item: Any, function: Any) -> Any:
    """Return `function(item)`, or for a tuple (named ones, too) the tuple with its first part replaced by that."""
    if not isinstance(item, tuple):
        return function(item)
    if not item:
        raise ValueError("an image item may not be an empty tuple: the image is its first part")
    parts = (function(item[0]), *item[1:])
    make = getattr(type(item), "_make", tuple)
    return make(parts)


def check_image(image: Any, step: ImageStep) -> None:
    """Check that `image` is one that `step` takes: dtype, three axes, channels.

    Raises:
        TypeError: it is no array, or has another dtype.
        ValueError: it has not three axes, an empty axis, or a number of channels that the step does not take.
    """
    if not isinstance(image, np.ndarray):
        raise TypeError(f"{step!r} takes an image (a NumPy array), not {type(image).__name__}{_hint(image)}")
    if dtype_name(image) not in step.dtypes:
        raise TypeError(f"{step!r} takes images of dtype {_either(step.dtypes)}, not {image.dtype.name}")
    shape = image.shape
    if len(shape) != 3:
        more = "; a gray image has shape (height, width, 1): image[..., None]" if len(shape) == 2 else ""
        raise ValueError(f"{step!r} takes images with three axes, not shape {shape}{more}")
    planar = step.layout == "CHW"
    if 0 in shape or shape[0 if planar else 2] not in step.channels:
        order = "(channels, height, width)" if planar else "(height, width, channels)"
        raise ValueError(
            f"{step!r} takes images {order} with {_either(step.channels)} channels and no empty axis, not {shape}"
        )


def _hint(image: Any) -> str:
    if isinstance(image, (bytes, bytearray, memoryview)):
        return ": put Decode() before it"
    if isinstance(image, dict):
        return ": the image must be the item, or the first part of a tuple"
    if hasattr(image, "__array__") or hasattr(image, "__array_interface__"):
        return ": convert it with numpy.asarray"
    return ""


class ImageStep(Transform):
    """The base of steps on images.

    | name | in a subclass |
    | --- | --- |
    | `apply(image, context)` | the work: gets a checked image, returns a new one or a view; never writes into `image` |
    | `layout` | `"HWC"`, `"CHW"`, or `None` for steps that work on either; then `bind` gives a copy that knows which |
    | `dtypes`, `channels` | names of the dtypes, and the numbers of channels, that it takes |
    | `becomes(kind)` | the kind that it makes of one that it takes (default: the same) |

    All four may be attributes of the class or, where options decide, of the instance. `step(item)` works by hand; a
    step that draws then gets the generator of seed 0, epoch 0, index 0.

    Concurrency: steps are not changed once they are built; any number of threads may call one.
    """

    takes_context: ClassVar[bool] = True
    layout: Layout | None = "HWC"
    dtypes: frozenset[str] = IMAGE_DTYPES
    channels: frozenset[int] = CHANNELS

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return what becomes of `image`."""
        raise TypeError(f"{type(self).__name__} defines no apply")

    def becomes(self, kind: ImageKind) -> ImageKind:
        """Return the kind of the result for an image of `kind`, which has a layout, dtypes and channels that fit."""
        return kind

    def __call__(self, item: Any, context: ItemContext | None = None) -> Any:
        """Return `item` with its image (itself, or the first part of a tuple) replaced by what becomes of it."""
        chosen = ItemContext(0, 0, 0) if context is None else context
        if isinstance(item, tuple):
            return map_first(item, lambda image: self._checked(image, chosen))
        return self._checked(item, chosen)

    def _checked(self, image: Any, context: ItemContext) -> Image:
        check_image(image, self)
        return self.apply(image, context)

    def bind(self, state: Any) -> ImageStep:
        """Return the step as it works on what the steps before it give: itself, or a copy that knows the layout."""
        if self.layout is not None or not isinstance(state, ImageKind) or state.layout is None:
            return self
        bound = copy.copy(self)
        # Through `object`, so that steps may be frozen dataclasses; nobody else has seen the copy yet.
        object.__setattr__(bound, "layout", state.layout)
        return bound

    def follow(self, state: Any) -> ImageKind:
        """Check that this step may come after a step that gives `state`, and tell what it makes of it.

        Raises:
            OptionError: the layout, all possible dtypes or all possible numbers of channels do not fit.
        """
        kind = state if isinstance(state, ImageKind) else ImageKind()
        if self.layout is not None and kind.layout not in (None, self.layout):
            advice = "put it before ToChw()" if self.layout == "HWC" else "put ToChw() before it"
            raise OptionError(
                f"{self!r} takes images in the layout {self.layout}, but the steps before it give "
                f"{kind.layout}: {advice}"
            )
        dtypes = kind.dtypes & self.dtypes
        if not dtypes:
            advice = "put ToFloat() before it" if self.dtypes == {"float32"} else "put it before ToFloat()"
            raise OptionError(
                f"{self!r} takes images of dtype {_either(self.dtypes)}, but the steps before it give "
                f"{_either(kind.dtypes)}: {advice}"
            )
        channels = kind.channels & self.channels
        if not channels:
            raise OptionError(
                f"{self!r} takes images with {_either(self.channels)} channels, but the steps before it give "
                f"{_either(kind.channels)}"
            )
        return self.becomes(ImageKind(kind.layout or self.layout or "HWC", dtypes, channels))


def _either(choices: frozenset[Any]) -> str:
    return " or ".join(str(choice) for choice in sorted(choices))
