"""What an object store's dataset fetches for one item: a whole object, or a range of bytes of one."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from feedline.datasets.fetching.object_keys import KeyRules
from feedline.errors import OptionError

__all__ = ["ObjectRange", "StoreLocation", "StoreLocationRules"]

_MAX_OFFSET = 2**63 - 1
_KEYS = KeyRules()
# The local store keeps this ending for its own unfinished uploads, and refuses to read such names.
_UPLOAD_ENDING = re.compile(r"#[0-9]+\Z")


class ObjectRange(NamedTuple):
    """The bytes `start` to `end` of an object, `end` not included."""

    key: str
    start: int
    end: int


StoreLocation: TypeAlias = "str | ObjectRange"


@dataclass(frozen=True)
class StoreLocationRules:
    r"""Keys and ranges of one store; the rules of `LocationRules`.

    Attributes:
        place: the store in messages, such as `"s3://bucket/prefix"`; without credentials.
        service: `"azure"` and `"local"` stores can't name every key: Azure takes `\` for `/`, and the local store keeps names
            that end in `#` and digits for itself.
        takes: a `"key"`, a `"range"`, or `"either"`.
        max_bytes: the longest range, or `None` if nobody has to check.
    """

    place: str
    service: Literal["azure", "local", "memory", "other"] = "other"
    takes: Literal["key", "range", "either"] = "key"
    max_bytes: int | None = None

    @property
    def noun(self) -> str:
        """The word for messages."""
        return "(key, start, end) range" if self.takes == "range" else "key"

    def check(self, value: Any) -> StoreLocation:
        """Return the key as it is, or an `ObjectRange`.

        Raises:
            TypeError: it is neither a `str`, nor (where ranges are allowed) a `(str, int, int)`.
            OptionError: a key that the store's client would tidy or can't name, a range that ends before it starts, or
                one of more than `max_bytes`.
        """
        if self.takes == "key" or (self.takes == "either" and isinstance(value, str)):
            return self._check_key(value)
        if isinstance(value, (str, bytes)) or not isinstance(value, (tuple, list)) or len(value) != 3:
            raise TypeError(f"a range is (key, start, end), not {type(value).__name__} {value!r}")
        key, start, end = self._check_key(value[0]), _offset("start", value[1]), _offset("end", value[2])
        if end < start:
            raise OptionError(f"the range {start} to {end} of {key!r} ends before it starts")
        if self.max_bytes is not None and end - start > self.max_bytes:
            raise OptionError(
                f"the range {start} to {end} of {key!r} has {end - start} bytes, more than max_bytes={self.max_bytes}"
            )
        return ObjectRange(key, start, end)

    def show(self, value: Any) -> str:
        """Return the object in its store, with its range, as printable text."""
        if isinstance(value, str):
            return f"{self.place}/{_KEYS.show(value)}"
        if isinstance(value, tuple) and len(value) == 3:
            return f"{self.place}/{_KEYS.show(value[0])}[{value[1]}:{value[2]}]"
        return f"{self.place}: {value!r}"

    def value_text(self, value: str) -> str:
        """Return `value` as it is written into a key."""
        return _KEYS.value_text(value)

    def check_component(self, text: str, start: int, end: int) -> None:
        """Refuse a key component around a value that is `.` or `..`."""
        _KEYS.check_component(text, start, end)

    def _check_key(self, value: Any) -> str:
        key = _KEYS.check(value)
        if self.service == "azure" and "\\" in key:
            raise OptionError(
                f"the key {key!r} has a backslash: Azure takes it for '/', which is another key"
            )
        if self.service == "local" and _UPLOAD_ENDING.search(key):
            raise OptionError(
                f"the key {key!r} ends in '#' and digits: a local store keeps such names for unfinished uploads "
                "and can't read them; FileDataset can"
            )
        return key


def _offset(name: str, value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} of a range must be an int, not {value!r}")
    try:
        offset = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} of a range must be an int, not {type(value).__name__} {value!r}") from None
    if not 0 <= offset <= _MAX_OFFSET:
        raise OptionError(f"{name} of a range must be from 0 to 2**63 - 1, not {offset}")
    return offset
