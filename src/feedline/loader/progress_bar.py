"""`progress=True`: a bar for each epoch, with items/s and the share of time that was spent waiting for data."""

from __future__ import annotations

import importlib
from time import monotonic
from typing import Any

from feedline.errors import MissingExtraError
from feedline.loader.batch import Outcome
from feedline.loader.stats import Tally

__all__ = ["ProgressBar", "require_progress"]

#: Seconds between two looks at the share of waiting.
_REFRESH_SECONDS = 0.5


def require_progress() -> Any:
    """Return tqdm's class; a `MissingExtraError` with the install command if it is not there."""
    try:
        return importlib.import_module("tqdm").tqdm
    except ImportError as error:
        raise MissingExtraError.of("progress=True", "cli") from error


class ProgressBar:
    """One epoch's bar, on the standard error stream.

    Args:
        epoch: its number.
        done: items that were received before, in a resumed epoch.
        total: items of the epoch, or `None` where nobody knows.
        tally: what is counted already.
    """

    def __init__(self, epoch: int, done: int, total: int | None, tally: Tally) -> None:
        self._bar = require_progress()(
            desc=f"epoch {epoch}",
            total=total,
            initial=done,
            unit=" items",
            unit_scale=True,
            dynamic_ncols=True,
        )
        self._tally = tally
        self._before = tally.times()
        self._told = monotonic()

    def received(self, outcome: Outcome) -> None:
        """Count the items of a batch."""
        self._bar.update(len(outcome.indices))
        now = monotonic()
        if now - self._told >= _REFRESH_SECONDS:
            self._told = now
            self._tell()

    def _tell(self) -> None:
        wall, waited = (now - before for now, before in zip(self._tally.times(), self._before))
        if wall > 0:
            share = min(1.0, waited / wall)
            self._bar.set_postfix_str(f"waiting {share:.0%}", refresh=False)

    def ended(self) -> None:
        """Leave the bar as it is; idempotent."""
        if not self._bar.disable:
            self._tell()
        self._bar.close()
