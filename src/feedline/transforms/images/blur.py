"""`GaussianBlur`, as torchvision has it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError
from feedline.transforms.images.arguments import height_width, interval, real
from feedline.transforms.images.color_jitter import colors_of, uniform
from feedline.transforms.images.engines import cv2_module
from feedline.transforms.images.image_type import Image, ImageStep
from feedline.transforms.protocol import ItemContext

__all__ = ["GaussianBlur"]


@lru_cache(maxsize=64)
def _kernel(size: int, sigma: float) -> npt.NDArray[np.float32]:
    places = np.arange(size, dtype=np.float64) - (size - 1) / 2
    weights = np.exp(-0.5 * (places / sigma) ** 2)
    kernel: npt.NDArray[np.float32] = (weights / weights.sum()).astype(np.float32)
    return kernel


@dataclass(frozen=True)
class GaussianBlur(ImageStep):
    """Blurs with a Gaussian of random width; the image is reflected at its borders.

    Signature and meaning of torchvision's. `uint8` (rounded) or `float32`, either layout; alpha is left alone.

    Args:
        kernel_size: an odd int, or (kx, ky), along rows and along columns.
        sigma: the standard deviation in pixels, or (low, high), between which it is drawn.

    Raises:
        OptionError: a bad value when built.

    Determinism: `context.rng` of its place in the chain; one number is drawn.
    """

    kernel_size: Any
    sigma: Any = (0.1, 2.0)

    layout = None
    dtypes = frozenset({"uint8", "float32"})

    def __post_init__(self) -> None:
        sizes = height_width("GaussianBlur", self.kernel_size, "kernel_size")
        if any(size % 2 == 0 for size in sizes):
            raise OptionError(
                f"GaussianBlur: kernel_size must be odd, so that it has a middle, not {self.kernel_size!r}"
            )
        object.__setattr__(self, "kernel_size", sizes)
        if isinstance(self.sigma, (tuple, list, np.ndarray)):
            span = interval("GaussianBlur", "sigma", self.sigma)
        else:
            span = (real("GaussianBlur", "sigma", self.sigma),) * 2
        if span[0] <= 0.0:
            raise OptionError(f"GaussianBlur: sigma must be above 0, not {self.sigma!r}")
        object.__setattr__(self, "sigma", span)

    def apply(self, image: Image, context: ItemContext) -> Image:
        """Return the blurred image."""
        sigma = uniform(context, self.sigma)
        across, down = (_kernel(size, sigma) for size in self.kernel_size)
        return colors_of(self, image, lambda colors: _blurred(colors, across, down))


def _blurred(colors: Image, across: npt.NDArray[np.float32], down: npt.NDArray[np.float32]) -> Image:
    cv2 = cv2_module()
    values = np.ascontiguousarray(colors, np.float32)
    blurred = cv2.sepFilter2D(values, cv2.CV_32F, across, down, borderType=cv2.BORDER_REFLECT_101)
    result: Image = blurred.reshape(colors.shape)
    return result if colors.dtype == np.float32 else np.rint(result).astype(np.uint8)
