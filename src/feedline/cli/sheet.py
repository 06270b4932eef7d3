"""A contact sheet: many small pictures in a grid, as one RGB image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.transforms.images.convert import ToFloat
from feedline.transforms.images.resample import resize_into

__all__ = ["as_rgb", "draw_sheet"]

Pixels = npt.NDArray[np.uint8]

GAP = 4
#: Behind pictures that do not fill their cell, and of cells whose picture failed.
PAPER, BEHIND, FAILED = 255, 236, (214, 69, 65)


def as_rgb(image: npt.NDArray[Any], planar: bool = False) -> Pixels:
    """Return `image` as something to look at: uint8, (height, width, 3).

    Floats between 0 and 1 are taken as they are; others (normalised ones) are stretched from their least to their
    largest value. Alpha is shown over white.

    Args:
        image: `uint8`, `uint16` or `float32`, 1 to 4 channels.
        planar: its layout is CHW.
    """
    pixels = image.transpose(1, 2, 0) if planar else image
    if pixels.dtype != np.float32:
        pixels = ToFloat()(pixels)
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0.0 or high > 1.0:
        pixels = (pixels - np.float32(low)) / np.float32(max(high - low, 1e-12))
    channels = pixels.shape[2]
    colors = pixels[..., :1] if channels < 3 else pixels[..., :3]
    if channels in (2, 4):
        alpha = pixels[..., -1:]
        colors = colors * alpha + (1 - alpha)
    shown: Pixels = np.rint(np.broadcast_to(colors, (*pixels.shape[:2], 3)) * 255).astype(np.uint8)
    return shown


def draw_sheet(rows: Sequence[Sequence[Pixels | None]], cell: int, heading: bool = False) -> Pixels:
    """Return pictures in a grid of square cells, each made to fit; `None` is a cell that is crossed out.

    Args:
        rows: the pictures, each RGB, `uint8`; rows may have different lengths.
        cell: side of a cell in pixels.
        heading: set the first column apart.
    """
    columns = max(len(row) for row in rows)
    step = cell + GAP
    apart = GAP if heading and columns > 1 else 0
    sheet = np.full((GAP + len(rows) * step, GAP + columns * step + apart, 3), PAPER, np.uint8)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            left = GAP + x * step + (apart if x else 0)
            target = sheet[GAP + y * step :, left:][:cell, :cell]
            if picture is None:
                _cross_out(target)
            else:
                _place(picture, target)
    return sheet


def _place(picture: Pixels, target: Pixels) -> None:
    """Put `picture` into the middle of `target`, made smaller if it must be, never larger than twice."""
    height, width = picture.shape[:2]
    cell = len(target)
    scale = min(cell / max(height, width), 2.0)
    rows, columns = max(round(height * scale), 1), max(round(width * scale), 1)
    target[...] = BEHIND
    top, left = (cell - rows) // 2, (cell - columns) // 2
    fitted = np.empty((rows, columns, 3), np.uint8)
    resize_into(picture, (0, 0, height, width), fitted)
    target[top : top + rows, left : left + columns] = fitted


def _cross_out(target: Pixels) -> None:
    target[...] = BEHIND
    diagonal = np.arange(len(target))
    for offset in (-1, 0, 1):
        moved = np.clip(diagonal + offset, 0, len(target) - 1)
        target[diagonal, moved] = FAILED
        target[diagonal, moved[::-1]] = FAILED
