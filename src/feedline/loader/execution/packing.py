"""How a batch loader becomes a `Parcel`: pickled, its arrays and long lists of strings written to files without a name."""

from __future__ import annotations

import copy
import logging
import os
import pickle
from collections.abc import Callable
from typing import Any

from feedline.datasets.protocol import is_stream
from feedline.loader.batch import BatchLoader
from feedline.loader.execution.block_files import write_block
from feedline.loader.execution.culprit import describe_unpicklable
from feedline.loader.execution.handoff import OUT_OF_BAND_BYTES, dump_out
from feedline.loader.execution.parcel import Parcel
from feedline.loader.execution.shared_memory import ALIGNMENT_BYTES, anonymous_file
from feedline.loader.execution.string_lists import TextFile

__all__ = ["pack_loader", "pickle_loader"]

logger = logging.getLogger("feedline")


class StreamStandIn:
    """Stands for a stream in a worker, which gets its items with the tasks."""

    def __init__(self, name: str) -> None:
        self.name = name


class _NoRoom(Exception):
    """The file for long lists is full; its cause says why."""


class _PackedTexts(TextFile):
    """Tells its own errors from those that user code raises while it is pickled."""

    def __init__(self, descriptor: int, tell: Callable[[str, Any], None] | None) -> None:
        super().__init__(descriptor)
        self._tell = tell
        self._is_told = False
        if tell is not None:
            self.tell_pieces = self._tell_pieces

    def _tell_pieces(self, start: int, lengths: list[int]) -> None:
        assert self._tell is not None
        if not self._is_told:
            try:
                descriptor = os.dup(self._descriptor)
            except OSError as error:
                raise _NoRoom from error
            self._tell("texts", descriptor)
            self._is_told = True
        self._tell("pieces", (start, lengths))

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _NoRoom from error


def pickle_loader(load: BatchLoader, texts: TextFile | None = None) -> list[Any]:
    """Pickle `load`: return the stream, and behind it the large buffers that it is loaded with.

    Args:
        load: what workers run.
        texts: where long lists of strings go; without it they are among the buffers.

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
        stream = dump_out(lean, take, texts)
    except _NoRoom:
        raise
    except Exception as error:
        raise TypeError(_explain(load, error)) from None
    return [stream, *buffers]


def pack_loader(load: BatchLoader, tell: Callable[[str, Any], None] | None = None) -> Parcel:
    """Pickle `load` into files that workers map, or read.

    Args:
        load: what workers run.
        tell: is called while long lists of strings are written: with `"texts"` and a descriptor of their file, which is the
            callee's from then on; and with `"pieces"` and what `TextFile.read_on` takes.

    Raises:
        TypeError: a part of it can't be pickled; the message names it.
    """
    try:
        return _pack_into_files(load, tell)
    except (OSError, _NoRoom) as error:
        reason = error.__cause__ if isinstance(error, _NoRoom) else error
        logger.warning("no shared memory for the dataset (%s): each worker gets a copy", reason)
        inline = [bytes(part) for part in pickle_loader(load)]
        return Parcel([(0, len(part)) for part in inline], inline=inline)


def _pack_into_files(load: BatchLoader, tell: Callable[[str, Any], None] | None) -> Parcel:
    descriptor = anonymous_file(0)
    try:
        texts = _PackedTexts(descriptor, tell)
        parts = pickle_loader(load, texts)
        layout, size = _lay_out(parts)
        files, step = write_block(parts, layout, size)
    except BaseException:
        os.close(descriptor)
        raise
    if texts.tell():
        return Parcel(layout, files, step, descriptor)
    os.close(descriptor)
    return Parcel(layout, files, step)


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
