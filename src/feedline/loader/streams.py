"""Streams: read in order by one reader, whatever the number of workers; transforms and collation run in the workers.

Positions count items of the *whole* stream, before it is dealt out to ranks.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from feedline.datasets.kind import dataset_kind
from feedline.loader.stream_plan import Reading, StreamPlan

__all__ = ["StreamSource"]

logger = logging.getLogger("feedline")


class StreamSource:
    """One rank's share of a stream, in batches.

    Args:
        dataset: the stream.
        batch_size: items per batch.
        rank, world_size: without a `shard` of its own, rank `r` takes every `world_size`-th item from `r` on.
        timeout: seconds that the stream may take for one item, what is done with it in a worker included; or `None`.
    """

    entropy: int | None = None

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool,
        rank: int,
        world_size: int,
        timeout: float | None = None,
    ) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._rank = rank
        self._timeout = timeout
        self.stride = world_size
        self._shards_itself = world_size > 1 and callable(getattr(dataset, "shard", None))
        self._stream = dataset.shard(rank, world_size) if self._shards_itself else dataset
        self._read_once = False
        self._told = False
        self._warned = False

    def plan(
        self, epoch: int, position: int, first: int, stream: Mapping[str, Any] | None = None
    ) -> StreamPlan:
        """Start to read the stream, from `position` on; `stream` says how it is set there."""
        source, read = self._open(epoch, stream if position else None)
        self._tell(position, read, source)
        if self._shards_itself:
            skip, step, at = position // self.stride - read, 1, position // self.stride
        else:
            skip, step, at = position + self._rank - read, self.stride, position
        return StreamPlan(
            Reading(self._stream, source, read, stream, lambda state: self._open(epoch, state)),
            epoch,
            self._batch_size,
            drop_last=self._drop_last,
            first=first,
            skip=skip,
            step=step,
            index=(at * self.stride if self._shards_itself else at) + self._rank,
            stride=self.stride,
            timeout=self._timeout,
        )

    def _open(self, epoch: int, stream: Mapping[str, Any] | None) -> tuple[Iterator[Any], int]:
        """Start the stream anew, where `stream` says if it can be set there; return it, and how many items it has passed."""
        set_epoch = getattr(self._stream, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        read = 0
        if stream is not None and hasattr(self._stream, "load_state_dict"):
            self._stream.load_state_dict(stream["state"])
            read = stream["read"]
        return iter(self._stream), read

    def _tell(self, position: int, read: int, source: Iterator[Any]) -> None:
        """Say, once each, what takes long and what can't work."""
        if position and not read and not self._told:
            self._told = True
            logger.info(
                "%s has no state of its own: it is read again up to item %d, without transforms",
                type(self._dataset).__name__,
                position,
            )
        if self._read_once and source is self._stream and not self._warned:
            self._warned = True
            warnings.warn(
                f"the stream {type(self._dataset).__name__} is an iterator and used up: this epoch may be empty; "
                f"give an object that can be iterated anew",
                UserWarning,
                stacklevel=5,
            )
        self._read_once = True

    def _chunks(self, items: int) -> int:
        return items // self._batch_size if self._drop_last else -(-items // self._batch_size)

    def items(self, epoch: int) -> int | None:
        """Return the items of the whole stream, if it has a length."""
        return len(self._dataset) if isinstance(self._dataset, Sized) else None

    def whole(self, epoch: int) -> int | None:
        """Nobody knows before the stream has ended, whatever its length says."""
        return None

    def _own_items(self, position: int, rank: int) -> int | None:
        if self._shards_itself:
            return len(self._stream) - position // self.stride if isinstance(self._stream, Sized) else None
        if not isinstance(self._dataset, Sized):
            return None
        return max(0, -(-(len(self._dataset) - position - rank) // self.stride))

    def batches(self, epoch: int) -> int | None:
        """Return the batches of an epoch, if the stream has a length."""
        items = self._own_items(0, self._rank)
        return None if items is None else self._chunks(items)

    def longest_left(self, epoch: int, position: int) -> int | None:
        """Nobody knows before the stream has ended, whatever its length says."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return stream, batch size and drop_last; how it was dealt out, where that can't change."""
        described: dict[str, Any] = {
            "dataset": {"kind": dataset_kind(self._dataset)},
            "batch_size": self._batch_size,
            "drop_last": self._drop_last,
        }
        if isinstance(self._dataset, Sized):
            described["dataset"]["length"] = len(self._dataset)
        if self._shards_itself:
            described["shards"] = self.stride
        return described

    def with_seed(self, seed: int) -> StreamSource:
        """Return it as it is: its order is the stream's."""
        return self
