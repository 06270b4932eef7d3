"""One trial of `feedline bench`, in a process of its own, so that memory and start are its own: reads JSON, writes JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from feedline import DataLoader, OptionError
from feedline.cli.targets import import_target
from feedline.cli.wording import describe_error
from feedline.loader.tuning.choices import Choice
from feedline.loader.tuning.trial import Trial, measure

__all__ = ["bench_loader", "run_trial"]


def bench_loader(target: str) -> DataLoader:
    """Return the loader that `target` names; a callable is called for it.

    Raises:
        OptionError: it is no loader.
    """
    found = import_target(target)
    if not isinstance(found, DataLoader) and callable(found):
        found = found()
    if not isinstance(found, DataLoader):
        raise OptionError(
            f"{target!r} must be a feedline.DataLoader, or a callable that returns one, not {type(found).__name__}"
        )
    return found


def run_trial(order: dict[str, Any]) -> Trial:
    """Measure what `order` says; an error is told in the trial."""
    choice = Choice(order["worker_type"], order["num_workers"])
    try:
        return measure(bench_loader(order["target"]), choice, order["seconds"])
    except Exception as error:
        return Trial(*choice, error=describe_error(error).replace(" (--debug shows the traceback)", ""))


if __name__ == "__main__":
    told = run_trial(json.loads(sys.argv[1]))
    # Not by stdout, where the user's own code may write.
    Path(sys.argv[2]).write_text(json.dumps(told.as_dict()), encoding="utf-8")
