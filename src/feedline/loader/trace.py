"""`Trace`: what happened when, as a file that https://ui.perfetto.dev and chrome://tracing show.

Each worker has a track with the stages of its batches, your loop has one with its waits and steps. Stages of one batch are
drawn one behind the other, each as long as it took in sum: items are fetched and transformed by turns.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

from feedline.loader.batch import Outcome
from feedline.loader.stats import Tally

__all__ = ["Trace"]

_LOOP = "your loop"


class Trace:
    """A context manager: what iterators that are made within it do is written to `path` at its end.

    Raises:
        FileNotFoundError: the folder of `path` does not exist.

    Concurrency: iterators in several threads may record into one trace.
    """

    def __init__(self, path: str | os.PathLike[str], loader: Any) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise FileNotFoundError(f"no folder {str(self._path.parent)!r} for the trace {self._path.name!r}")
        self._loader = loader
        self._start = 0.0
        self._events: list[dict[str, Any]] = []
        self._tracks: dict[str, int] = {_LOOP: 0}

    def __enter__(self) -> Trace:
        """Begin to record."""
        self._start = perf_counter()
        self._loader.telling.traces.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the file, also after an error."""
        self._loader.telling.traces.remove(self)
        self.write()

    def observer(self, epoch: int, tally: Tally, source: str) -> TraceObserver:
        """Return what records one iterator."""
        return TraceObserver(self, epoch, tally, source)

    def span(self, track: str, name: str, start: float, seconds: float, **facts: Any) -> None:
        """Record that `name` took from `start` on, by `perf_counter()`."""
        number = self._tracks.setdefault(track, len(self._tracks))
        self._events.append(
            {
                "name": name,
                "cat": "feedline",
                "ph": "X",
                "ts": round((start - self._start) * 1e6, 1),
                "dur": round(max(0.0, seconds) * 1e6, 1),
                "pid": 1,
                "tid": number,
                "args": facts,
            }
        )

    def flight(self, track: str, name: str, start: float, seconds: float, key: str, **facts: Any) -> None:
        """Record the same of something of which several go on at once on one track."""
        number = self._tracks.setdefault(track, len(self._tracks))
        for phase, when in (("b", start), ("e", start + seconds)):
            self._events.append(
                {
                    "name": name,
                    "cat": "feedline",
                    "ph": phase,
                    "id": key,
                    "ts": round((when - self._start) * 1e6, 1),
                    "pid": 1,
                    "tid": number,
                    "args": facts,
                }
            )

    def write(self) -> None:
        """Write what is recorded so far: a new file in one step, or none."""
        names = [_named("process_name", 0, "feedline")]
        names += [_named("thread_name", number, track) for track, number in self._tracks.items()]
        told = {"traceEvents": names + self._events, "displayTimeUnit": "ms"}
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            partial.write_text(json.dumps(told), encoding="utf-8")
            partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)


class TraceObserver:
    """Records one iterator."""

    def __init__(self, trace: Trace, epoch: int, tally: Tally, source: str) -> None:
        self._trace = trace
        self._epoch = epoch
        self._tally = tally
        self._source = source
        self._last: float | None = None
        self._waited = tally.wait_seconds

    def received(self, outcome: Outcome) -> None:
        """Record where a batch came from, how long the loop waited for it, and the step before."""
        now = perf_counter()
        waited = self._tally.wait_seconds - self._waited
        self._waited = self._tally.wait_seconds
        facts: dict[str, Any] = {"batch": outcome.number, "epoch": self._epoch, "items": len(outcome.indices)}
        if outcome.error is not None:
            facts["error"] = f"{type(outcome.error).__name__}: {outcome.error}"
        if outcome.failures:
            facts["failed_items"] = len(outcome.failures)
        if self._last is not None:
            self._trace.span(_LOOP, "step", self._last, now - waited - self._last)
        if waited > 0:
            self._trace.span(_LOOP, "wait", now - waited, waited, **facts)
        if outcome.worker:
            self._record(outcome, facts)
        self._last = perf_counter()

    def _record(self, outcome: Outcome, facts: dict[str, Any]) -> None:
        trace, at = self._trace, outcome.began
        if self._source == "map":
            trace.span(outcome.worker, "fetch", at, outcome.fetch_seconds, **facts)
            at += outcome.fetch_seconds
        elif outcome.fetch_seconds > 0:
            track = "event loop" if self._source == "async" else "reader"
            key = f"{self._epoch}.{outcome.number}"
            trace.flight(track, "fetch", at - outcome.fetch_seconds, outcome.fetch_seconds, key, **facts)
        for name, seconds in (("transform", outcome.transform_seconds), ("collate", outcome.collate_seconds)):
            if seconds > 0:
                trace.span(outcome.worker, name, at, seconds, **facts)
                at += seconds

    def ended(self) -> None:
        """Nothing more is to be recorded."""


def _named(what: str, number: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": number, "args": {"name": name}}
