"""The document of a state: there and back, and what two fingerprints have different."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from feedline.loader.failures import Failure
from feedline.loader.state import VERSION, LoaderState, differences

counts = st.integers(0, 2**64)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
failures = st.builds(
    Failure,
    st.one_of(st.integers(), st.text()),
    st.one_of(st.none(), st.text()),
    counts,
    counts,
    st.text(),
    st.text(),
)


@given(
    counts,
    counts,
    counts,
    st.dictionaries(st.text(max_size=5), values, max_size=4),
    st.lists(failures, max_size=3),
    st.one_of(st.none(), counts),
    st.one_of(st.none(), st.fixed_dictionaries({"read": counts, "state": values})),
    st.sets(st.integers(1, 9), max_size=3),
)
def test_a_state_survives_json(epoch, position, batch, fingerprint, failed, entropy, stream, ahead) -> None:
    state = LoaderState(
        epoch=epoch,
        position=position,
        batch=batch,
        fingerprint=fingerprint,
        ahead=tuple(sorted(batch + number for number in ahead)),
        entropy=entropy,
        failures=tuple(failed),
        stream=stream,
    )
    document = json.loads(json.dumps(state.as_dict()))
    assert document["version"] == VERSION == 1
    assert LoaderState.from_dict(document) == state
    assert ("stream" in document, "entropy" in document, "ahead" in document) == (
        stream is not None,
        entropy is not None,
        bool(ahead),
    )


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_a_fingerprint_does_not_differ_from_itself(fingerprint) -> None:
    assert differences(fingerprint, json.loads(json.dumps(fingerprint))) == []


def test_each_difference_has_a_line_with_its_path() -> None:
    old = {"dataset": {"kind": "a", "length": 3}, "seed": 1, "only": None}
    new = {"dataset": {"kind": "a", "length": 4}, "seed": None, "more": {"x": [1]}}
    assert differences(old, new) == [
        "dataset.length: the state has 3, the loader has 4",
        "seed: the state has 1, the loader has None",
        "only: the state has None, the loader has nothing",
        "more.x: the state has nothing, the loader has [1]",
    ]
