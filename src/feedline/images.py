"""Images: from bytes to normalised batches (needs the extra `images`).

Every step works on an image or on a tuple `(image, extras...)`, and is checked against its neighbours when a chain is
built. What a step needs of OpenCV, Pillow or simplejpeg is imported when it first runs.
"""

from __future__ import annotations

from feedline.collate.image import ImageBatch, ImageCollator
from feedline.transforms.images.blur import GaussianBlur
from feedline.transforms.images.color import ToGray, ToRgb, ToRgba
from feedline.transforms.images.color_jitter import ColorJitter, RandomGrayscale
from feedline.transforms.images.convert import Normalize, ToChw, ToFloat, ToHwc
from feedline.transforms.images.crop import CenterCrop, Crop, RandomCrop, RandomResizedCrop
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.erase import RandomErasing
from feedline.transforms.images.flip import (
    HorizontalFlip,
    RandomHorizontalFlip,
    RandomRotate90,
    RandomVerticalFlip,
    Rotate90,
    VerticalFlip,
)
from feedline.transforms.images.limits import DecodeLimits
from feedline.transforms.images.pad import Pad, PadTo
from feedline.transforms.images.resize import Resize

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Crop",
    "Decode",
    "DecodeLimits",
    "GaussianBlur",
    "HorizontalFlip",
    "ImageBatch",
    "ImageCollator",
    "Normalize",
    "Pad",
    "PadTo",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotate90",
    "RandomVerticalFlip",
    "Resize",
    "Rotate90",
    "ToChw",
    "ToFloat",
    "ToGray",
    "ToHwc",
    "ToRgb",
    "ToRgba",
    "VerticalFlip",
]
