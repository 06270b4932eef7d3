"""What a source of rows is: a file, a folder or a dataset that `convert` reads.

| member | what it is |
| --- | --- |
| `n`, `d`, `l` | rows, features in a row, labels in a row; known when the source is opened |
| `blocks(start, stop)` | the rows from `start` to `stop`, in blocks; each block valid until the next is asked for |
| `identity()` | what tells this source from a changed one: kind, paths, sizes, times of change, options; for JSON |

A block is a list of pieces `(name, array)`: arrays of shape `(k, w)` of one `k`, whose widths add up to `d + l`,
features first. Their dtypes are those of the source (ints, bools, floats up to 64 bits); whoever writes them converts
them exactly. `name` is for messages.

A source checks all that it can when it is opened: names, types, lengths. It pickles small, so that it can be sent to
worker processes, and any number of its copies may be read at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError

__all__ = ["BLOCK_BYTES", "Array", "Block", "Source", "check_type", "stamp_of"]

Array: TypeAlias = npt.NDArray[Any]
Block: TypeAlias = list[tuple[str, Array]]

#: About so many bytes of rows are in a block. It is read, hashed and written while it lies in a cache.
BLOCK_BYTES = 2**20


class Source(Protocol):
    """A source of rows: see the table of the module."""

    @property
    def n(self) -> int:
        """Rows."""
        ...

    @property
    def d(self) -> int:
        """Features in a row."""
        ...

    @property
    def l(self) -> int:  # noqa: E743 - the format's own name
        """Labels in a row."""
        ...

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`."""
        ...

    def identity(self) -> dict[str, Any]:
        """Return what tells this source from a changed one, as the file system has it now."""
        ...


def stamp_of(path: str) -> list[Any]:
    """Return path, size and time of change (nanoseconds) of a file, for `identity`."""
    status = os.stat(path)
    return [path.encode("utf-8", "surrogateescape").hex(), status.st_size, status.st_mtime_ns]


def check_type(what: str, dtype: np.dtype[Any]) -> None:
    """Raise an `OptionError` unless values of `dtype` can be rows: ints, bools, and floats of up to 64 bits."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        kinds = {
            "c": "complex numbers",
            "U": "texts",
            "S": "bytes",
            "O": "objects",
            "M": "dates",
            "m": "times",
        }
        raise OptionError(
            f"{what} holds {kinds.get(dtype.kind, 'values')} ({dtype}): rows are float64, into which only ints, bools "
            f"and floats of up to 64 bits can be converted exactly"
        )
