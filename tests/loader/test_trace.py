"""The trace of an epoch: valid for Perfetto, complete, and true."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from feedline import ArrayDataset, DataLoader
from loading import AsyncSquares, Broken, CountingStream, Squares


def record(path: Any, loader: DataLoader, epochs: int = 1) -> list[dict[str, Any]]:
    with loader, loader.trace(path):
        for _ in range(epochs):
            for _ in loader:
                pass
    return read(path)


def read(path: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def tracks(events: list[dict[str, Any]]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def spans(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name and event["ph"] in "Xb"]


KINDS = [
    pytest.param(Squares(), {}, "the calling thread", id="calling thread"),
    pytest.param(Squares(), {"num_workers": 2}, "worker thread", id="threads"),
    pytest.param(
        Squares(), {"num_workers": 1, "worker_type": "process"}, "worker process 0 (pid", id="processes"
    ),
    pytest.param(AsyncSquares(), {"num_workers": 2}, "event loop", id="event loop"),
    pytest.param(CountingStream(), {"num_workers": 2}, "reader", id="stream"),
    pytest.param(ArrayDataset(np.zeros(23)), {}, "the calling thread", id="arrays"),
    pytest.param(ArrayDataset(np.zeros(23)), {"num_workers": 1}, "worker thread", id="arrays in threads"),
]


@pytest.mark.parametrize(("dataset", "options", "track"), KINDS)
def test_every_kind_of_worker_has_its_track(dataset: Any, options: Any, track: str, tmp_path: Any) -> None:
    events = record(tmp_path / "epoch.json", DataLoader(dataset, batch_size=4, **options))
    names = tracks(events)
    assert names[0] == "your loop"
    fetched = spans(events, "fetch")
    assert sorted(event["args"]["batch"] for event in fetched) == list(range(6))
    assert all(names[event["tid"]].startswith(track) for event in fetched)
    assert sum(event["args"]["items"] for event in fetched) == 23


@pytest.mark.parametrize(("dataset", "options", "track"), KINDS)
def test_spans_lie_within_the_trace_and_tracks_do_not_overlap(
    dataset: Any, options: Any, track: str, tmp_path: Any
) -> None:
    events = record(tmp_path / "epoch.json", DataLoader(dataset, batch_size=4, **options))
    by_track = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] > -1e6
            by_track[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for found in by_track.values():
        found.sort()
        for (_, end), (start, _) in itertools.pairwise(found):
            assert start >= end - 1.0  # microseconds


def test_the_loop_has_steps_and_waits(tmp_path: Any) -> None:
    events = record(tmp_path / "epoch.json", DataLoader(Squares(), batch_size=4, transform=lambda item: item))
    assert len(spans(events, "wait")) == 6
    assert len(spans(events, "step")) == 5
    assert len(spans(events, "transform")) == len(spans(events, "collate")) == 6


def test_what_begins_must_end(tmp_path: Any) -> None:
    events = record(tmp_path / "epoch.json", DataLoader(AsyncSquares(), batch_size=4))
    begun = [event["id"] for event in events if event["ph"] == "b"]
    assert begun
    assert sorted(begun) == sorted(event["id"] for event in events if event["ph"] == "e")


def test_errors_and_failures_stand_in_the_trace(tmp_path: Any) -> None:
    path = tmp_path / "epoch.json"
    loader = DataLoader(Broken(8, bad=(4,)), batch_size=4)
    with loader.trace(path):
        batches = iter(loader)
        next(batches)
        with pytest.raises(OSError, match="bad item"):
            next(batches)
    facts = [event["args"] for event in spans(read(path), "fetch")]
    assert "error" not in facts[0]
    assert facts[1]["error"].startswith("OSError: ")
    assert facts[1]["failed_items"] == 1


def test_only_iterators_made_within_are_recorded(tmp_path: Any) -> None:
    loader = DataLoader(Squares(), batch_size=4)
    list(loader)
    events = record(tmp_path / "epoch.json", loader, epochs=2)
    assert {event["args"]["epoch"] for event in spans(events, "fetch")} == {1, 2}
    loader = DataLoader(Squares(), batch_size=4)
    with loader.trace(tmp_path / "nothing.json"):
        pass
    list(loader)
    assert spans(read(tmp_path / "nothing.json"), "fetch") == []


def test_the_batches_are_the_same_while_a_trace_is_recorded(tmp_path: Any) -> None:
    expected = [batch["index"].tolist() for batch in DataLoader(Squares(), 4, shuffle=True)]
    loader = DataLoader(Squares(), 4, shuffle=True)
    with loader.trace(tmp_path / "epoch.json"):
        assert [batch["index"].tolist() for batch in loader] == expected


def test_an_error_in_the_loop_leaves_the_trace_of_what_was(tmp_path: Any) -> None:
    loader = DataLoader(Squares(), batch_size=4)
    with pytest.raises(ZeroDivisionError), loader.trace(tmp_path / "epoch.json"):
        for _ in loader:
            raise ZeroDivisionError
    assert len(spans(read(tmp_path / "epoch.json"), "fetch")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["epoch.json"]


def test_a_folder_that_is_not_there_is_named_before_anything_runs(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*missing"):
        DataLoader([1]).trace(tmp_path / "missing" / "epoch.json")
