"""A stream as a source: it can only be read once, from front to back, and does not tell its length.

So a single file is written as the rows come, and shards are cut from such a file, which is removed afterwards. A run that
is interrupted starts anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from feedline.errors import OptionError
from feedline.ndf.save import save_ndf

__all__ = ["StreamSource", "spooled"]


class StreamSource:
    """A stream of rows, or of `(row, labels)`, that is named as `module:dataset`."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name = name
        self._stream = stream

    def write(self, path: str) -> None:
        """Write all rows to an `.ndf` file, whole or not at all.

        Raises:
            OptionError: an item is no row, or there is none.
            OSError: the file can't be written.
        """
        try:
            save_ndf(path, self._stream)
        except (TypeError, OptionError) as error:
            raise OptionError(f"{self.name!r} can't be converted: {error}") from error


@contextlib.contextmanager
def spooled(source: StreamSource, path: str) -> Iterator[str]:
    """Have all rows of a stream in the file `path`, for as long as the `with` statement lasts."""
    source.write(path)
    try:
        yield path
    finally:
        os.unlink(path)
