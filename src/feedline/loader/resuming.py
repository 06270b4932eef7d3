"""Whether a state fits a loader, and where it says that the loader goes on: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feedline.errors import StateError
from feedline.loader.progress import Position
from feedline.loader.source import Source
from feedline.loader.state import LoaderState, differences

__all__ = ["check_fits", "position_of"]


def check_fits(
    loaded: LoaderState, fingerprint: Mapping[str, Any], stride: int, *, is_unseeded: bool
) -> None:
    """Raise a `StateError` with a line for each way in which a state does not fit.

    Args:
        loaded: the state.
        fingerprint: the loader's.
        stride: how many ranks share its order.
        is_unseeded: its seed is `None`, so that the state has to bring what stood in for it.
    """
    lines = differences(loaded.fingerprint, fingerprint)
    if is_unseeded and loaded.entropy is None and not lines:
        lines.append("entropy: the state has nothing, though its seed is None")
    if loaded.ahead and loaded.world_size != stride:
        lines.append(
            f"world_size: the state has {loaded.world_size}, the loader has {stride}, and batches "
            f"that were delivered ahead of order (in_order=False) can't be dealt out anew"
        )
    if lines:
        raise StateError("the state does not fit this loader:\n" + "\n".join(f"  {line}" for line in lines))


def position_of(loaded: LoaderState, source: Source) -> Position:
    """Return where a state that fits goes on: in its epoch, or at the start of the next if nothing is left of it.

    Raises:
        StateError: it lies behind the end of its epoch.
    """
    whole = source.whole(loaded.epoch)
    # With tail="drop" the global order may be longer than what the ranks get of it.
    end = None if whole is None else whole + source.stride - 1
    if end is not None and loaded.position > end:
        raise StateError(
            f"the state does not fit this loader:\n  position: the state has {loaded.position}, "
            f"the loader's epoch ends at {end}"
        )
    if loaded.position and source.longest_left(loaded.epoch, loaded.position) == 0:
        return Position(loaded.epoch + 1)
    return Position(loaded.epoch, loaded.position, loaded.batch, frozenset(loaded.ahead), loaded.stream)
