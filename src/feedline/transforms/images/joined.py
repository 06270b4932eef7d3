"""Whole chains for photos: decode, crop or resize, flip, normalise, with nothing but the thread's buffers between them.

Note [between]
    What one step hands to the next lies in buffers that the thread uses again for its next image, warm in its cache; the
    last step writes into the batch. Flips are made in place. The result is that of the steps as `DecodeRegion`, the
    flips and `FloatTail` make it one by one, bit for bit. Images that are no JPEG, or must be decoded whole, go that way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.transforms.images.crop import CenterCrop, Crop, RandomCrop, RandomResizedCrop
from feedline.transforms.images.decode import Opened
from feedline.transforms.images.engines import cv2_module, packed
from feedline.transforms.images.flip import HorizontalFlip, RandomHorizontalFlip
from feedline.transforms.images.image_type import Image
from feedline.transforms.images.plan import DecodeRegion, FloatTail
from feedline.transforms.images.resize import Resize
from feedline.transforms.images.scratch import borrowed
from feedline.transforms.protocol import ItemContext

__all__ = ["JoinedChain", "plan_joined"]

# Exactly these: what they return is a view of the part that they are given, or memory that the context gave.
_REGIONS = frozenset({CenterCrop, Crop, RandomCrop, RandomResizedCrop, Resize})
_FLIPS = frozenset({HorizontalFlip, RandomHorizontalFlip})


def plan_joined(start: DecodeRegion, steps: tuple[Any, ...], place: int) -> tuple[JoinedChain, int] | None:
    """Join `start`, the planned steps from `place` on, with flips and conversions right behind it; `None` without any."""
    if type(start.region) not in _REGIONS:
        return None
    end = place + 2
    while end < len(steps) and type(steps[end]) in _FLIPS:
        end += 1
    flips = steps[place + 2 : end]
    planner = getattr(steps[end], "plan", None) if end < len(steps) else None
    tail, count = (planner(steps, end) if planner is not None else None) or (None, 0)
    if type(tail) is not FloatTail:
        tail, count = None, 0
    if not flips and tail is None:
        return None
    return JoinedChain(start, flips, tail), end + count - place


class JoinedChain(DecodeRegion):
    """`DecodeRegion`, flips and `FloatTail` as one (see the note)."""

    def __init__(self, start: DecodeRegion, flips: tuple[Any, ...], tail: FloatTail | None) -> None:
        super().__init__(start.decode, start.region, start.place)
        self._start = start
        self._flips = flips
        self._tail = tail
        # Whether the region may return a view of what it gets.
        self._cuts = type(start.region) is not RandomResizedCrop

    def of_whole(self, image: Image, context: ItemContext) -> Image:
        """Return what becomes of an image that is decoded already, step by step."""
        runs = self.parts()[1:]
        last = context.last
        context.last = False
        image = super().of_whole(image, context)
        for number, (place, run) in enumerate(runs, 1):
            context.place = place
            context.last = last and number == len(runs)
            image = run(image, context)
        return image

    def of_part(self, opened: Opened, box: tuple[int, int, int, int], context: ItemContext) -> Image:
        """Return what becomes of a JPEG of which `box` is needed."""
        # All that is drawn is drawn at once, while the code for it is in the cache; each place has its own stream.
        mirrored = self._draw_flips(context)
        with borrowed() as scratch:
            part, place = self.decoded(opened, box, context, scratch)
            tail = self._tail
            if tail is None:
                image = self.region.from_part(part, place, context)
                if self._cuts and scratch.holds(image):
                    return _handed_out(image, mirrored, context)
                return _mirrored(packed(image)) if mirrored else image
            context.between = scratch.image
            try:
                image = self.region.from_part(part, place, context)
            finally:
                context.between = None
            image = _mirrored(packed(image)) if mirrored else image
            context.place = self.place + len(self._flips) + 1
            if image.shape[2] in tail.tables:
                return tail.converted(image, context)
            result: Image = tail(image, context)
            return result

    def _draw_flips(self, context: ItemContext) -> bool:
        mirrored = False
        for flip in self._flips:
            context.place += 1
            mirrored ^= flip.draw(context)
        return mirrored

    def parts(self) -> list[tuple[int, Any]]:
        """Return what is joined, each with its place."""
        after = self.place + 1
        tail = [] if self._tail is None else [(after + len(self._flips), self._tail)]
        return [(self.place - 1, self._start), *enumerate(self._flips, after), *tail]


def _mirrored(image: Image) -> Image:
    """Return `image`, whose memory is ours, mirrored in place."""
    cv2_module().flip(image, 1, dst=image)
    return image


def _handed_out(view: Image, mirrored: bool, context: ItemContext) -> Image:
    """Return a copy of `view`, which lies in a buffer that is used again."""
    out = context.result(view.shape, view.dtype)
    if mirrored:
        cv2_module().flip(packed(view), 1, dst=out)
    else:
        np.copyto(out, view)
    return out
