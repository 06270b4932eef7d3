"""Outcomes on their way back from a worker process: errors made portable there, and themselves again here."""

from __future__ import annotations

from typing import Any

from feedline.loader.batch import Outcome
from feedline.loader.execution.culprit import describe_unpicklable
from feedline.loader.execution.handoff import BufferTaker, dump_back
from feedline.loader.execution.portable import PortableError
from feedline.loader.failures import attach_note, recorded_index

__all__ = ["dump_outcomes", "exception_of", "outcome_of", "tell_unsendable"]


def dump_outcomes(outcomes: list[Outcome], take: BufferTaker) -> bytes:
    """Pickle `outcomes` for the process that sent the task; `take` as in `dump_back`.

    Raises:
        Exception: whatever a batch raises that can't be pickled; see `tell_unsendable`.
    """
    return dump_back([_facts(outcome) for outcome in outcomes], take)


def _facts(outcome: Outcome) -> dict[str, Any]:
    facts = dict(outcome.__dict__)
    error = facts.get("error")
    cause = facts.get("cause")
    index = outcome.failures[-1].index if outcome.failures else None
    if error is not None:
        facts["error"] = PortableError.of(error, index)
    if cause is not None:
        facts["cause"] = facts["error"] if cause is error else PortableError.of(cause, index)
    return facts


def tell_unsendable(outcome: Outcome, error: Exception, worker: str) -> Outcome:
    """Return what is sent in the place of `outcome`, which raised `error` when it was pickled."""
    found = describe_unpicklable({"batch": outcome.value}, dump_back, error)
    report = TypeError(f"the batch can't be sent from its worker process by pickle: {found}")
    attach_note(report, f"batch {outcome.number}, {worker}")
    told = Outcome(outcome.number, error=report, failures=outcome.failures, cause=outcome.cause)
    told.indices = [recorded_index(index) for index in outcome.indices]
    return told


def outcome_of(facts: dict[str, Any], worker: str) -> Outcome:
    """Return the outcome that came as `facts` from `worker`."""
    outcome = Outcome(**facts)
    error, cause = outcome.error, outcome.cause
    if isinstance(error, PortableError):
        outcome.error = exception_of(error, worker)
    if isinstance(cause, PortableError):
        outcome.cause = outcome.error if cause is error else exception_of(cause, worker)
    return outcome


def exception_of(error: PortableError, worker: str) -> Exception:
    """Return the error that `worker` sent, as one that may be raised at a consumer."""
    unpacked = error.unpack(worker)
    return unpacked if isinstance(unpacked, Exception) else RuntimeError(repr(unpacked))
