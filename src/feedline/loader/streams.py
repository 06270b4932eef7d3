"""Streams: read in order by one reader, whatever the number of workers; transforms and collation run in the workers.

Positions count items of the *whole* stream, before it is dealt out to ranks.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sized
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from feedline.datasets.kind import dataset_kind
from feedline.loader.batch import Outcome, Task
from feedline.loader.execution.protocol import EXIT_PATIENCE, Session
from feedline.loader.failures import as_batch_error, attach_note, is_ctrl_c
from feedline.loader.ordering import Window
from feedline.loader.pulling import Puller, TimedItems
from feedline.loader.walk import Rewalk

__all__ = ["DeferredPlan", "StreamPlan", "StreamSession", "StreamSource"]

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


class Reading:
    """A stream on its way, and how to set one anew to where this one stands.

    Args:
        stream: what is read.
        source: its iterator.
        read: items that the iterator has passed already.
        state: how the stream was set there.
        reopen: starts the stream anew at a state (or from its start), and returns (iterator, items passed).
    """

    def __init__(
        self,
        stream: Any,
        source: Iterator[Any],
        read: int,
        state: Mapping[str, Any] | None,
        reopen: Callable[[Mapping[str, Any] | None], tuple[Iterator[Any], int]],
    ) -> None:
        self._keeper = _keeper(stream, source)
        self._stream = stream
        self._reopen = reopen
        self._last = state
        self.walk = Rewalk(stream if source is stream else _Started(source), self._again)
        self.walk.drawn = read

    def _again(self) -> tuple[Iterator[Any], int]:
        source, read = self._reopen(self._last)
        self._keeper = _keeper(self._stream, source)
        return source, read

    def state(self) -> Mapping[str, Any] | None:
        """Return how the stream can be set to where it stands; `None` if it has no state of its own."""
        if self._keeper is None:
            return None
        self._last = {"read": self.walk.drawn, "state": self._keeper.state_dict()}
        return self._last


class _Started:
    """An iterable whose iterator was made already."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return self._source


def _keeper(stream: Any, source: Iterator[Any]) -> Any:
    """Return what tells the state: an iterator that has one of its own speaks for itself, however many there are."""
    if not (hasattr(stream, "state_dict") and hasattr(stream, "load_state_dict")):
        return None
    return source if hasattr(source, "state_dict") else stream


