"""What a worker process gets once: the batch loader, pickled, its arrays in one block that all workers map.

Note [sharing]
    The block is mapped copy-on-write: the arrays of a dataset are the same memory in all workers, and a worker that
    writes to them gets pages of its own, as it would have with arrays of its own. Where no block can be had, the
    bytes go through the pipe to each worker. Long lists of strings are read from a file of their own, and become objects
    of the worker.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from feedline.loader.batch import BatchLoader
from feedline.loader.execution.block_files import map_block
from feedline.loader.execution.handoff import load_out
from feedline.loader.execution.string_lists import Begun, TextFile

__all__ = ["Parcel", "load_parcel", "unpickle_loader"]


@dataclass(slots=True)
class Parcel:
    """A pickled batch loader. It owns its descriptors.

    Attributes:
        layout: (offset, length) of the stream and of each buffer.
        files: descriptors of the block; empty if the bytes are in `inline`.
        step: bytes of the block in each of them.
        texts: descriptor of the file that has long lists of strings, if there are any.
        inline: the same bytes, where there is no file.
        begun: what has been read of `texts` already.
    """

    layout: list[tuple[int, int]]
    files: list[int] = field(default_factory=list)
    step: int = 0
    texts: int | None = None
    inline: list[bytes] = field(default_factory=list)
    begun: dict[int, Begun] = field(default_factory=dict)

    def facts(self) -> tuple[Any, ...]:
        """Return what another process needs to know, beside the descriptors."""
        return self.layout, self.step, self.texts is not None, self.inline

    def descriptors(self) -> list[int]:
        """Return the descriptors, which remain the parcel's."""
        return [*self.files, *([] if self.texts is None else [self.texts])]

    @classmethod
    def of(cls, facts: tuple[Any, ...], descriptors: list[int]) -> Parcel:
        """Return the parcel of another process; the descriptors are its own from now on."""
        layout, step, has_texts, inline = facts
        texts = descriptors.pop() if has_texts and descriptors else None
        return cls(layout, descriptors, step, texts, inline)

    def close(self) -> None:
        """Close the files; whoever has mapped the block keeps it."""
        descriptors, self.files, self.texts = self.descriptors(), [], None
        for descriptor in descriptors:
            os.close(descriptor)


def load_parcel(parcel: Parcel) -> BatchLoader:
    """Unpickle the loader in a worker; its memory is still to be given to it (`pool`).

    Raises:
        Exception: whatever unpickling raises.
    """
    if parcel.inline:
        views = [memoryview(bytearray(part)) for part in parcel.inline]
    else:
        size = max(offset + length for offset, length in parcel.layout)
        # A mapping begins at a page, so buffers lie at multiples of ALIGNMENT_BYTES.
        whole = memoryview(map_block(parcel.files, parcel.step, max(size, 1))).cast("B")
        views = [whole[offset : offset + length] for offset, length in parcel.layout]
    return unpickle_loader(views, None if parcel.texts is None else TextFile(parcel.texts, parcel.begun))


def unpickle_loader(parts: list[Any], texts: TextFile | None = None) -> BatchLoader:
    """Return the loader that `pickle_loader` made `parts` of; its memory is still to be given to it (`pool`).

    Raises:
        Exception: whatever unpickling raises.
    """
    load: BatchLoader = load_out(parts[0], parts[1:], texts)
    if load.take is not None:
        load.take = load.find_take()
    return load
