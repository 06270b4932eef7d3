"""Steps that are carried out together.

Note [parts]
    `Decode` before a step that needs a part of its image (a `Region`: crops, `Resize`) decodes no more of a JPEG than
    that: the rows down to the lower edge of the box, and, where the region smooths while it makes its box smaller, at
    1/2, 1/4 or 1/8 of the size as long as the result stays no smaller than asked for. Without a reduced scale the
    result is that of the steps one by one, bit for bit; with it libjpeg's inverse DCT does part of the smoothing, and
    pixels differ by a few levels. Other formats are decoded whole.

Note [tail]
    `ToFloat`, `Normalize` and `ToChw` at the end of a chain are one pass from the image into the batch's memory, with
    the same result bit for bit.

A step's generator depends on its place as written, so whoever draws here sets `context.place` before: planned and
unplanned chains draw the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.errors import ImageError
from feedline.transforms.images.color import as_mode
from feedline.transforms.images.convert import (
    Normalize,
    ToChw,
    ToFloat,
    float_into,
    look_up_into,
    normalize_into,
    tables_of,
)
from feedline.transforms.images.decode import Decode, Opened, name_file, read_source
from feedline.transforms.images.exif import Box, stored_box, turn_upright, upright_box
from feedline.transforms.images.formats import jpeg
from feedline.transforms.images.formats.raster import Raster
from feedline.transforms.images.image_type import Image, ImageStep, Layout, Region, dtype_name, map_first
from feedline.transforms.images.scratch import Scratch, borrowed
from feedline.transforms.protocol import ItemContext

__all__ = ["DecodeRegion", "FloatTail", "plan_decode", "plan_tail"]

_UINT8 = np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)
_FACTORS = (8, 4, 2)
_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "P": 0}


def plan_decode(decode: Decode, steps: tuple[Any, ...], place: int) -> tuple[Any, int] | None:
    """Join `decode` at `place` with the step after it, if that is a region, and with what can follow that at once."""
    following = steps[place + 1] if place + 1 < len(steps) else None
    if not (isinstance(following, ImageStep) and isinstance(following, Region)):
        return None
    joined = DecodeRegion(decode, following, place + 1)
    from feedline.transforms.images.joined import plan_joined

    return plan_joined(joined, steps, place) or (joined, 2)


class DecodeRegion:
    """`Decode` and the crop or resize after it as one (see the note on parts)."""

    def __init__(self, decode: Decode, region: Any, place: int) -> None:
        self.decode = decode
        self.region = region
        self.place = place

    def __call__(self, item: Any, context: ItemContext) -> Any:
        """Return what both steps make of `item`."""
        if not isinstance(item, tuple):
            return self._image(item, context)
        return map_first(item, lambda source: self._image(source, context))

    def _image(self, source: Any, context: ItemContext) -> Image:
        try:
            opened = self.decode.open(read_source(source))
            if opened.format == "JPEG":
                header = opened.header
                size = (header.height, header.width) if header.orientation == 1 else opened.upright_size
                context.place = self.place
                box = self.region.box(size[0], size[1], context)
                if box is not None:
                    return self.of_part(opened, box, context)
            # Whatever fails from here to the region's own work is the decoder's failure.
            context.place = self.place - 1
            image = self.decode.pixels(opened, context)
        except ImageError as error:
            name_file(error, source)
            raise
        return self.of_whole(image, context)

    def of_whole(self, image: Image, context: ItemContext) -> Image:
        """Return what becomes of an image that is decoded already."""
        context.place = self.place
        result: Image = self.region(image, context)
        return result

    def of_part(self, opened: Opened, box: tuple[int, int, int, int], context: ItemContext) -> Image:
        """Return what becomes of a JPEG of which `box` is needed."""
        with borrowed() as scratch:
            part, place = self.decoded(opened, box, context, scratch)
            result: Image = self.region.from_part(part, place, context)
            return result.copy() if scratch.holds(result) else result

    def decoded(
        self, opened: Opened, box: tuple[int, int, int, int], context: ItemContext, scratch: Scratch
    ) -> tuple[Image, Box]:
        """Decode what `box` needs; return it (upright) with the box's place in it. The region comes next."""
        header: jpeg.JpegHeader = opened.header
        turned = header.orientation
        stored = box if turned == 1 else stored_box(box, *opened.upright_size, turned)
        factor = _factor(box, self.region.least_size(box[2], box[3]))
        # A row of chroma serves `step` rows, and the row below it is mixed in; at a reduced scale a row more of blocks.
        margin = header.step if factor == 1 else 8 * header.step
        rows = min(int(stored[0] + stored[2]) + margin, header.height)
        mode = self.decode.mode
        context.place = self.place - 1
        pixels = jpeg.decode_rows(
            opened.data, header, mode, rows=rows, factor=factor, fast=self.decode.fast, scratch=scratch
        )
        if mode is not None and _CHANNELS[mode] != pixels.shape[2]:
            pixels = as_mode(Raster(pixels), mode)
        context.place = self.place
        if turned == 1 and factor == 1:
            return pixels, box
        part = turn_upright(pixels, turned)
        place = tuple(number / factor for number in stored)
        return part, upright_box(place, part.shape[0], part.shape[1], turned)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        needs = "rows down to the box"
        height, width = 8 * max(_FACTORS), 8 * max(_FACTORS)
        if _may_shrink(self.region, height, width):
            needs += ", at 1/2, 1/4 or 1/8 where that is enough"
        return f"{self.decode!r} + {self.region!r} (of a JPEG: {needs})"


