"""Where items lie: a list, a function of the index, or a template, for paths, URLs and object keys alike.

What is common stands here; what each kind of location allows is a `LocationRules` of its own:

| kind | rules |
| --- | --- |
| paths | `paths.py` |
| URLs | `urls.py` |
| object keys | `object_keys.py` |
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from feedline.datasets.fetching.templates import Template, ValueRules
from feedline.datasets.indexing import check_index
from feedline.errors import FetchError, OptionError

__all__ = [
    "MAX_LOCATION_BYTES",
    "LocationRules",
    "Locations",
    "check_length",
    "control_character",
]

MAX_LOCATION_BYTES = 64 * 1024

L = TypeVar("L")
L_co = TypeVar("L_co", covariant=True)


class LocationRules(ValueRules, Protocol[L_co]):
    """What one kind of location allows; stateless, so that it pickles by name or as an empty object."""

    @property
    def noun(self) -> str:
        """`"path"`, `"URL"` or `"key"`, for messages."""
        ...

    def check(self, value: Any) -> L_co:
        """Return the location as it is fetched; an `OptionError` or `TypeError` that tells the rule, without secrets."""
        ...

    def show(self, value: Any) -> str:
        """Return the location for messages and attributes: printable, without a URL's query, user or password."""
        ...


@dataclass(frozen=True)
class _Listed:
    values: Any  # a tuple of checked locations

    def __call__(self, index: int) -> Any:
        return self.values[index]


@dataclass(frozen=True)
class _Rendered:
    template: Template
    rules: LocationRules[Any]

    def __call__(self, index: int) -> Any:
        return self.template.render(index, self.rules)


class Locations(Generic[L]):
    """The locations of a dataset's items, in one of three forms.

    `locate(index)` gives one; `show(location)` gives its text for messages.

    Concurrency: immutable; any thread may ask. Pickles as its list, function or template does.
    """

    def __init__(self, rules: LocationRules[L], source: Callable[[int], Any], length: int) -> None:
        self._rules = rules
        self._source = source
        self._length = length
        self._values: tuple[L, ...] | None = source.values if isinstance(source, _Listed) else None

    @classmethod
    def listed(cls, rules: LocationRules[L], values: Any, name: str) -> Locations[L]:
        """Take a list (any ordered iterable) of locations, all checked now; `name` is the argument's, for messages.

        Raises:
            TypeError: one bare location instead of a list, an unordered set, or an element of a wrong type.
            OptionError: a location that the rules refuse; with its position.
        """
        return cls(rules, source := _Listed(_check_list(rules, values, name)), len(source.values))

    @classmethod
    def from_function(cls, rules: LocationRules[L], function: Any, length: Any) -> Locations[L]:
        """Take a function of the index (0 to `length - 1`), called when an item is fetched.

        Raises:
            TypeError: `function` can't be called, or `length` is not an int.
            OptionError: `length` is negative.
        """
        if not callable(function):
            raise TypeError(f"the location function must be callable, not a {type(function).__name__}")
        return cls(rules, function, check_length(length))

    @classmethod
    def from_template(
        cls, rules: LocationRules[L], template: Any, columns: Mapping[str, Any] | None, length: Any
    ) -> Locations[L]:
        """Take a template, parsed now, with item 0 rendered and checked; the others when they are fetched.

        Raises:
            TypeError, OptionError: as `Template.build` does, and for a location of item 0 that the rules refuse.
        """
        built = Template.build(template, columns, None if length is None else check_length(length))
        source = _Rendered(built, rules)
        if built.length:
            try:
                rules.check(source(0))
            except OptionError as error:
                raise OptionError(f"item 0 of the template: {error}") from None
        return cls(rules, source, built.length)

    def __len__(self) -> int:
        """Return the number of items."""
        return self._length

    def locate(self, index: Any) -> tuple[int, L]:
        """Return the item's index, counted from 0, and its location.

        Raises:
            IndexError: there is no such item; a negative index counts from the end, and never wraps twice.
            TypeError: the index is not an integer.
            FetchError: (`"location"`) the location that a function or a template gave is refused.
            Exception: whatever a location function raises.
        """
        if type(index) is int and 0 <= index < self._length:
            place = index
        else:
            place = check_index(index, self._length, f"a dataset of {self._rules.noun}s")
        if self._values is not None:
            return place, self._values[place]
        if not isinstance(self._source, _Rendered):
            return place, self._checked(place, self._source(place))
        try:
            text = self._source(place)
        except OptionError as error:
            message = str(error)
        else:
            return place, self._checked(place, text)
        raise FetchError(f"item {place}: {message}", kind="location", index=place)

    def show(self, location: Any) -> str:
        """Return the location for messages: without a URL's query, user or password."""
        return self._rules.show(location)

    def _checked(self, index: int, value: Any) -> L:
        try:
            return self._rules.check(value)
        except (OptionError, TypeError) as error:
            message = str(error)
        # Raised outside of the handler: a chained error would drag frames along that hold the location's secrets.
        raise FetchError(
            f"item {index}: {message}", kind="location", index=index, location=self._rules.show(value)
        )


def _check_list(rules: LocationRules[L], values: Any, name: str) -> tuple[L, ...]:
    if isinstance(values, (str, bytes)) or hasattr(values, "__fspath__"):
        raise TypeError(f"{name} must be a list of {rules.noun}s, not one {rules.noun}: write [{rules.noun}]")
    if isinstance(values, (set, frozenset)):
        raise TypeError(f"{name} is a set, whose order changes from run to run: write sorted({name})")
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {rules.noun}s, not a {type(values).__name__}")
    if isinstance(values, np.ndarray):
        values = values.tolist()
    elif hasattr(values, "to_pylist"):  # an Arrow array, whose elements are not str
        values = values.to_pylist()
    checked: list[L] = []
    for position, value in enumerate(values):
        try:
            checked.append(rules.check(value))
        except (OptionError, TypeError) as error:
            raise type(error)(f"{name}[{position}]: {error}") from None
    return tuple(checked)


def check_length(length: Any) -> int:
    """Return `length` as an int from 0 to `sys.maxsize`; a `TypeError` or an `OptionError` otherwise."""
    try:
        count = operator.index(length)
    except TypeError:
        raise TypeError(f"length must be an int, not {type(length).__name__} {length!r}") from None
    if isinstance(length, bool) or not 0 <= count <= sys.maxsize:
        raise OptionError(f"length must be an int from 0 to {sys.maxsize}, not {length!r}")
    return count


def control_character(text: str) -> tuple[int, str] | None:
    """Return place and escaped form of the first control character (Unicode category Cc), or `None`."""
    for place, character in enumerate(text):
        code = ord(character)
        if code < 0x20 or 0x7F <= code < 0xA0:
            return place, f"\\x{code:02x}"
    return None
