"""Pillow's codecs, driven without its file plugins.

The plugins obey switches that anybody may set for the whole process (`LOAD_TRUNCATED_IMAGES`, `MAX_IMAGE_PIXELS`),
and warn. `Image.frombytes` with the name of a codec does neither: it decodes the whole area, or says that it could not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import ImageError, MissingExtraError

__all__ = ["run_codec", "run_libtiff"]

_CHANNELS = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I;16": 1}
_NO_COMPRESSION_NAME = 13


def run_codec(
    codec: str, mode: str, width: int, height: int, data: Any, *args: Any, what: str
) -> npt.NDArray[Any]:
    """Decode `data` with Pillow's `codec` into its `mode`; shape (height, width, channels), new memory.

    The dtype is uint16 for mode "I;16", else uint8 (0 and 255 for mode "1").

    Raises:
        ImageError: `"truncated"`: the data ends before the area is full; `"corrupt"`: it can't be decoded.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.of(f"decoding {what}", "images") from error
    try:
        image = Image.frombytes(mode, (width, height), data, codec, *args)
        # Byte by byte from Pillow's own rows: "1" as it would be in "L".
        raw = image.convert("L").tobytes() if mode == "1" else image.tobytes()
    except ValueError as error:
        kind = "truncated" if "not enough" in str(error) else "corrupt"
        raise ImageError(f"the {what} can't be decoded: {error}", kind=kind) from None
    except (OSError, SyntaxError, MemoryError, OverflowError) as error:
        raise ImageError(f"the {what} can't be decoded: {error}", kind="corrupt") from None
    pixels = np.frombuffer(raw, np.dtype("<u2") if mode == "I;16" else np.uint8)
    # A copy, since bytes can't be written to.
    return pixels.reshape(height, width, _CHANNELS[mode]).astype(pixels.dtype.newbyteorder("="))


def run_libtiff(
    mode: str, width: int, height: int, data: bytes, raw: str, compression: str, directory: int
) -> npt.NDArray[Any]:
    """Decode the picture whose directory is at byte `directory` of `data` with libtiff; else as `run_codec`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.of("decoding TIFF", "images") from error
    # Until Pillow 12 the codec was told the compression, too.
    before = int(getattr(Image, "__version__", "0").split(".")[0]) < _NO_COMPRESSION_NAME
    args = (raw, compression, False, directory) if before else (raw, False, directory)
    return run_codec("libtiff", mode, width, height, data, *args, what="TIFF")
