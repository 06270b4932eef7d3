"""The tree of errors: each fits a built-in type, pickles whole, and says what it was told."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

import feedline.errors
from feedline.errors import (
    CollateError,
    FeedlineError,
    FetchError,
    ImageError,
    MissingExtraError,
    NdfError,
    OptionError,
    StateError,
    TooManyFailures,
    WorkerDied,
    WorkerError,
)

EXAMPLES = [
    FeedlineError("plain", anything=[1, 2]),
    OptionError("batch_size must be at least 1, not 0"),
    StateError("the state does not fit:\n  a line"),
    NdfError("cut", kind="truncated_rows", path="rows.ndf"),
    CollateError("shapes differ", path="['x'][0]", positions=(1, 3)),
    ImageError("no pixels", kind="empty"),
    FetchError("gone", kind="status", index=("a", 1), location="https://host/x", attempts=3, status=404),
    FetchError("refused", kind="connection"),
    WorkerError("SystemExit out of user code", type_name="SystemExit", traceback_text="...", index=4),
    WorkerDied("killed", type_name="WorkerDied", exit_code=-9),
    TooManyFailures("4 items failed"),
    MissingExtraError.of("HttpDataset", "http"),
]
BUILT_IN = {
    OptionError: ValueError,
    StateError: ValueError,
    NdfError: ValueError,
    CollateError: TypeError,
    ImageError: ValueError,
    FetchError: OSError,
    WorkerError: RuntimeError,
    WorkerDied: WorkerError,
    TooManyFailures: RuntimeError,
    MissingExtraError: ImportError,
}


def everything(error):
    return type(error), error.args, vars(error), str(error), repr(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", [2, 5])
def test_an_error_pickles_with_all_that_it_carries(error, protocol) -> None:
    error = copy.copy(error)
    error.add_note("feedline: item 3")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert everything(again) == everything(error)
    assert again.__notes__ == ["feedline: item 3"]
    assert everything(copy.deepcopy(error)) == everything(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_says_its_message_and_is_caught_by_the_base(error) -> None:
    assert str(error) == error.args[0]
    assert isinstance(error, FeedlineError)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_each_fits_a_built_in_type(kind) -> None:
    assert issubclass(kind, BUILT_IN[kind])
    assert issubclass(kind, FeedlineError)


def test_facts_are_attributes() -> None:
    error = EXAMPLES[6]
    assert (error.kind, error.index, error.location, error.attempts, error.status) == (
        "status",
        ("a", 1),
        "https://host/x",
        3,
        404,
    )
    assert EXAMPLES[4].positions == (1, 3)
    assert EXAMPLES[9].exit_code == -9
    assert EXAMPLES[8].index == 4


def test_a_missing_extra_has_the_command() -> None:
    assert str(MissingExtraError.of("HttpDataset", "http")) == (
        "HttpDataset needs an optional library: pip install 'feedline[http]'"
    )


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = set(re.findall(r"(\w+)(?: \((\w+)\)|  )", feedline.errors.__doc__ or ""))
    for kind in BUILT_IN:
        own = [name for name, _ in drawn if name == kind.__name__]
        assert own, f"{kind.__name__} is missing in the tree"
        told = {base for name, base in drawn if name == kind.__name__ and base}
        assert told <= {BUILT_IN[kind].__name__}
    assert {kind.__name__ for kind in BUILT_IN} | {"FeedlineError"} == set(feedline.errors.__all__)


def test_no_attribute_is_shared_between_errors() -> None:
    one, two = NdfError("a", kind="empty", path="x"), NdfError("b", kind="bad_magic", path="y")
    assert (one.kind, two.kind) == ("empty", "bad_magic")
