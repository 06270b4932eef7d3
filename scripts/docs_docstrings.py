"""Prepares docstrings for the site: examples become blocks of code, and what is promised stands in paragraphs."""

from __future__ import annotations

import re
from typing import Any

import griffe

PROMISE = re.compile(r"^(Determinism|Concurrency): ?", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites each docstring as it is read; the source stays as it is."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called once for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(PROMISE.sub(r"\n**\1.** ", obj.docstring.value))


def fenced(text: str) -> str:
    """Return `text` with its examples between fences, up to the next empty line; Markdown would take `>>>` for quotations."""
    lines: list[str] = []
    inside = foreign = False
    for line in text.splitlines():
        if line.lstrip().startswith("```") and not inside:
            foreign = not foreign
        if not foreign and not inside and line.startswith(">>>"):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    if inside:
        lines.append("```")
    return "\n".join(lines)
