"""Long lists of strings (paths, texts) in a form that is written several times as fast as by pickle as it comes.

Pickle looks every string up in a table of what it has written already, which for millions of them is most of the time until
the first batch. Here they are written without.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

__all__ = ["MIN_STRINGS", "pack_strings", "unpack_strings"]

#: Shorter lists are left to pickle.
MIN_STRINGS = 20_000
_SAMPLE = 1_000


def pack_strings(values: list[Any]) -> pickle.PickleBuffer | None:
    """Return `values` packed if all are `str`, or all `bytes`; `None` for others.

    A list that holds the same object many times is left to pickle, which keeps it one.
    """
    if type(values[0]) not in (str, bytes):
        return None
    sample = values[:: max(1, len(values) // _SAMPLE)]
    if len(set(map(id, sample))) < len(sample) or len(set(map(type, values))) != 1:
        return None
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.fast = True
    pickler.dump(values)
    return pickle.PickleBuffer(file.getvalue())


def unpack_strings(packed: Any) -> list[Any]:
    """Return the list again."""
    values = pickle.loads(packed)
    assert isinstance(values, list)
    return values
