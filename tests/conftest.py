"""What all tests share: property-test settings, the check for leftovers, and the list of what was skipped.

The time limit of a test lies in `pyproject.toml`: after it, the stacks of all threads are printed and the test fails.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from leftovers import Snapshot, left_since

# No deadline per example: a loaded machine is no failure. In CI the examples are the same in every run, so that a red
# build is red again when somebody looks; elsewhere new ones are drawn, and what failed is kept in .hypothesis/.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_configure() -> None:
    # A run in the background (`scripts/test &`) inherits that Ctrl-C is ignored, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail the test if a thread, a child process or a descriptor that it made is still there 5 seconds after it."""
    before = Snapshot.take()
    yield
    left = left_since(before)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested and why, by reason: a list of lines of code hides that a whole part was left out."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if not reasons:
        return
    terminalreporter.section("not tested, and why")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5} {'test' if count == 1 else 'tests'}: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
