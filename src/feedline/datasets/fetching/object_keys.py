"""What an object key may be, alone and from a template: an opaque string that the store's client hands on unchanged."""

from __future__ import annotations

from typing import Any

from feedline.datasets.fetching.locations import MAX_LOCATION_BYTES, control_character
from feedline.errors import OptionError

__all__ = ["KeyRules"]


class KeyRules:
    """Keys are refused where a client would tidy them, or could not name them: never another object is fetched."""

    noun = "key"

    def check(self, value: Any) -> str:
        """Return the key.

        Raises:
            TypeError: it is not a `str`.
            OptionError: it is empty, begins or ends with `/`, has `//`, a segment `.` or `..`, a control character, or
                more than 64 KiB, or is not valid Unicode.
        """
        if not isinstance(value, str):
            raise TypeError(f"a key is a str, not a {type(value).__name__}: {value!r}")
        if not value:
            raise OptionError("a key may not be empty")
        for segment in value.split("/"):
            if segment in ("", ".", ".."):
                raise OptionError(
                    f"the key {self.show(value)!r} has a segment {segment!r}: a store's client would tidy it into "
                    "another key, so keys may not begin or end with '/', nor have '//', '.' or '..' as segments"
                )
        if (found := control_character(value)) is not None:
            raise OptionError(
                f"the key {self.show(value)!r} has a control character {found[1]} at place {found[0]}"
            )
        if (
            len(value) * 4 > MAX_LOCATION_BYTES
            and len(value.encode("utf-8", "surrogatepass")) > MAX_LOCATION_BYTES
        ):
            raise OptionError(f"a key may have at most {MAX_LOCATION_BYTES} bytes")
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise OptionError(f"the key {self.show(value)!r} is not valid Unicode") from None
        return value

    def show(self, value: Any) -> str:
        """Return the key as printable text."""
        if not isinstance(value, str):
            return repr(value)
        return value.encode("utf-8", "backslashreplace").decode("utf-8")

    def value_text(self, value: str) -> str:
        """Return `value` as it is; refused if empty, with `/` or with a control character."""
        if not value:
            raise OptionError("a value in a key may not be empty")
        if "/" in value:
            raise OptionError(f"a value in a key may not have '/': {value!r}")
        if (found := control_character(value)) is not None:
            raise OptionError(
                f"a value in a key may not have a control character: {found[1]} at place {found[0]}"
            )
        return value

    def check_component(self, text: str, start: int, end: int) -> None:
        """Refuse a key component around a value that is `.` or `..`."""
        stop = text.find("/", end)
        component = text[text.rfind("/", 0, start) + 1 : stop if stop >= 0 else len(text)]
        if component in (".", ".."):
            raise OptionError(f"a key component made from a value may not be {component!r}")
