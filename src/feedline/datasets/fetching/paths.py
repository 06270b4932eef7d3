"""What a file path may be, alone and from a template."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from feedline.datasets.fetching.locations import MAX_LOCATION_BYTES
from feedline.errors import OptionError

__all__ = ["FilePath", "PathRules"]

#: A path as the operating system takes it; bytes stay bytes, so undecodable names work.
FilePath: TypeAlias = str | bytes

_SEPARATORS = "/\\" if os.sep == "\\" else "/"


class PathRules:
    """Paths are `str`, `bytes` or `os.PathLike`, not empty, without NUL; nothing else is asked before they are opened."""

    noun = "path"

    def check(self, value: Any) -> FilePath:
        """Return the path as `str` or `bytes`.

        Raises:
            TypeError: it is neither a `str`, nor `bytes`, nor an `os.PathLike`.
            OptionError: it is empty, has a NUL, or more than 64 KiB.
        """
        if not isinstance(value, (str, bytes, os.PathLike)):
            raise TypeError(f"a path is a str, bytes or os.PathLike, not a {type(value).__name__}: {value!r}")
        path: FilePath = os.fspath(value)
        if not path:
            raise OptionError("a path may not be empty")
        if (0 in path) if isinstance(path, bytes) else ("\0" in path):
            raise OptionError(f"a path may not have a NUL: {path!r}")
        if len(path) * 4 > MAX_LOCATION_BYTES and _size(path) > MAX_LOCATION_BYTES:
            raise OptionError(f"a path may have at most {MAX_LOCATION_BYTES} bytes, not {_size(path)}")
        return path

    def show(self, value: Any) -> str:
        """Return the path as printable text, undecodable bytes as `\\xNN`."""
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape" if _is_escaped(value) else "surrogatepass")
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else repr(value)

    def value_text(self, value: str) -> str:
        r"""Return `value` as it is; refused with `/`, `\` or NUL, which would leave its path component."""
        for character, name in (("/", "/"), ("\\", "\\"), ("\0", "NUL")):
            if character in value:
                raise OptionError(f"a value in a path may not have {name}: {value!r}")
        return value

    def check_component(self, text: str, start: int, end: int) -> None:
        """Refuse a path component around a value that is empty, `.` or `..`."""
        begin = max(text.rfind(separator, 0, start) for separator in _SEPARATORS) + 1
        ends = [place for separator in _SEPARATORS if (place := text.find(separator, end)) >= 0]
        component = text[begin : min(ends, default=len(text))]
        if component in ("", ".", ".."):
            raise OptionError(f"a path component made from a value may not be {component!r}")


def _size(path: FilePath) -> int:
    return len(path if isinstance(path, bytes) else path.encode("utf-8", "surrogatepass"))


def _is_escaped(text: str) -> bool:
    # Only U+DC80 to U+DCFF stand for undecodable bytes; other lone surrogates can't be written that way.
    return not any(
        0xD800 <= ord(character) <= 0xDFFF and not 0xDC80 <= ord(character) <= 0xDCFF for character in text
    )
