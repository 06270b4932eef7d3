"""Templates of locations: parsed once, filled for one item at a time. Pure text; `locations.py` says which text is allowed.

Grammar: literal text; `{name}` with `name` an identifier; `{{` and `}}` for braces. Integers may carry a width with
leading zeros, `{index:06}`. `{index}` is built in; every other name is a column.

Offsets in errors are bytes of the template's UTF-8 form, from 0. The template's own text is never shown: it may hold a
signature or a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from feedline.datasets.fetching.columns import Column
from feedline.errors import OptionError

__all__ = ["MAX_COLUMNS", "MAX_TEMPLATE_BYTES", "MAX_WIDTH", "Template", "ValueRules", "parse_template"]

MAX_TEMPLATE_BYTES = 8 * 1024
MAX_COLUMNS = 64
MAX_WIDTH = 20

_BRACE = re.compile(r"[{}]")
_WIDTH = re.compile(r"0([1-9][0-9]?)", re.ASCII)


class ValueRules(Protocol):
    """What a kind of location does to the values that are put into it."""

    def value_text(self, value: str) -> str:
        """Return `value` as it is written; an `OptionError` that tells the rule, if it may not be there."""
        ...

    def check_component(self, text: str, start: int, end: int) -> None:
        """Raise an `OptionError` if the component of the rendered `text` around the value `[start, end)` is refused."""
        ...


@dataclass(frozen=True)
class Placeholder:
    """One `{name}` or `{name:0N}`; `width` is 0 without one, `offset` that of its `{`."""

    name: str
    width: int
    offset: int


@dataclass(frozen=True)
class Template:
    """A template with its columns: `render` makes the location of one item.

    Attributes:
        parts: literal text and placeholders, in order.
        columns: the column of each name but `index`.
        length: number of items.

    Concurrency: immutable; any thread may render. Pickles with its columns.
    """

    parts: tuple[str | Placeholder, ...]
    columns: Mapping[str, Column]
    length: int

    @classmethod
    def build(
        cls, template: Any, columns: Mapping[str, Any] | None = None, length: int | None = None
    ) -> Template:
        """Parse `template` and join it with its columns.

        Args:
            template: the text.
            columns: a column, or what `Column` takes, for each name in the template but `index`.
            length: number of items; needed without columns, must agree with them otherwise.

        Raises:
            TypeError: the template is not a `str`, or a column has neither ints nor strings.
            OptionError: the grammar, a limit or the columns are not as told above; with the byte offset or the column.
        """
        parts = parse_template(template)
        named = _check_columns(columns)
        _match_names(parts, named)
        return cls(parts, named, _common_length(named, length))

    def render(self, index: int, rules: ValueRules) -> str:
        """Return the location of item `index` (0 to `length - 1`).

        Raises:
            OptionError: a value that `rules` refuse; the message names the column, and never shows the value.
        """
        pieces: list[str] = []
        spans: list[tuple[int, int, str]] = []
        at = 0
        for part in self.parts:
            if isinstance(part, str):
                piece = part
            else:
                piece = self._fill(part, index, rules)
                spans.append((at, at + len(piece), part.name))
            pieces.append(piece)
            at += len(piece)
        text = "".join(pieces)
        for start, end, name in spans:
            try:
                rules.check_component(text, start, end)
            except OptionError as error:
                raise OptionError(f"column {name!r}, item {index}: {error}") from None
        return text

    def _fill(self, part: Placeholder, index: int, rules: ValueRules) -> str:
        value = index if part.name == "index" else self.columns[part.name][index]
        if isinstance(value, int):
            return f"{value:0{part.width}d}" if part.width else str(value)
        try:
            return rules.value_text(value)
        except OptionError as error:
            raise OptionError(f"column {part.name!r}, item {index}: {error}") from None


def parse_template(template: Any) -> tuple[str | Placeholder, ...]:
    """Split a template into literal text and placeholders; raises as `Template.build` does for grammar and size."""
    if not isinstance(template, str):
        raise TypeError(f"a template is a str, not a {type(template).__name__}")
    size = _byte_length(template)
    if size > MAX_TEMPLATE_BYTES:
        raise OptionError(f"the template has {size} bytes; at most {MAX_TEMPLATE_BYTES} are allowed")
    parts: list[str | Placeholder] = []
    literal: list[str] = []
    at = 0
    while (match := _BRACE.search(template, at)) is not None:
        brace = match.start()
        literal.append(template[at:brace])
        if template.startswith(("{{", "}}"), brace):
            literal.append(template[brace])
            at = brace + 2
            continue
        _flush(literal, parts)
        at = _read_placeholder(template, brace, parts)
    literal.append(template[at:])
    _flush(literal, parts)
    if all(isinstance(part, str) for part in parts):
        raise OptionError(
            "the template has no placeholder, so every item would have one location: write {index} or a column's name in braces"
        )
    return tuple(parts)


def _flush(literal: list[str], parts: list[str | Placeholder]) -> None:
    text = "".join(literal)
    literal.clear()
    if text:
        parts.append(text)


def _read_placeholder(template: str, brace: int, parts: list[str | Placeholder]) -> int:
    offset = _byte_length(template[:brace])
    if template[brace] == "}":
        raise OptionError(f"the template has a lone }} at byte {offset}: write }}}} for a brace")
    end = template.find("}", brace)
    inner = template[brace + 1 : end]
    if end < 0 or "{" in inner:
        raise OptionError(
            f"the template has an unclosed {{ at byte {offset}: close it with }}, or write {{{{ for a brace"
        )
    name, colon, spec = inner.partition(":")
    if not name.isidentifier():
        raise OptionError(
            f"the placeholder at byte {offset} of the template has no valid name: {name!r} is not an identifier"
        )
    width = 0
    if colon:
        match = _WIDTH.fullmatch(spec)
        width = int(match[1]) if match else 0
        if not 1 <= width <= MAX_WIDTH:
            raise OptionError(
                f"the width of {{{name}}} at byte {offset} of the template must be written {{{name}:0N}} with N from 1 to {MAX_WIDTH}, not {spec!r}"
            )
    parts.append(Placeholder(name, width, offset))
    return end + 1


def _check_columns(columns: Mapping[str, Any] | None) -> dict[str, Column]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a mapping of names to sequences, not a {type(columns).__name__}")
    if len(columns) > MAX_COLUMNS:
        raise OptionError(f"a template takes at most {MAX_COLUMNS} columns, not {len(columns)}")
    named: dict[str, Column] = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a column is a str, not {name!r}")
        if name == "index":
            raise OptionError("no column may be called 'index': {index} is the item's index")
        try:
            named[name] = Column(values)
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from None
    return named


def _match_names(parts: tuple[str | Placeholder, ...], columns: dict[str, Column]) -> None:
    used = set()
    for part in parts:
        if isinstance(part, str):
            continue
        if part.name != "index" and part.name not in columns:
            known = ", ".join(["index", *columns])
            raise OptionError(
                f"the placeholder {{{part.name}}} at byte {part.offset} of the template is unknown; there are: {known}"
            )
        if part.width and part.name != "index" and columns[part.name].kind == "str":
            raise OptionError(
                f"column {part.name!r} holds strings, so {{{part.name}}} at byte {part.offset} of the template takes no width"
            )
        used.add(part.name)
    for name in columns:
        if name not in used:
            raise OptionError(f"the template does not use column {name!r}")


def _common_length(columns: dict[str, Column], length: int | None) -> int:
    lengths = {name: len(column) for name, column in columns.items()}
    if not lengths:
        if length is None:
            raise OptionError("a template that uses only {index} needs length=, the number of items")
        return length
    name, first = next(iter(lengths.items()))
    for other, count in lengths.items():
        if count != first:
            raise OptionError(
                f"all columns must have one length: {name!r} has {first} values, {other!r} has {count}"
            )
    if length is not None and length != first:
        raise OptionError(f"length={length} does not agree with column {name!r}, which has {first} values")
    return first


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
