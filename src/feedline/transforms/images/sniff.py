"""Which format bytes are in, told by their beginning; a name's ending is never asked."""

from __future__ import annotations

from typing import Literal

from feedline.errors import ImageError

__all__ = ["Format", "format_of"]

Format = Literal["JPEG", "PNG", "WebP", "TIFF", "BMP", "GIF"]

_SIGNATURES: tuple[tuple[bytes, Format], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)
# Formats that are images, but not ours: told apart from text and damage for the message.
_KNOWN_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (4, b"ftypavif", "AVIF"),
    (4, b"ftypheic", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"II+\0", "BigTIFF"),
    (0, b"MM\0+", "BigTIFF"),
    (0, b"8BPS", "Photoshop"),
)
# Sizes of the info header that may follow a BMP's file header.
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})


def format_of(data: memoryview) -> Format:
    """Return the format that `data` begins like.

    Raises:
        ImageError: `"empty"`; `"truncated"` (a whole signature does not fit); `"unsupported"` (an image of another
            format); `"not_an_image"`, which shows the first bytes.
    """
    head = bytes(data[:32])
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if not head:
        raise ImageError("no bytes at all: the image is empty", kind="empty")
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    if head[:2] == b"BM" and len(head) >= 18 and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "BMP"
    for start, signature, other in _KNOWN_OTHERS:
        if head.startswith(signature, start):
            raise ImageError(
                f"{other} images are not decoded, only JPEG, PNG, WebP, TIFF, BMP and GIF", kind="unsupported"
            )
    if any(signature.startswith(head) for signature, _ in _SIGNATURES):
        raise ImageError(f"the image ends after {len(head)} bytes: {head!r}", kind="truncated")
    raise ImageError(
        f"{len(data)} bytes that are no JPEG, PNG, WebP, TIFF, BMP or GIF image{_guess(head)}: they begin with {head!r}",
        kind="not_an_image",
    )


def _guess(head: bytes) -> str:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return " but an HTML page (an error page saved in its place?)"
    if start.startswith((b"<?xml", b"<svg", b"<error")):
        return " but XML"
    if start.startswith((b"{", b"[")):
        return " but probably JSON"
    if b"\xff\xd8\xff" in head or b"\x89PNG" in head:
        return "; bytes stand before the image, and are not skipped"
    return ""
