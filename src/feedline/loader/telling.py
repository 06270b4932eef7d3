"""`Telling`: what one loader tells of itself: numbers, callbacks, traces, and how many workers it has."""

from __future__ import annotations

from collections.abc import Callable

from feedline.errors import OptionError
from feedline.loader.auto import AutoWidth, weak_method
from feedline.loader.execution.protocol import Executor
from feedline.loader.execution.serial import SerialExecutor
from feedline.loader.failures import Failure
from feedline.loader.iterator import DataLoaderIterator
from feedline.loader.lookout import Lookout, cores
from feedline.loader.monitor import Monitor, Observer, StatsCallback
from feedline.loader.options import LoaderOptions
from feedline.loader.report import report_text
from feedline.loader.stats import LoaderStats, Tally
from feedline.loader.trace import Trace

__all__ = ["Telling"]


class Telling:
    """Counts for one loader, and knows who wants to hear of it.

    Args:
        options: the loader's.
        source: `"map"`, `"async"` or `"stream"`.
        gives_many: the dataset gives the items of a batch in one call.
    """

    def __init__(self, options: LoaderOptions, source: str, *, gives_many: bool) -> None:
        self.tally = Tally()
        self.traces: list[Trace] = []
        self._options = options
        self._source = source
        self._gives_many = gives_many
        self._cores = cores()
        self._callbacks: list[tuple[StatsCallback, int]] = []
        self.auto: AutoWidth | None = None
        if options.num_workers == "auto":
            self.auto = AutoWidth(options.first_workers, options.worker_type, self._cores, self.stats)

    @property
    def width(self) -> int:
        """How many workers there are, or are to be."""
        return self._options.first_workers if self.auto is None else self.auto.width

    @property
    def is_listened_to(self) -> bool:
        """Whether somebody wants to hear of each batch: then none may take a short cut."""
        return bool(self.traces or self._callbacks) or self.auto is not None

    def stats(self) -> LoaderStats:
        """Return what the loader has done so far."""
        options = self._options
        return self.tally.stats(
            num_workers=self.width,
            worker_type=options.worker_type,
            source=self._source,
            gives_many=self._gives_many,
            item_concurrency=options.item_concurrency,
            prefetch_depth=options.prefetch_depth,
            cores=self._cores,
        )

    def report(self, epoch_items: int | None, last: Failure | None) -> str:
        """Return one screen in plain words; `last` is the last item that failed."""
        return report_text(
            self.stats(),
            epoch_items,
            None if last is None else f"item {last.index!r} of epoch {last.epoch}: {last.error}",
            None if self.auto is None else self.auto.note,
        )

    def lookout(self, executor: Executor) -> Lookout | None:
        """Return who looks at the workers while an iterator waits for them; nobody in the calling thread."""
        if isinstance(executor, SerialExecutor):
            return None
        return Lookout(self.tally, executor.places, self._options.worker_type == "thread")

    def observers(self, epoch: int) -> list[Observer]:
        """Return who is to hear of a new iterator's batches."""
        observers: list[Observer] = [
            Monitor(callback, every, self.stats) for callback, every in self._callbacks
        ]
        observers += [trace.observer(epoch, self.tally, self._source) for trace in self.traces]
        return observers

    def add_callback(self, callback: StatsCallback, every: int) -> Callable[[], None]:
        """Let `callback` hear of iterators from the next one on; return what takes that back."""
        if not callable(callback):
            raise TypeError(f"on_stats() needs a callable, not {type(callback).__name__}")
        if isinstance(every, bool) or not isinstance(every, int):
            raise TypeError(f"every must be an int, not {every!r}")
        if every < 1:
            raise OptionError(f"every must be at least 1 batch, not {every}")
        entry = (callback, every)
        self._callbacks.append(entry)

        def remove() -> None:
            self._callbacks[:] = [kept for kept in self._callbacks if kept is not entry]

        return remove

    def let_grow(self, iterator: DataLoaderIterator, executor: Executor) -> None:
        """Have the number of workers follow what `iterator` finds, where it is `"auto"`."""
        if self.auto is not None:
            iterator.add_observer(self.auto.attach(_Resize(iterator, executor, self._options.prefetch_depth)))


class _Resize:
    """Gives an executor another width, and its iterator the window that goes with it."""

    def __init__(self, iterator: DataLoaderIterator, executor: Executor, prefetch_depth: int) -> None:
        self._set_window = weak_method(iterator.set_window)
        self._set_width = weak_method(executor.resize)
        self._prefetch_depth = prefetch_depth

    def __call__(self, width: int) -> None:
        self._set_width(width)
        self._set_window(width + self._prefetch_depth)
