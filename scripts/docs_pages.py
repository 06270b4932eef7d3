"""Adds to the site what lies outside of docs/, orders it, and refuses pages that would fetch something from the web.

The project's own pages (ARCHITECTURE.md and others), the examples and the benchmarks become pages, and links between files
of the repository become links between pages. So the same text reads well in a checkout and on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
FENCED = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
FETCHES = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:)?//|<link[^>]*stylesheet[^>]*\shref=[\"']?(https?:)?//"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and complete the navigation."""
    for name in PROJECT:
        add(files, config, f"project/{name.lower()}", (ROOT / name).read_text(encoding="utf-8"))
    for path in (*sorted(ROOT.glob("examples/*.py")), *sorted(ROOT.glob("benchmarks/[a-z]*.py"))):
        source = path.read_text(encoding="utf-8")
        folder = path.parent.name
        add(
            files,
            config,
            f"{folder}/{path.stem}.md",
            f"---\nsearch: {{exclude: true}}\n---\n\n# {folder}/{path.name}\n\n````python\n{source}````\n",
        )
    config.nav = expanded(config.nav or [], files)
    return files


def add(files: Files, config: MkDocsConfig, uri: str, content: str) -> None:
    """Add a page that has no file in docs/."""
    files.append(File.generated(config, uri, content=content))


def expanded(nav: list[Any], files: Files) -> list[Any]:
    """Return `nav` with the pages of a folder in place of its name; sections without a page are left out."""
    taken = set(named(nav))
    return list(expand(nav, files, taken))


def expand(entries: list[Any], files: Files, taken: set[str]) -> list[Any]:
    """Return the entries of one section."""
    result: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/"):
            pages = [
                f
                for f in files.documentation_pages()
                if f.src_uri.startswith(entry) and f.src_uri not in taken
            ]
            result += [page.src_uri for page in sorted(pages, key=title_of)]
        elif isinstance(entry, dict) and isinstance(inner := next(iter(entry.values())), list):
            if section := expand(inner, files, taken):
                result.append({next(iter(entry)): section})
        else:
            result.append(entry)
    return result


def named(entries: list[Any]) -> list[str]:
    """Return the pages that the navigation names one by one."""
    found: list[str] = []
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += named(value) if isinstance(value, list) else [value]
    return found


def title_of(file: File) -> str:
    """Return a page's first heading, in lower case."""
    heading = re.search(r"^# (.*)$", file.content_string, re.MULTILINE)
    return heading[1].lower() if heading else file.src_uri


def source_of(uri: str) -> str:
    """Return where a page of the site comes from, relative to the repository."""
    folder, _, name = uri.partition("/")
    if folder == "project":
        return f"{name.removesuffix('.md').upper()}.md"
    if folder in ("examples", "benchmarks"):
        return f"{folder}/{name.removesuffix('.md')}.py"
    return f"docs/{uri}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files into links between pages."""
    pages = {source_of(file.src_uri): file.src_uri for file in files}
    pages["README.md"] = "index.md"
    here = posixpath.dirname(source_of(page.file.src_uri))

    def relinked(match: re.Match[str]) -> str:
        if "://" in match[1]:
            return match[1]
        target = pages.get(posixpath.normpath(posixpath.join(here, match[1])))
        return (
            match[1]
            if target is None
            else posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")
        )

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(relinked, part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that would fetch something from elsewhere when it is read."""
    if found := FETCHES.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch from the web when it is read: {found[0]}")
    return output
