"""`ImageCollator`: images to one `ImageBatch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from feedline.collate.default import default_collate
from feedline.collate.numeric import Memory
from feedline.errors import CollateError, OptionError
from feedline.transforms.images.image_type import CHANNELS, IMAGE_DTYPES, ImageKind, Layout

__all__ = ["BatchLayout", "ImageBatch", "ImageCollator"]

BatchLayout = Literal["NCHW", "NHWC"]
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class ImageBatch:
    """Images of one shape in one array.

    Attributes:
        data: `(batch, channels, height, width)` for the layout NCHW, `(batch, height, width, channels)` for NHWC;
            C-contiguous and writable.
        layout: `"NCHW"` or `"NHWC"`.

    `numpy.asarray(batch)`, `torch.from_dlpack(batch)` and `jax.dlpack.from_dlpack(batch)` see the same memory, without
    a copy.

    >>> batch = ImageBatch(np.zeros((2, 3, 4, 4), np.uint8), "NCHW")
    >>> len(batch), np.asarray(batch) is batch.data
    (2, True)
    """

    data: Array
    layout: BatchLayout

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `data`."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of `data`."""
        return self.data.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of `data`: what a loader counts, and what `prefetch_bytes` bounds."""
        return int(self.data.nbytes)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.data)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return `data` itself, or a copy where another dtype or a copy is asked for."""
        if dtype is None or np.dtype(dtype) == self.data.dtype:
            return self.data.copy() if copy else self.data
        if copy is False:
            raise ValueError(f"a batch of {self.data.dtype} can't become {np.dtype(dtype)} without a copy")
        return self.data.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule of `data`; the options are those of `numpy.ndarray.__dlpack__`."""
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device in DLPack's terms: the processor."""
        kind, number = self.data.__dlpack_device__()
        return int(kind), int(number)

    def __repr__(self) -> str:
        return f"ImageBatch({self.layout}, shape={self.data.shape}, dtype={self.data.dtype})"


