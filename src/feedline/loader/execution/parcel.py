"""What a worker process gets once: the batch loader, pickled, its arrays in one block that all workers map.

Note [sharing]
    The block is mapped copy-on-write: the arrays of a dataset are the same memory in all workers, and a worker that
    writes to them gets pages of its own, as it would have with arrays of its own. Where no block can be had, the
    bytes go through the pipe to each worker.
"""

from __future__ import annotations

import copy
import logging
import os
import pickle
from typing import Any

from feedline.datasets.protocol import is_stream
from feedline.loader.batch import BatchLoader
from feedline.loader.execution.culprit import describe_unpicklable
from feedline.loader.execution.handoff import OUT_OF_BAND_BYTES, dump_out, load_out
from feedline.loader.execution.shared_memory import ALIGNMENT_BYTES, anonymous_file, map_file

__all__ = ["Parcel", "load_parcel", "pack_loader", "pickle_loader", "unpickle_loader"]

logger = logging.getLogger("feedline")

_WRITE_BYTES = 1 << 30


class StreamStandIn:
    """Stands for a stream in a worker, which gets its items with the tasks."""

    def __init__(self, name: str) -> None:
        self.name = name


class Parcel:
    """A pickled batch loader.

    Attributes:
        layout: (offset, length) of the stream and of each buffer.
        descriptor: the file that they lie in, or `None` if they are in `inline`.
        inline: the same bytes, where there is no file.
    """

    def __init__(self, layout: list[tuple[int, int]], descriptor: int | None, inline: list[bytes]) -> None:
        self.layout = layout
        self.descriptor = descriptor
        self.inline = inline

    def close(self) -> None:
        """Close the file; whoever has mapped it keeps it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def pickle_loader(load: BatchLoader) -> list[Any]:
    """Pickle `load`: return the stream, and behind it the large buffers that it is loaded with.

    Raises:
        TypeError: a part of it can't be pickled; the message names it.
    """
    lean = _lean(load)
    buffers: list[Any] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    try:
        stream = dump_out(lean, take)
    except Exception as error:
        raise TypeError(_explain(load, error)) from None
    return [stream, *buffers]


def pack_loader(load: BatchLoader) -> Parcel:
    """Pickle `load` into a file that workers map.

    Raises:
        TypeError: a part of it can't be pickled; the message names it.
    """
    parts = pickle_loader(load)
    layout, size = _lay_out(parts)
    try:
        return Parcel(layout, _write(parts, layout, size), [])
    except OSError as error:
        logger.warning("no shared memory for the dataset (%s): each worker gets a copy", error)
        inline = [bytes(part) for part in parts]
        return Parcel([(0, len(part)) for part in inline], None, inline)


def _lean(load: BatchLoader) -> BatchLoader:
    """Return `load` without what workers do not need: a stream, and memory of this process."""
    lean = copy.copy(load)
    # A bound method of the dataset; made again over there.
    lean.take = None if load.take is None else True  # type: ignore[assignment]
    del lean.pool
    if is_stream(load.items.dataset):
        lean.items = copy.copy(load.items)
        lean.items.dataset = StreamStandIn(type(load.items.dataset).__name__)
    return lean


def _explain(load: BatchLoader, error: Exception) -> str:
    items = load.items
    parts = {
        "dataset": None if is_stream(items.dataset) else items.dataset,
        "transform": items.transform,
        "collate_fn": load.collate_fn,
        "on_error": items.on_error,
    }
    found = describe_unpicklable(parts, lambda part: dump_out(part, lambda _: False), error)
    return (
        f"worker processes get what they run by pickle, and {found}; make it in the worker on first use (or leave it "
        f"out in __getstate__), or use worker_type='thread', which pickles nothing"
    )


def _lay_out(parts: list[Any]) -> tuple[list[tuple[int, int]], int]:
    layout, offset = [], 0
    for part in parts:
        nbytes = memoryview(part).nbytes
        layout.append((offset, nbytes))
        offset += -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return layout, max(offset, 1)


def _write(parts: list[Any], layout: list[tuple[int, int]], size: int) -> int:
    descriptor = anonymous_file(size)
    try:
        for part, (offset, nbytes) in zip(parts, layout):
            view = memoryview(part).cast("B")
            done = 0
            while done < nbytes:
                done += os.pwrite(descriptor, view[done : done + _WRITE_BYTES], offset + done)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def load_parcel(parcel: Parcel) -> BatchLoader:
    """Unpickle the loader in a worker; its memory is still to be given to it (`pool`).

    Raises:
        Exception: whatever unpickling raises.
    """
    if parcel.descriptor is None:
        views = [memoryview(bytearray(part)) for part in parcel.inline]
    else:
        size = max(offset + length for offset, length in parcel.layout)
        # A mapping begins at a page, so buffers lie at multiples of ALIGNMENT_BYTES.
        whole = memoryview(map_file(parcel.descriptor, max(size, 1), private=True)).cast("B")
        views = [whole[offset : offset + length] for offset, length in parcel.layout]
    return unpickle_loader(views)


def unpickle_loader(parts: list[Any]) -> BatchLoader:
    """Return the loader that `pickle_loader` made `parts` of; its memory is still to be given to it (`pool`).

    Raises:
        Exception: whatever unpickling raises.
    """
    load: BatchLoader = load_out(parts[0], parts[1:])
    if load.take is not None:
        load.take = load.find_take()
    return load
