"""A folder of images as a source of rows: decoded, resized, flattened, with the class as label."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from feedline.convert.protocol import BLOCK_BYTES, Array, Block, stamp_of
from feedline.datasets.image_folder import ImageFolderDataset
from feedline.errors import FeedlineError, OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.resize import Resize

__all__ = ["MODES", "ImageSource"]

MODES = ("L", "RGB", "RGBA")


class ImageSource:
    """Images of `root/CLASS/`, a row each. See `feedline.convert.protocol.Source`.

    Args:
        root: the folder (see `ImageFolderDataset`).
        size: height and width that images are resized to; without it, all must have the size of the first.
        mode: `"L"`, `"RGB"` or `"RGBA"`.

    A row is the image's pixels, 0 to 255, in the order height, width, channel; its label is the class's number.

    Raises:
        OptionError: a bad size or mode; from a row: another size than the first image's.
        ImageError, FetchError: from a row: the file is no image, or is gone; a note tells its path.
        MissingExtraError: what decodes images is not installed.
    """

    def __init__(self, root: str, size: tuple[int, int] | None, mode: str) -> None:
        if mode not in MODES:
            raise OptionError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        self._images = ImageFolderDataset(root)
        self._size = size
        self._mode = mode
        self._pipeline = Compose([Decode(mode), *([] if size is None else [Resize(size)])])
        self.n = len(self._images)
        self._shape = self._image(0).shape
        self.d, self.l = int(np.prod(self._shape)), 1

    def identity(self) -> dict[str, Any]:
        """Return a checksum of the stamps of all files, and the options."""
        stamps = hashlib.sha256()
        for place in range(self.n):
            stamps.update(repr(stamp_of(self._images.path(place))).encode())
        options = [self._size, self._mode, self._images.classes]
        return {"kind": "images", "files": stamps.hexdigest(), "options": repr(options)}

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the images from `start` to `stop` as rows."""
        rows = max(1, min(BLOCK_BYTES // (8 * self.d), stop - start))
        pixels = np.empty((rows, self.d), np.uint8)
        labels = self._images.targets[:, np.newaxis]
        for first in range(start, stop, rows):
            count = min(rows, stop - first)
            for place in range(count):
                image = self._image(first + place)
                if image.shape != self._shape:
                    raise OptionError(
                        f"{self._images.path(first + place)!r} is of {image.shape[0]} x {image.shape[1]} pixels, the first "
                        f"image of {self._shape[0]} x {self._shape[1]}: give one size for all, such as --size 64x64"
                    )
                pixels[place] = image.reshape(-1)
            yield [("pixels", pixels[:count]), ("label", labels[first : first + count])]

    def _image(self, place: int) -> Array:
        try:
            data, _ = self._images[place]
            image: Array = self._pipeline(data)
        except (FeedlineError, OSError) as error:
            error.add_note(f"in the image {self._images.path(place)!r}")
            raise
        return image