class StreamPlan:
    """Batches read from a stream, one after the other.

    Concurrency: `task` is called by one thread, the reader. The consumer asks for ends and states, which are assigned
    in single steps.
    """

    def __init__(
        self,
        reading: Reading,
        epoch: int,
        batch_size: int,
        *,
        drop_last: bool,
        first: int,
        skip: int,
        step: int,
        index: int,
        stride: int,
        timeout: float | None = None,
    ) -> None:
        self.first = first
        self.epoch = epoch
        self._reading: Reading | None = reading
        self._puller = None if timeout is None else Puller(timeout)
        self._size = batch_size
        self._drop_last = drop_last
        #: Where in the stream the next item of this rank lies.
        self._place = reading.walk.drawn + skip
        self._step = step
        self._index = index
        self._stride = stride
        self._following = first
        self._items: list[Any] = []
        self._counts: dict[int, int] = {first: 0}
        self._units = 0
        self._states: dict[int, Mapping[str, Any] | None] = {first: None}
        self._tasks: dict[int, Task] = {}
        self._received: set[int] = set()
        self._lowest = first
        self._error: Exception | None = None
        self._end: int | None = None

    @property
    def can_group(self) -> bool:
        """One by one."""
        return False

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return batch `number`, reading on as far as it needs; `None` past the end."""
        while self._following <= number and self._end is None:
            start = perf_counter()
            task = self._read_batch()
            if task is None:
                self._end = self._following
            else:
                task.fetch_seconds = perf_counter() - start
                self._keep(task)
        return self._tasks.get(number)

    def _keep(self, task: Task) -> None:
        following = task.number + 1
        if task.number not in self._received:
            self._tasks[task.number] = task
        # A rank whose last batch is short counts as the others, whose batch of the same number may be full.
        count = len(self._items)
        units = self._units + (self._size if count and self._stride > 1 else count)
        self._counts[following] = units
        self._states[following] = self._state_here()
        # No call from here on: what a Ctrl-C cuts off before is done again. See Note [Ctrl-C] in ordering.
        self._units = units
        self._index += count * self._stride
        self._place += count * self._step
        self._items = []
        if task.error is not None:
            self._error = None
        self._following = following
        if self._reading is None and self._error is None:
            self._end = following

    def _state_here(self) -> Mapping[str, Any] | None:
        """Return how the stream is set to where it stands; if it can't say, that ends it, as any error of it does."""
        if self._reading is None:
            return None
        try:
            return self._reading.state()
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            self._fail(error, f"the stream's state_dict() failed behind item {self._reading.walk.drawn}")
            self._reading = None
            return None

    def _fail(self, error: BaseException, what: str) -> None:
        report = as_batch_error(error, None)
        attach_note(report, f"{what}, epoch {self.epoch}")
        self._error = report

    def _read_batch(self) -> Task | None:
        if self._reading is not None and self._puller is not None:
            self._pull(self._reading.walk, self._puller)
        elif self._reading is not None:
            self._fill(self._reading)
        items = self._items
        if items and (len(items) == self._size or self._error is not None or not self._drop_last):
            stop = self._index + len(items) * self._stride
            return Task(
                self._following, self.epoch, list(range(self._index, stop, self._stride)), items=items
            )
        if self._error is not None:
            return Task(self._following, self.epoch, (), error=self._error)
        return None

    def _fill(self, reading: Reading) -> None:
        """Take items until a batch is full. What a Ctrl-C interrupts is kept: the items lie in `self`."""
        walk = reading.walk
        try:
            while len(self._items) < self._size:
                place = self._place + len(self._items) * self._step
                if walk.drawn < place:
                    walk.skip(place - walk.drawn)
                before = len(self._items)
                walk.draw(self._items, self._size if self._step == 1 else before + 1)
                if len(self._items) == before:
                    break
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            self._fail(error, f"the stream failed at item {walk.drawn}")
        if self._error is not None or len(self._items) < self._size:
            self._reading = None

    def _pull(self, walk: Rewalk, puller: Puller) -> None:
        """Take items until a batch is full, each within the time limit; behind one that does not come, there is no more."""
        if len(self._items) < self._size:
            pull = puller.pull(walk, self._place, self._step, self._size)
            # After a Ctrl-C from here on the same is done again.
            if pull.error is not None:
                self._fail(pull.error, f"the stream failed at item {pull.at}")
            # In this order: the one that is given up may still come, its time first.
            items = pull.items[:]
            self._items = TimedItems(items, pull.seconds[: len(items)])
        if self._error is not None or len(self._items) < self._size:
            self._reading = None
            puller.close()
        puller.forget()

    def close(self) -> None:
        """Nobody asks for more: where a thread reads, it ends after its item."""
        if self._puller is not None:
            self._puller.close()

    def items_before(self, number: int) -> int:
        """Return this rank's items in the batches before `number`."""
        following = self._following
        if number <= following:
            return self._counts[number]
        # Received before this run began (`in_order=False`), and not read again yet: batches before the last are full.
        return self._counts[following] + (number - following) * self._size

    def stream_state(self, number: int) -> Mapping[str, Any] | None:
        """Return how the stream is set to where batch `number` begins, if it can be."""
        return self._states[number] if number <= self._following else None

    def end(self) -> int | None:
        """Return the number after the last batch, once the stream has ended."""
        return self._end

    def forget(self, number: int) -> None:
        """Batch `number` is received: drop its items; where it began is needed while it is the position."""
        self._tasks.pop(number, None)
        if number < self._lowest:
            return
        # `_lowest` is the position until the consumer has moved on; out of order, it may stay so. Where the reader stands
        # is what places beyond it are counted from.
        passed = min(self._lowest, self._following)
        for place in list(self._counts):
            if place < passed:
                self._counts.pop(place, None)
                self._states.pop(place, None)
        self._received.add(number)
        while self._lowest in self._received:
            self._received.discard(self._lowest)
            self._lowest += 1


