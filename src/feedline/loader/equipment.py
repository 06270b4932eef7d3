"""What an iterator is equipped with: its pace, hints, targets to fill, a bar, and the short cut that it may take."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.datasets.protocol import is_stream
from feedline.loader.batch import BatchLoader
from feedline.loader.execution.protocol import Session
from feedline.loader.execution.serial import SerialSession
from feedline.loader.execution.watchdog import WatchedSession
from feedline.loader.fill import FillSource
from feedline.loader.groups import can_split
from feedline.loader.iterator import Pace
from feedline.loader.options import LoaderOptions
from feedline.loader.plain import Delivered, PlainItems, PlainLane, PlainWhole
from feedline.loader.plan import OrderPlan, Plan
from feedline.loader.progress import Position
from feedline.loader.progress_bar import ProgressBar
from feedline.loader.source import Source
from feedline.loader.stats import Clock, Tally
from feedline.loader.stream_plan import DeferredPlan, StreamPlan
from feedline.loader.stream_session import StreamSession
from feedline.transforms.compose import Identity

__all__ = [
    "consumers_plan",
    "equipped",
    "fill_source_of",
    "group_of",
    "hint_of",
    "leaves_nothing",
    "pace_of",
    "plain_lane",
    "progress_bar",
    "warn_of_no_batch",
]


def consumers_plan(plan: Plan, options: LoaderOptions) -> Plan:
    """Return what the consumer knows of `plan`: with workers, a stream is read by a thread of its own."""
    return DeferredPlan(plan) if options.num_workers and isinstance(plan, StreamPlan) else plan


def equipped(session: Session, reading: Plan, plan: Plan, options: LoaderOptions) -> Session:
    """Return `session` with a reader before it where the consumer has a `plan` of its own, and watched where asked for."""
    if isinstance(plan, DeferredPlan) and isinstance(reading, StreamPlan):
        session = StreamSession(session, reading)
    if options.watchdog is not None and not isinstance(session, SerialSession):
        session = WatchedSession(session, options.watchdog)
    return session


def pace_of(options: LoaderOptions, width: int, group: int) -> Pace:
    """Return how far work may run ahead with `width` workers, `group` batches being one task."""
    batches = width + options.prefetch_depth if options.num_workers else 1
    return Pace(
        window=batches * group,
        group=group,
        eager=options.num_workers != 0,
        max_bytes=options.prefetch_bytes,
        in_order=options.in_order,
    )


def group_of(load: BatchLoader, batch_size: int | None) -> int:
    """Return how many batches are gathered at once: small ones together, if the dataset asks for it."""
    rows, take = getattr(load.items.dataset, "take_rows", None), load.take
    if take is None or rows is None or batch_size is None or -(-rows // batch_size) <= 1:
        return 1
    return -(-rows // batch_size) if can_split(take(np.empty(0, np.int64), np.empty)) else 1


def leaves_nothing(plan: Plan, options: LoaderOptions, source: Source, epoch: int) -> bool:
    """Tell whether `drop_last` leaves no batch of an epoch that has items."""
    if not options.drop_last:
        return False
    end = plan.end()
    batches = source.batches(epoch) if end is None else end - plan.first
    return batches == 0 and bool(source.items(epoch))


def warn_of_no_batch(options: LoaderOptions, source: Source, epoch: int) -> None:
    """Warn whoever called `iter(loader)`."""
    warnings.warn(
        f"drop_last=True leaves nothing of {source.items(epoch)} items: batch_size={options.batch_size} is more than "
        f"there is for one batch",
        UserWarning,
        stacklevel=4,
    )


def hint_of(dataset: Any) -> Callable[[Any], None] | None:
    """Return what tells `dataset` which items come, if it wants to know."""
    hint: Any = getattr(dataset, "prefetch", None)
    if not callable(hint) or is_stream(dataset):
        return None
    if callable(getattr(dataset, "take", None)):
        told: Callable[[Any], None] = hint  # it speaks of arrays of indices
        return told
    return lambda indices: hint(indices.tolist() if isinstance(indices, np.ndarray) else indices)


def fill_source_of(dataset: Any, options: LoaderOptions) -> FillSource:
    """Return what `next_into` fills arrays from, or why it can't."""
    reason = None
    if options.transform is not None and not isinstance(options.transform, Identity):
        reason = "the loader has a transform"
    elif options.collate_fn is not None:
        reason = "the loader has a collate_fn"
    elif options.batch_size is None or options.batch_sampler is not None:
        reason = "batches have no fixed size"
    elif getattr(options.sampler, "tail", None) == "mask":
        reason = 'the sampler has tail="mask"'
    return FillSource(dataset, options.batch_size, reason)


def progress_bar(
    options: LoaderOptions, source: Source, start: Position, plan: Plan, tally: Tally
) -> ProgressBar | None:
    """Return the bar of one epoch, where one is asked for."""
    if not options.progress:
        return None
    end, size = plan.end(), options.batch_size
    if end is None:
        end = source.batches(start.epoch)
    # In batches, where a batch has no fixed size.
    total = None if end is None or size is None or options.batch_sampler is not None else end * size
    return ProgressBar(start.epoch, start.batch * (size or 1), total, tally)


def plain_lane(
    load: BatchLoader,
    options: LoaderOptions,
    plan: Plan,
    session: Session,
    group_size: Callable[[], int],
    tally: Tally,
    clock: Clock,
) -> PlainLane | None:
    """Return the short cut for `plan`, or `None` where something has to be decided on the way."""
    if not (isinstance(plan, OrderPlan) and plan.can_group):
        return None
    if type(session) is not SerialSession:
        # The usual way counts bytes, and what was delivered out of order.
        plain = options.in_order and options.prefetch_bytes is None
        return Delivered(session.outcomes, tally, clock) if plain else None
    if load.take is not None:
        return PlainWhole(load, plan, group_size(), tally, clock)
    if load.is_plain and not callable(getattr(load.items.dataset, "__getitems__", None)):
        return PlainItems(load, plan, session.outcomes, tally, clock)
    return None