def _factor(box: tuple[int, ...], least: tuple[int, int]) -> int:
    """Return the largest factor by which a box may be decoded smaller without getting smaller than `least`."""
    _, _, height, width = box
    if height < 2 * least[0] or width < 2 * least[1]:
        return 1
    for factor in _FACTORS:
        if height >= factor * least[0] and width >= factor * least[1]:
            return factor
    return 1


def _may_shrink(region: Any, height: int, width: int) -> bool:
    return tuple(region.least_size(height, width)) != (height, width)


def plan_tail(steps: tuple[Any, ...], place: int) -> tuple[FloatTail, int] | None:
    """Join `ToFloat`, `Normalize` and `ToChw` from `place` to the end of the chain, if nothing else is there.

    `ToFloat` must be there, `Normalize` after it; `ToChw` may stand anywhere, and with `Normalize` is optional.
    """
    tail = steps[place:]
    kinds = [type(step) for step in tail]
    if len(set(kinds)) != len(kinds) or not set(kinds) <= {ToFloat, Normalize, ToChw} or ToFloat not in kinds:
        return None
    if Normalize in kinds and kinds.index(Normalize) < kinds.index(ToFloat):
        return None
    if tail[0].layout == "CHW":
        return None
    return FloatTail(tail, place), len(tail)


class FloatTail:
    """`ToFloat`, `Normalize` and `ToChw` as one pass into the batch's memory (see the note on the tail)."""

    def __init__(self, steps: tuple[Any, ...], place: int) -> None:
        self._steps = steps
        self._place = place
        self._normalize = next((step for step in steps if type(step) is Normalize), None)
        self._planar = any(type(step) is ToChw for step in steps)
        self._channels = steps[0].channels if self._normalize is None else self._normalize.channels
        mean, std = (None, None) if self._normalize is None else (self._normalize.mean, self._normalize.std)
        self.tables = {channels: tables_of(mean, std, channels) for channels in self._channels}

    def __call__(self, item: Any, context: ItemContext) -> Any:
        """Return what the steps make of `item`; the memory is the context's."""
        if not isinstance(item, tuple):
            return self._image(item, context)
        return map_first(item, lambda image: self._image(image, context))

    def _image(self, image: Any, context: ItemContext) -> Any:
        fits = getattr(image, "ndim", 0) == 3 and 0 not in image.shape and image.shape[2] in self._channels
        if not fits or dtype_name(image) not in ToFloat.dtypes:
            # Some step refuses this; it knows best what to say.
            return self._one_by_one(image, context)
        return self.converted(image, context)

    def converted(self, image: Image, context: ItemContext) -> Image:
        """Return what the steps make of an image that they take."""
        height, width, channels = image.shape
        shape = (channels, height, width) if self._planar else (height, width, channels)
        out = context.allocate(shape, _FLOAT32)
        layout: Layout = "CHW" if self._planar else "HWC"
        if image.dtype == _UINT8:
            look_up_into(image, self.tables[channels], out, layout)
        elif self._normalize is None:
            float_into(image, out, layout)
        else:
            normalize_into(image, self._normalize.mean, self._normalize.std, out, layout)
        return out

    def _one_by_one(self, image: Any, context: ItemContext) -> Any:
        for number, step in enumerate(self._steps):
            context.place = self._place + number
            image = step(image, context)
        return image

    def __repr__(self) -> str:
        return f"{' + '.join(repr(step) for step in self._steps)} (one pass into the batch)"