class StreamSession:
    """A session whose tasks are read by a thread of its own before workers get them.

    `submit` only says how far to read: the plan is the reader's.
    """

    def __init__(self, inner: Session, plan: StreamPlan) -> None:
        self._inner = inner
        self._requests: SimpleQueue[int | None] = SimpleQueue()
        self._claim = threading.Lock()
        self._thread: threading.Thread | None = None
        self._plan = plan
        self.outcomes: Window[Outcome] = inner.outcomes
        self._finalizer = weakref.finalize(self, _stop, self._requests, inner)
        self._finalizer.atexit = False

    def begin(self) -> None:
        """Start what takes long."""
        begin = getattr(self._inner, "begin", None)
        if begin is not None:
            begin()

    def submit(self, task: Task) -> None:
        """Have batch `task.number` read and loaded."""
        if self._thread is None:
            thread = threading.Thread(
                target=_read,
                args=(self._plan, self._inner, self._requests, self._claim),
                name="feedline-reader",
                daemon=True,
            )
            thread.start()
            # A Ctrl-C before this line has another one started, which ends at once.
            self._thread = thread
            _readers[thread] = self._requests
        self._requests.put(task.number)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the next task to end, or for the end of the stream."""
        self._inner.wait(seconds)

    def notify(self) -> None:
        """Wake the consumer."""
        self._inner.notify()

    def cancel(self) -> None:
        """Stop reading after the item in hand."""
        _stop(self._requests, self._inner)


def _stop(requests: SimpleQueue[int | None], inner: Session) -> None:
    inner.cancel()
    requests.put(None)


def _read(plan: StreamPlan, inner: Session, requests: SimpleQueue[int | None], claim: threading.Lock) -> None:
    if not claim.acquire(blocking=False):
        return
    while True:
        number = requests.get()
        if number is None:
            return
        try:
            task = plan.task(number)
        except BaseException as error:  # such as SystemExit out of the stream: the consumer hears of it
            task = Task(number, plan.epoch, (), error=as_batch_error(error, None))
        if task is None:
            inner.notify()
        else:
            inner.submit(task)


#: Threads that read, and how each is told to stop.
_readers: weakref.WeakKeyDictionary[threading.Thread, SimpleQueue[int | None]] = weakref.WeakKeyDictionary()


@atexit.register
def _leave() -> None:
    readers = list(_readers.items())
    for _, requests in readers:
        requests.put(None)
    deadline = time.monotonic() + EXIT_PATIENCE
    for thread, _ in readers:
        thread.join(max(0.0, deadline - time.monotonic()))


class DeferredPlan:
    """The consumer's view of a plan that a reader reads: numbers, without items."""

    def __init__(self, plan: StreamPlan) -> None:
        self.first = plan.first
        self._plan = plan

    @property
    def can_group(self) -> bool:
        """One by one."""
        return False

    def task(self, number: int, count: int = 1) -> Task | None:
        """Return a task that only has its number; `None` past an end that is known."""
        end = self._plan.end()
        return None if end is not None and number >= end else Task(number, self._plan.epoch, ())

    def items_before(self, number: int) -> int:
        """Return this rank's items in the batches before `number`."""
        return self._plan.items_before(number)

    def stream_state(self, number: int) -> Mapping[str, Any] | None:
        """Return how the stream is set to where batch `number` begins."""
        return self._plan.stream_state(number)

    def end(self) -> int | None:
        """Return the number after the last batch, once the stream has ended."""
        return self._plan.end()

    def forget(self, number: int) -> None:
        """Batch `number` is received."""
        self._plan.forget(number)

    def close(self) -> None:
        """Nobody asks for more."""
        self._plan.close()
