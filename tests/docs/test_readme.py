"""The Python in README and the other pages runs as it stands there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from feedline.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")}
)
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> list[tuple[int, str]]:
    """Return the line and the source of each block of Python."""
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in FENCE.finditer(text)]


def skip_if_a_library_is_missing(error: ImportError) -> None:
    missing = (error.name or "").split(".")[0]
    if isinstance(error, MissingExtraError) or (missing and missing != "feedline"):
        pytest.skip(str(error))


def run_page(text: str, name: str) -> None:
    """Run the blocks of a page; one that needs a library that is not installed here skips the test, and says so."""
    try:
        run_blocks(text, name)
    except ImportError as error:
        skip_if_a_library_is_missing(error)
        raise


def run_blocks(text: str, name: str) -> dict[str, object]:
    """Run all blocks of a page in order, in one namespace, as a reader would who follows along."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, source in blocks_of(text):
        if source.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(source, namespace, name, name, line - 1)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            report: list[str] = []
            runner.run(test, out=report.append, clear_globs=False)
            namespace.update(test.globs)
            assert not runner.summarize(verbose=False).failed, "".join(report)
        else:
            exec(compile("\n" * (line - 1) + source, name, "exec"), namespace)
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, tmp_path, monkeypatch, request) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if "import ray" not in text:  # which keeps descriptors of its own until the process ends
        request.getfixturevalue("nothing_left")
    assert text.count("```python") == len(blocks_of(text)), "a block of Python is not closed, or is indented"
    run_page(text, str(page))


def test_the_readme_has_python_to_run() -> None:
    assert blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    dead = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not dead


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "```python\nx = 1\n```\n```python\nassert x == 2\n```\n",
    ],
    ids=["an error", "another result", "a block that builds on another"],
)
def test_python_that_does_not_hold_is_found(text: str) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)):
        run_blocks(text, "page")