@dataclass(frozen=True)
class ImageCollator:
    """Joins images, or tuples `(image, extras...)`, to one `ImageBatch` (or a tuple with one).

    Extras are joined by `default_collate`. Images are copied once, into the layout of the batch; where a transform has
    put its results into the batch's own memory, and the layout fits, nothing is copied.

    Args:
        layout: `"NCHW"` or `"NHWC"`: that of the batch.
        pad: pad smaller images with zeros, at the right and at the bottom, up to the largest of the batch; without it
            all must have one shape.
        layout_in: `"HWC"` or `"CHW"`: that of the images. `None`: what the image pipeline before it is known to give,
            and HWC where it is not known (plain functions). It is never guessed from a shape.

    Raises:
        OptionError: an unknown layout, or a `layout_in` that contradicts the pipeline.
        CollateError: no image; or dtypes, numbers of channels or (without `pad`) sizes differ. It names index, row of the
            batch and both shapes.

    Determinism: depends on the items alone.

    Concurrency: may be called from several threads at once; pickles.

    >>> ImageCollator()([(np.zeros((2, 2, 3), np.uint8), 7), (np.ones((2, 2, 3), np.uint8), 8)])
    (ImageBatch(NCHW, shape=(2, 3, 2, 2), dtype=uint8), array([7, 8]))
    """

    layout: BatchLayout = "NCHW"
    pad: bool = False
    layout_in: Layout | None = None

    # The loader then hands over the memory of the batch, and the indices of its items.
    takes_memory: ClassVar[bool] = True
    takes_indices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.layout not in ("NCHW", "NHWC"):
            raise OptionError(f"ImageCollator: layout must be 'NCHW' or 'NHWC', not {self.layout!r}")
        if self.layout_in not in (None, "HWC", "CHW"):
            raise OptionError(
                f"ImageCollator: layout_in must be 'HWC', 'CHW' or None, not {self.layout_in!r}"
            )
        if not isinstance(self.pad, bool):
            raise TypeError(f"ImageCollator: pad must be True or False, not {self.pad!r}")

    def bind(self, kind: object) -> ImageCollator:
        """Return the collator as it works behind a pipeline that gives images of `kind` (`Compose.result`).

        Raises:
            OptionError: `layout_in` says something else.
        """
        if not isinstance(kind, ImageKind) or kind.layout is None or kind.layout == self.layout_in:
            return self
        if self.layout_in is not None:
            raise OptionError(
                f"{self!r}: the images come as {kind.layout} from the pipeline, not as {self.layout_in}: "
                f"leave layout_in out"
            )
        return replace(self, layout_in=kind.layout)

    def __call__(
        self, items: Sequence[Any], memory: Memory | None = None, indices: Sequence[Any] | None = None
    ) -> Any:
        """Return the batch.

        Args:
            items: the items, at least one.
            memory: where the batch goes (`feedline.collate.buffers.BatchMemory`); new memory without it.
            indices: the items' indices in the dataset, by which errors name them.
        """
        if not len(items):
            raise CollateError("can't collate a batch of zero images")
        first = items[0]
        if not isinstance(first, tuple):
            return self._joined(items, memory, indices)
        for place, item in enumerate(items):
            if not isinstance(item, tuple) or len(item) != len(first) or not item:
                raise CollateError(
                    f"the items of a batch must all be images, or all tuples (image, extras...) of one length, but "
                    f"{_name(place, indices)} is {_brief(item)}, and {_name(0, indices)} is {_brief(first)}",
                    positions=(0, place),
                )
        images = self._joined([item[0] for item in items], memory, indices)
        extras = [default_collate([item[part] for item in items], memory) for part in range(1, len(first))]
        parts = (images, *extras)
        make = getattr(type(first), "_make", tuple)
        return make(parts)

    def _joined(
        self, images: Sequence[Any], memory: Memory | None, indices: Sequence[Any] | None
    ) -> ImageBatch:
        planar_in = self.layout_in == "CHW"
        planar_out = self.layout == "NCHW"
        height, width, channels = self._common_size(images, planar_in, indices)
        if planar_in == planar_out and memory is not None:
            block = memory.match(images)
            if block is not None:
                return ImageBatch(block, self.layout)
        shape = (channels, height, width) if planar_out else (height, width, channels)
        allocate = np.empty if memory is None else memory.allocate
        batch = allocate((len(images), *shape), images[0].dtype.newbyteorder("="))
        for image, row in zip(images, batch):
            _copy(image, row, planar_in, planar_out)
        return ImageBatch(batch, self.layout)

    def _common_size(
        self, images: Sequence[Any], planar: bool, indices: Sequence[Any] | None
    ) -> tuple[int, int, int]:
        """Return (height, width, channels) of the batch's images, all of them checked."""
        first = images[0]
        high = wide = 0
        channels = -1
        for place, image in enumerate(images):
            if not isinstance(image, np.ndarray) or image.dtype.name not in IMAGE_DTYPES or image.ndim != 3:
                raise CollateError(
                    f"{_name(place, indices)} is no image (an array of uint8, uint16 or float32 with three axes), "
                    f"but {_brief(image)}",
                    positions=(place,),
                )
            count, height, width = image.shape if planar else (image.shape[2], *image.shape[:2])
            if count not in CHANNELS or image.size == 0:
                raise CollateError(
                    f"{_name(place, indices)} has the shape {image.shape}, which is no {'CHW' if planar else 'HWC'} "
                    f"image with 1 to 4 channels: if its layout is the other one, tell by layout_in=",
                    positions=(place,),
                )
            if channels not in (-1, count) or image.dtype != first.dtype:
                raise self._differing(first, image, place, indices, "")
            if not self.pad and image.shape != first.shape:
                raise self._differing(
                    first,
                    image,
                    place,
                    indices,
                    ": crop or resize them to one, or use ImageCollator(pad=True)",
                )
            channels, high, wide = count, max(high, height), max(wide, width)
        return high, wide, channels

    def _differing(
        self, first: Array, image: Array, place: int, indices: Sequence[Any] | None, advice: str
    ) -> CollateError:
        return CollateError(
            f"images of one batch must have one shape and dtype, but {_name(place, indices)} is "
            f"{_brief(image)}, and {_name(0, indices)} is {_brief(first)}{advice}",
            positions=(0, place),
        )


def _name(place: int, indices: Sequence[Any] | None) -> str:
    row = f"row {place} of the batch"
    return row if indices is None else f"item {indices[place]!r} ({row})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a value of type {type(value).__name__}"


@cache
def _cv2() -> Any:
    """Return OpenCV, whose transposition is several times as fast as NumPy's, or `None` where it is not installed."""
    try:
        import cv2
    except ImportError:
        return None
    return cv2


def _copy(image: Array, row: Array, planar_in: bool, planar_out: bool) -> None:
    """Copy `image` into the top left of `row`, in the layout of that, and fill the rest with zeros."""
    pixels = image.transpose(1, 2, 0) if planar_in else image
    target = row.transpose(1, 2, 0) if planar_out else row
    height, width, channels = pixels.shape
    if (height, width) != target.shape[:2]:
        target[height:] = 0
        target[:height, width:] = 0
        target = target[:height, :width]
    elif planar_out and not planar_in and channels > 1 and image.flags.c_contiguous:
        cv2 = _cv2()
        if cv2 is not None:
            cv2.split(image, list(row))
            return
    target[...] = pixels
