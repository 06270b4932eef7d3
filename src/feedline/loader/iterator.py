"""`DataLoaderIterator`: an executor's session, the window, and the consumer's position."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from feedline.errors import TooManyFailures
from feedline.loader import forks
from feedline.loader.batch import Outcome
from feedline.loader.execution.protocol import Session
from feedline.loader.fill import check_targets, fill_from
from feedline.loader.lookout import Lookout
from feedline.loader.monitor import Observer
from feedline.loader.ordering import Cursor, cursor_at
from feedline.loader.plain import DETOUR, PlainLane
from feedline.loader.plan import Plan
from feedline.loader.progress import Progress
from feedline.loader.stats import Clock, Tally, nbytes_of, next_sample

__all__ = ["DataLoaderIterator", "Pace"]

logger = logging.getLogger("feedline")

#: Batches of which a dataset with `prefetch` is told ahead, at least: enough to hide a disk.
HINTED_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """How far work may run ahead of the consumer.

    Attributes:
        window: batches in progress or waiting.
        group: batches that are gathered as one task.
        eager: submit as soon as there is room (workers), not when the consumer waits (the calling thread).
        max_bytes: bytes of batches in progress or waiting, or `None`; one batch is always allowed.
        in_order: deliver in epoch order.
    """

    window: int
    group: int
    eager: bool
    max_bytes: int | None
    in_order: bool


class MakesStates(Protocol):
    """Makes states of positions."""

    def __call__(self, progress: Progress) -> dict[str, Any]:
        """Return the state as it is now."""
        ...

    def bookmark(self, progress: Progress) -> Callable[[], dict[str, Any]]:
        """Return what gives the state as it is now, later."""
        ...


class DataLoaderIterator:
    """The batches of one epoch, from where it was started.

    A class, not a generator: it goes on after an exception. `len()` is the number of batches left.

    Concurrency: one thread at a time; `state_dict()` may be called from any other at any time.
    """

    #: What is done to each batch in the consumer's thread, before it is handed out.
    _deliver: Callable[[Any], Any] | None = None

    def __init__(
        self,
        progress: Progress,
        plan: Plan,
        session: Session,
        pace: Pace,
        *,
        on_received: Callable[[Outcome, int], None],
        make_state: MakesStates,
        hint: Callable[[Any], None] | None,
        fill_source: Any,
        expected: int | None,
        with_indices: bool,
        tally: Tally,
        clock: Clock,
        plain: PlainLane | None = None,
        observers: Sequence[Observer] = (),
        lookout: Lookout | None = None,
    ) -> None:
        self._progress = progress
        self._plan = plan
        self._session = session
        self._pace = pace
        self._on_received = on_received
        self._make_state = make_state
        self._hint = hint
        self._fill_source = fill_source
        self._expected = expected
        self._with_indices = with_indices
        self._tally = tally
        self._clock = clock
        self._plain = plain
        self._observers = observers
        self._lookout = lookout
        self._sample_at = self._size_at = -1
        self._generation = forks.generation()
        self._begin: Callable[[], None] | None = getattr(session, "begin", None)
        self._submitted = progress.cursor.next
        self._hinted = progress.cursor.next
        # The short cut submits more once so few batches are open that a whole group has room again.
        self._low = pace.window - pace.group + 1 if pace.eager else -1
        # On its detours the short cut of the calling thread has one batch made at a time.
        self._group = pace.group if plain is None or pace.eager else 1
        self._eager = pace.eager
        self._following = progress.cursor
        #: Bytes of the largest batch so far.
        self._largest: int | None = None
        self._broken: BaseException | None = None
        self._closed: str | None = None
        self._ended_by: TooManyFailures | None = None
        # After a `break`, or garbage collection: workers pass over what is queued, and the order's memory goes.
        self._finalizer = weakref.finalize(self, _leave, session, progress)

    def __iter__(self) -> DataLoaderIterator:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch, or raise the error that belongs to it; the following call goes on behind it."""
        plain = self._plain
        if plain is not None and self._closed is None and self._generation == forks.current:
            progress = self._progress
            number = progress.cursor.next
            value = plain(number)
            if value is not DETOUR:
                tally = self._tally
                tally.batches += 1
                tally.items += plain.count
                following = cursor_at(number + 1)
                eager = self._eager
                if eager and self._submitted - number <= self._low:
                    self._refill_later(following)
                if self._deliver is not None:
                    value = self._delivered(value, following)
                if self._with_indices:
                    value = (self._listed(plain.rows), value)
                # No call from here on: see Note [Ctrl-C] in ordering.
                progress.cursor = following
                if eager:
                    if plain.values is None:
                        plain.outcome.value = None
                    else:
                        plain.values[plain.place] = None
                return value
        outcome = self._receive()
        if outcome is None:
            raise StopIteration
        if outcome.error is not None:
            self._raise(outcome)
        value = outcome.value
        if self._deliver is not None:
            value = self._delivered(value, self._following)
        if self._with_indices:
            value = (self._listed(outcome.indices), value)
        self._progress.cursor = self._following
        outcome.value = None
        return value

    def _delivered(self, value: Any, following: Cursor) -> Any:
        """Return what `_deliver` makes of a batch; one that it can't make is received, as one that failed to load."""
        assert self._deliver is not None
        try:
            return self._deliver(value)
        except Exception:
            self._progress.cursor = following
            raise

    def _raise(self, outcome: Outcome) -> NoReturn:
        """Raise the error of `outcome`, which counts as received. Nothing here keeps it: it holds this iterator."""
        error = outcome.error
        assert error is not None
        try:
            self._progress.cursor = self._following
            outcome.error = outcome.cause = None
            raise error
        finally:
            del error, outcome

    @staticmethod
    def _listed(indices: Any) -> list[Any]:
        return indices.tolist() if isinstance(indices, np.ndarray) else list(indices)

    def next_into(self, *targets: npt.NDArray[Any]) -> int:
        """Gather the next batch into `targets`, one array for each of the dataset's arrays, and return its rows.

        Args:
            targets: C-contiguous and writable, of the dataset's dtypes, each of shape `(batch_size, ...)`.

        Returns:
            The number of rows that were written, 0 at the end of the epoch.

        Raises:
            TypeError: the dataset isn't made of arrays, or there is a transform or a `collate_fn`.
            ValueError: a target has another shape, dtype or layout; nothing is consumed.
        """
        self._check_usable()
        check_targets(self._fill_source, targets, self._with_indices)
        task = None if self._pace.eager else self._plan.task(self._progress.cursor.next)
        if (
            task is not None
            and task.error is None
            and self._session.outcomes.peek(self._progress.cursor) is None
        ):
            # Nothing waits to be delivered: straight into the caller's memory.
            start = perf_counter()
            rows = fill_from(self._fill_source, task.indices, targets)
            if rows is not None:
                ended = perf_counter()
                self._tally.fetch_seconds += ended - start
                self._clock.waited(start, ended)
                self._tally.batches += 1
                self._tally.items += rows
                self._progress.cursor = self._progress.cursor.after(task.number)
                return rows
        outcome = self._receive()
        if outcome is None:
            return 0
        if outcome.error is not None:
            self._raise(outcome)
        rows = len(outcome.indices)
        arrays = outcome.value.values() if isinstance(outcome.value, dict) else outcome.value
        for target, array in zip(targets, arrays, strict=True):
            target[:rows] = array
        self._progress.cursor = self._following
        outcome.value = None
        return rows

    def _receive(self) -> Outcome | None:
        """Return the next outcome that is not empty; `None` at the end.

        The caller moves the cursor to `_following`, as the last thing that it does.
        """
        self._check_usable()
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        while True:
            cursor = self._progress.cursor
            outcome = self._session.outcomes.peek(cursor)
            if outcome is None:
                outcome = self._wait(cursor)
            else:
                self._clock.seen = perf_counter()
            if outcome is None:
                self._progress.ended = True
                self._finish("at its end")
                return None
            following = cursor.after(outcome.number)
            self._plan.forget(outcome.number)
            if self._pace.max_bytes is not None:
                self._largest = max(self._largest or 0, nbytes_of(outcome.value))
            if self._eager:
                self._refill_later(following)
            self._record(outcome, following)
            self._tally.add(outcome)
            if outcome.number >= self._size_at:
                self._size_at = next_sample(outcome.number)
                self._tally.size(outcome.value)
            for observer in self._observers:
                observer.received(outcome)
            if not outcome.empty:
                self._following = following
                return outcome
            self._progress.cursor = following

    def _record(self, outcome: Outcome, following: Cursor) -> None:
        try:
            self._on_received(outcome, self._progress.epoch)
        except TooManyFailures as error:
            self._ended_by = error
            self._progress.cursor = following
            self._finish("by too many failures")
            raise

    def _wait(self, cursor: Cursor) -> Outcome | None:
        start = now = perf_counter()
        lookout = self._lookout
        self._session.outcomes.await_batch(cursor)
        self._session.outcomes.drop_received(cursor)
        outcome = self._session.outcomes.peek(cursor)
        if self._begin is not None and not self._at_end(cursor):
            # The first task may need the order of a whole epoch: workers boot meanwhile.
            begin, self._begin = self._begin, None
            begin()
        while outcome is None:
            self._refill(cursor)
            if self._at_end(cursor):
                break
            if lookout is None:
                self._load_here(cursor.next)
            elif now < lookout.due:
                self._session.wait(lookout.due - now)
            else:
                # Any batch that comes in the middle of a look spoils it, and has to be heard of.
                self._session.outcomes.awaited = None
                lookout.look(self._session, self._in_progress(cursor))
                self._session.outcomes.await_batch(cursor)
            self._check_usable()
            outcome = self._session.outcomes.peek(cursor)
            now = perf_counter()
        self._clock.waited(start, now)
        return outcome

    def _load_here(self, number: int) -> None:
        """Have the calling thread compute the batch, some of them as examples of what that takes."""
        if number < self._sample_at:
            self._session.wait()
            return
        self._sample_at = next_sample(number)
        sample = self._tally.begin_sample()
        self._session.wait()
        self._tally.end_sample(sample)

    def _in_progress(self, cursor: Cursor) -> float:
        """Return how many tasks workers have in hand, or wait for one."""
        batches = self._submitted - cursor.next - len(cursor.ahead) - len(self._session.outcomes)
        return batches / self._group

    def _at_end(self, cursor: Cursor) -> bool:
        end = self._plan.end()
        return end is not None and cursor.next >= end

    def _refill(self, cursor: Cursor) -> None:
        """Submit what there is room for when the consumer is at `cursor`.

        The calling thread takes on work only when nothing is left to deliver.
        """
        pace = self._pace
        while True:
            self._submitted = max(self._submitted, cursor.next)
            open_batches = self._submitted - cursor.next
            room = pace.window - open_batches + (0 if pace.in_order else min(1, len(cursor.ahead)))
            if room < self._group and open_batches:
                return
            if open_batches and self._is_full(open_batches - len(cursor.ahead)):
                return
            task = self._plan.task(self._submitted, self._group)
            if task is None:
                return
            if self._submitted in cursor.ahead:
                self._plan.forget(self._submitted)
                self._submitted += 1
                continue
            if self._hint is not None:
                self._give_hints(cursor)
            self._session.submit(task)
            self._submitted = task.number + task.count

    def _is_full(self, waiting: int) -> bool:
        """Tell whether one more batch would be too many bytes; before the first has come, nobody knows how large one is."""
        limit = self._pace.max_bytes
        return limit is not None and (self._largest is None or self._largest * (waiting + 1) > limit)

    def _refill_later(self, cursor: Cursor) -> None:
        # The batch in hand comes first: a failure to start more belongs to the next call.
        try:
            self._refill(cursor)
        except Exception as error:
            self._broken = error

    def _give_hints(self, cursor: Cursor) -> None:
        """Tell the dataset which items come, each batch once."""
        assert self._hint is not None
        horizon = self._submitted + max(HINTED_BATCHES, self._pace.window)
        self._hinted = max(self._hinted, self._submitted)
        while self._hinted <= horizon:
            task = self._plan.task(self._hinted)
            if task is None:
                return
            self._hinted += 1
            if task.error is not None or task.number in cursor.ahead or not len(task.indices):
                continue
            try:
                self._hint(task.indices)
            except Exception:
                logger.warning("prefetch() of the dataset failed; it is not called again", exc_info=True)
                self._hint = None
                return

    def _check_usable(self) -> None:
        if self._generation != forks.generation():
            raise RuntimeError(
                "this iterator was made before a fork, its workers are in the parent; "
                "make a new one with iter(loader)"
            )
        if self._ended_by is not None:
            raise self._ended_by
        if self._closed == "by close()":
            raise RuntimeError("this iterator is closed; make a new one with iter(loader)")

    def _finish(self, how: str) -> None:
        self._closed = self._closed or how
        # Not by the finalizer, which runs once: cut off by a Ctrl-C, this is done again.
        _leave(self._session, self._progress)
        if self._lookout is not None:
            self._lookout.look_at_memory()
        for observer in self._observers:
            observer.ended()
        # Another thread may be waiting in next(): it shall hear of it.
        self._session.notify()

    def close(self) -> None:
        """Drop what is in progress; idempotent. The position stays readable."""
        self._finish("by close()")

    def __enter__(self) -> DataLoaderIterator:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def set_window(self, tasks: int) -> None:
        """Let so many tasks be in progress or waiting from now on; nothing else changes."""
        self._pace = pace = replace(self._pace, window=tasks * self._pace.group)
        self._low = pace.window - pace.group + 1 if pace.eager else -1

    def add_observer(self, observer: Observer) -> None:
        """Let `observer` hear of the batches that are received from now on."""
        self._observers = [*self._observers, observer]

    @property
    def progress(self) -> Progress:
        """Where the consumer is."""
        return self._progress

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was received from *this* iterator, as JSON values."""
        return self._make_state(self._progress)

    def bookmark(self) -> Callable[[], dict[str, Any]]:
        """Return a function that gives the state as it is now, whenever it is called: for who reads ahead of a consumer.

        Costs a microsecond or two; the state itself is made when it is asked for.
        """
        return self._make_state.bookmark(self._progress)

    def __len__(self) -> int:
        """Return how many batches are left, batches that will raise included."""
        cursor = self._progress.cursor
        end = self._plan.end()
        if end is None:
            if self._expected is None:
                raise TypeError("the sampler has no length, so nobody knows how many batches are left")
            end = self._expected
        return max(0, end - cursor.next - len(cursor.ahead))


def _leave(session: Session, progress: Progress) -> None:
    session.cancel()
    progress.settle()
