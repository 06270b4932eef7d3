"""How large an image may be, decided on its header before any pixel is decoded."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from feedline.errors import ImageError, OptionError

__all__ = ["DecodeLimits"]


@dataclass(frozen=True)
class DecodeLimits:
    """The largest image that `Decode` takes.

    What a file declares is compared with these before memory is taken for it, so a small file that declares an
    enormous size costs nothing. Pillow's own limit (`Image.MAX_IMAGE_PIXELS`) plays no part.

    Args:
        max_width: columns, at least 1.
        max_height: rows, at least 1.
        max_bytes: the decoded image (height x width x channels x bytes per value) must be smaller than this.

    Raises:
        TypeError: a limit is not an int.
        OptionError: a limit is below 1.
    """

    max_width: int = 16384
    max_height: int = 16384
    max_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        for name in ("max_width", "max_height", "max_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool):
                raise TypeError(f"{name} must be an int, not {value!r}")
            try:
                number = operator.index(value)
            except TypeError:
                raise TypeError(f"{name} must be an int, not {type(value).__name__} {value!r}") from None
            if number < 1:
                raise OptionError(f"{name} must be at least 1, not {number}")
            object.__setattr__(self, name, number)

    def check(self, width: int, height: int, bytes_per_pixel: int, what: str) -> None:
        """Raise an `ImageError` of kind `"too_large"` if an image of that size is over a limit.

        An image without rows or columns is `"corrupt"`. `what` names the format in the message.
        """
        if width < 1 or height < 1:
            raise ImageError(f"the {what} declares {width} x {height} pixels", kind="corrupt")
        if width > self.max_width or height > self.max_height:
            raise ImageError(
                f"the {what} declares {width} x {height} pixels, more than the limit of {self.max_width} x "
                f"{self.max_height}: give Decode other limits=DecodeLimits(...) if it is to be decoded",
                kind="too_large",
            )
        size = width * height * bytes_per_pixel
        if size >= self.max_bytes:
            raise ImageError(
                f"the {what} declares {width} x {height} pixels, {size} bytes decoded; the size must be less than "
                f"{self.max_bytes}: give Decode other limits=DecodeLimits(...) if it is to be decoded",
                kind="too_large",
            )
