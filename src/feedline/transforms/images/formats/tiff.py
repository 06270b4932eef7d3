"""TIFF (TIFF 6.0): gray, palette, RGB, CMYK and YCbCr of 1 to 16 bits, in strips or tiles, with libtiff's codecs.

The directory is read in `tiff_tags.py`; libtiff (in Pillow) unpacks the samples. Samples stored in planes are unpacked
plane by plane, each as a gray picture of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import ImageError
from feedline.transforms.images.color import cmyk_to_rgb
from feedline.transforms.images.formats.codec import run_libtiff
from feedline.transforms.images.formats.raster import Header, Raster
from feedline.transforms.images.formats.tiff_tags import Tags, read_tags, with_tags

__all__ = ["TiffHeader", "decode", "read_header"]

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_COLOURS = {_WHITE_IS_ZERO: 1, _BLACK_IS_ZERO: 1, _RGB: 3, _PALETTE: 1, _CMYK: 4, _YCBCR: 3}
_COMPRESSIONS = {
    1: "raw",
    2: "tiff_ccitt",
    3: "group3",
    4: "group4",
    5: "tiff_lzw",
    7: "jpeg",
    8: "tiff_adobe_deflate",
    32773: "packbits",
    32946: "tiff_deflate",
    34925: "lzma",
    50000: "zstd",
    50001: "webp",
}
_NONE, _JPEG = 1, 7
_ALPHAS = frozenset({2, 999})  # unassociated; 999 is Corel Draw's word for it
_PREMULTIPLIED = 1
# Beyond this a tile larger than its picture is damage, not padding.
_MAX_TILE_PIXELS = 2**22


@dataclass(slots=True)
class TiffHeader(Header):
    """What the directory says.

    Attributes:
        tags: the values that matter, by name.
        bits: per sample: 1, 2, 4, 8 or 16.
        photometric: what the samples mean.
        samples: per pixel.
        extra: meaning of the first sample beyond the colours (0 where there is none).
    """

    tags: Tags = field(default_factory=dict)
    bits: int = 8
    photometric: int = 1
    samples: int = 1
    extra: int = 0


def read_header(data: memoryview, exif: bool) -> TiffHeader:
    """Read the directory of the first picture.

    Raises:
        ImageError: `"truncated"` (the directory is not in the file), `"corrupt"` or `"unsupported"`.
    """
    tags = read_tags(data)
    width, height = _one(tags, "width"), _one(tags, "height")
    photometric = _one(tags, "photometric", _WHITE_IS_ZERO)
    samples = _one(tags, "samples", 1)
    bits = _bits(tags, samples)
    colours = _COLOURS.get(photometric)
    more = samples - (colours or 0)
    if colours is None or more not in (0, 1) or (more and photometric in (_PALETTE, _CMYK, _YCBCR)):
        raise ImageError(
            f"TIFF images with photometric interpretation {photometric} and {samples} samples per pixel are not "
            "decoded",
            kind="unsupported",
        )
    compression = _one(tags, "compression", _NONE)
    if compression not in _COMPRESSIONS:
        raise ImageError(f"TIFF images with compression {compression} are not decoded", kind="unsupported")
    extra = tags.get("extra", [2 if colours == 3 else 0])[0] if more else 0
    if (extra == _PREMULTIPLIED and (bits != 8 or colours == 1)) or (bits < 8 and (colours != 1 or more)):
        raise ImageError(
            f"TIFF images of {samples} samples of {bits} bits are not decoded", kind="unsupported"
        )
    if photometric == _PALETTE and (bits > 8 or len(tags.get("colours", ())) != 3 * 2**bits):
        raise ImageError("the TIFF's palette does not fit its bits per sample", kind="corrupt")
    channels = 3 if photometric in (_PALETTE, _CMYK) else colours
    return TiffHeader(
        width,
        height,
        channels + (extra in _ALPHAS or extra == _PREMULTIPLIED),
        itemsize=2 if bits == 16 and photometric != _CMYK else 1,
        orientation=_orientation(tags) if exif else 1,
        tags=tags,
        bits=bits,
        photometric=photometric,
        samples=samples,
        extra=extra,
    )


def _one(tags: Tags, name: str, default: int | None = None) -> int:
    values = tags.get(name)
    if values:
        return values[0]
    if default is None:
        raise ImageError(f"the TIFF does not tell its {name.replace('_', ' ')}", kind="corrupt")
    return default


def _orientation(tags: Tags) -> int:
    value = _one(tags, "orientation", 1)
    return value if 1 <= value <= 8 else 1


def _bits(tags: Tags, samples: int) -> int:
    bits = set(tags.get("bits", [1])[: max(samples, 1)])
    formats = set(tags.get("formats", [1]))
    if formats != {1}:
        raise ImageError(
            "TIFF images of floating-point or signed samples are not decoded: their values have no fixed range",
            kind="unsupported",
        )
    if len(bits) != 1 or not bits <= {1, 2, 4, 8, 16}:
        raise ImageError(f"TIFF images of {sorted(bits)} bits per sample are not decoded", kind="unsupported")
    return bits.pop()


def _check_parts(data: memoryview, header: TiffHeader) -> None:
    """Check that there are enough strips or tiles, of sane size, and that all lie in the file."""
    tags, width, height = header.tags, header.width, header.height
    kind = "tile" if "tile_offsets" in tags else "strip"
    offsets, counts = tags.get(f"{kind}_offsets", []), tags.get(f"{kind}_counts", [])
    if kind == "tile":
        across, down = _one(tags, "tile_width"), _one(tags, "tile_height")
        if not across or not down or across * down > max(_MAX_TILE_PIXELS, 4 * width * height):
            raise ImageError(f"the TIFF has tiles of {across} x {down} pixels", kind="corrupt")
    else:
        across, down = width, min(_one(tags, "rows_per_strip", height), height)
        if not down:
            raise ImageError("the TIFF has strips without rows", kind="corrupt")
    planes = header.samples if _one(tags, "planar", 1) == 2 else 1
    need = -(-width // across) * -(-height // down) * planes
    if len(offsets) < need or len(counts) < need:
        raise ImageError(f"the TIFF has {len(offsets)} {kind}s of {need}", kind="truncated")
    end = max(offset + count for offset, count in zip(offsets[:need], counts[:need]))
    if end > len(data):
        raise ImageError(f"the TIFF has {len(data)} bytes; its {kind}s go to byte {end}", kind="truncated")
    if _one(tags, "compression", _NONE) == _NONE:
        row = (across * header.bits * (header.samples if planes == 1 else 1) + 7) // 8
        last = height - (height - 1) // down * down if kind == "strip" else down
        per_plane = need // planes
        for part, count in enumerate(counts[:need]):
            rows = last if part % per_plane == per_plane - 1 else down
            if count < row * rows:
                raise ImageError(
                    f"the TIFF's {kind} {part} has {count} bytes, not {row * rows}", kind="truncated"
                )


def decode(data: memoryview, header: TiffHeader, mode: str | None) -> Raster:
    """Decode the pixels.

    Raises:
        ImageError: `"truncated"`: strips are missing, too short, or not in the file; `"corrupt"`.
    """
    _check_parts(data, header)
    tags = {name: values for name, values in header.tags.items() if name not in ("orientation", "formats")}
    if _one(tags, "planar", 1) == 2 and header.samples > 1:
        pixels = _planes(data, header, tags)
    else:
        pixels = _chunky(data, header, tags)
    if header.photometric == _WHITE_IS_ZERO:
        pixels[..., 0] = np.iinfo(pixels.dtype).max - pixels[..., 0]
    if header.photometric == _CMYK:
        return Raster(cmyk_to_rgb((pixels >> 8).astype(np.uint8) if pixels.dtype == np.uint16 else pixels))
    if header.photometric == _PALETTE:
        return Raster(pixels, _palette(header))
    return Raster(np.ascontiguousarray(pixels[..., : header.channels]))


def _planes(data: memoryview, header: TiffHeader, tags: Tags) -> npt.NDArray[Any]:
    if header.photometric == _YCBCR:
        raise ImageError("TIFF images with YCbCr in planes are not decoded", kind="unsupported")
    kind = "tile" if "tile_offsets" in tags else "strip"
    per_plane = len(tags[f"{kind}_offsets"]) // header.samples
    planes = []
    for sample in range(header.samples):
        part = slice(sample * per_plane, (sample + 1) * per_plane)
        plane = dict(tags, samples=[1], bits=[header.bits], photometric=[_BLACK_IS_ZERO], planar=[1])
        plane.pop("extra", None)
        plane[f"{kind}_offsets"] = tags[f"{kind}_offsets"][part]
        plane[f"{kind}_counts"] = tags[f"{kind}_counts"][part]
        planes.append(_gray(data, header, plane))
    return np.concatenate(planes, axis=2)


def _gray(data: memoryview, header: TiffHeader, tags: Tags) -> npt.NDArray[Any]:
    mode, raw = {1: ("1", "1"), 2: ("L", "L;2"), 4: ("L", "L;4"), 8: ("L", "L"), 16: ("I;16", "I;16N")}[
        header.bits
    ]
    return _run(data, header, tags, mode, raw)


def _chunky(data: memoryview, header: TiffHeader, tags: Tags) -> npt.NDArray[Any]:
    if header.photometric == _PALETTE:
        return _run(data, header, tags, "P", f"P;{header.bits}" if header.bits < 8 else "P")
    if header.photometric == _YCBCR:
        raw = "RGB" if _one(tags, "compression", _NONE) == _JPEG else "RGBX"
        return _run(data, header, tags, "RGB", raw)
    if header.samples == 1:
        return _gray(data, header, dict(tags, photometric=[_BLACK_IS_ZERO]))
    if header.photometric == _WHITE_IS_ZERO:
        tags = dict(tags, photometric=[_BLACK_IS_ZERO])
    mode = {2: "LA", 3: "RGB", 4: "CMYK" if header.photometric == _CMYK else "RGBA"}[header.samples]
    if header.bits == 8:
        raw = "RGBa" if header.extra == _PREMULTIPLIED else mode
        return _run(data, header, tags, mode, raw)
    if mode == "LA":
        # Four bytes a pixel, as RGBA has, each two of them one value.
        return _run(data, header, tags, "RGBA", "RGBA").view(np.uint16)
    # libtiff gives values in the machine's byte order; Pillow takes the byte that it calls the upper one.
    upper, lower = ("L", "B") if sys.byteorder == "little" else ("B", "L")
    pixels = _run(data, header, tags, mode, f"{mode};16{upper}").astype(np.uint16)
    pixels <<= 8
    pixels |= _run(data, header, tags, mode, f"{mode};16{lower}")
    return pixels


def _run(data: memoryview, header: TiffHeader, tags: Tags, mode: str, raw: str) -> npt.NDArray[Any]:
    clean, directory = with_tags(data, tags)
    name = _COMPRESSIONS[_one(tags, "compression", _NONE)]
    return run_libtiff(mode, header.width, header.height, clean, raw, name, directory)


def _palette(header: TiffHeader) -> npt.NDArray[np.uint8]:
    colours = np.array(header.tags["colours"], np.uint16).reshape(3, -1).T >> 8
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colours)] = colours
    return palette
