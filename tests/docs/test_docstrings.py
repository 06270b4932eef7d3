"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

from feedline.errors import MissingExtraError

SOURCE = Path(__file__).parents[2] / "src"
WITH_EXAMPLES = sorted(
    path for path in SOURCE.glob("feedline/**/*.py") if ">>> " in path.read_text(encoding="utf-8")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Runner(doctest.DocTestRunner):
    """Collects failures as text; an example that needs a library that is not installed skips the test."""

    def __init__(self) -> None:
        super().__init__(optionflags=FLAGS)
        self.report: list[str] = []

    def report_unexpected_exception(self, out, test, example, exc_info) -> None:
        skip_if_a_library_is_missing(exc_info[1])
        super().report_unexpected_exception(out, test, example, exc_info)

    def run_all(self, module: object) -> int:
        """Run the examples of `module`; return how many there were."""
        tried = 0
        # `np` is understood everywhere, as in NumPy's own documentation.
        for test in doctest.DocTestFinder().find(module, extraglobs={"np": np}):
            tried += len(test.examples)
            self.run(test, out=self.report.append)
        return tried


def skip_if_a_library_is_missing(error: BaseException | None) -> None:
    if isinstance(error, MissingExtraError):
        pytest.skip(str(error))
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] != "feedline":
        pytest.skip(f"needs {error.name}")


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_module_hold(path: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name_of(path))
    except ImportError as error:
        skip_if_a_library_is_missing(error)
        raise
    runner = Runner()
    assert runner.run_all(module), "the source has examples, but in no docstring"
    assert not runner.report, "".join(runner.report)


def test_an_example_that_does_not_hold_is_found() -> None:
    def wrong() -> None:
        """Promise too much.

        >>> 1 + 1
        3
        """

    runner = Runner()
    assert runner.run_all(wrong) == 1
    assert "Expected" in "".join(runner.report)
