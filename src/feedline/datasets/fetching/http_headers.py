"""The headers that a user wants sent, as lines that can be sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from feedline.errors import OptionError

__all__ = ["default_lines", "header_lines"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REFUSED = {
    "range": "an item is a whole resource: for ranges use ObjectStoreDataset(..., ranges=...)",
    "if-range": "an item is a whole resource",
    "if-none-match": "an answer without a body is no item",
    "if-modified-since": "an answer without a body is no item",
    "if-match": "an answer without a body is no item",
    "if-unmodified-since": "an answer without a body is no item",
    "content-length": "a request has no body",
    "transfer-encoding": "a request has no body",
    "expect": "a request has no body",
    "connection": "connections are kept by the client",
    "upgrade": "only HTTP/1.1 is spoken",
}
_DEFAULTS = {"accept-encoding": b"Accept-Encoding: identity", "user-agent": b"User-Agent: feedline"}


def default_lines() -> tuple[bytes, ...]:
    """Return the lines that a request has whatever the user says, for origins that get none of the user's headers."""
    return tuple(_DEFAULTS.values())


def header_lines(headers: Mapping[str, str] | None) -> tuple[bytes, ...]:
    """Return `headers` as lines, with the defaults for `Accept-Encoding` and `User-Agent` where they have none.

    Raises:
        TypeError: not a mapping of `str` to `str`.
        OptionError: a name that is no token; a value with a line break, a control character or a character beyond
            Latin-1; a header that would change what a request is. Messages never show a value.
    """
    if headers is None:
        headers = {}
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of names to values, not a {type(headers).__name__}")
    lines: dict[str, bytes] = dict(_DEFAULTS)
    given: set[str] = set()
    for name, value in headers.items():
        key, line = _line(name, value)
        if key in given:
            raise OptionError(f"headers has {name!r} twice, in different spelling")
        given.add(key)
        lines[key] = line
    return tuple(lines.values())


def _line(name: Any, value: Any) -> tuple[str, bytes]:
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError(f"headers must map str to str, not {type(name).__name__} to {type(value).__name__}")
    if not _TOKEN.fullmatch(name):
        raise OptionError(f"{name!r} is not the name of a header")
    key = name.lower()
    if key in _REFUSED:
        raise OptionError(f"the header {name!r} can't be set: {_REFUSED[key]}")
    if _BAD_VALUE.search(value):
        raise OptionError(f"the value of the header {name!r} has a line break or a control character")
    try:
        encoded = value.strip(" \t").encode("latin-1")
    except UnicodeEncodeError:
        raise OptionError(f"the value of the header {name!r} has characters beyond Latin-1") from None
    # libcurl takes "Name:" as "leave this header out", and "Name;" as a header without a value.
    return key, name.encode("ascii") + (b": " + encoded if encoded else b";")
