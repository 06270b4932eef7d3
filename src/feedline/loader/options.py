"""`LoaderOptions`: the one place that checks what a loader is asked for."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from feedline.errors import OptionError
from feedline.keys import check_seed
from feedline.loader.failures import ErrorPolicy, check_policy
from feedline.transforms.protocol import check_transform, wants_context

__all__ = ["LoaderOptions", "WorkerType", "check_map_options", "check_names", "check_stream_options"]

WorkerType: TypeAlias = Literal["thread", "process", "ray"]
WORKER_TYPES = ("thread", "process", "ray")
#: Workers that `num_workers="auto"` starts with.
FIRST_WORKERS = 2


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """Checked options of a loader; what each means stands at `DataLoader`.

    Raises:
        OptionError: a value is out of its range, or two options contradict each other.
        TypeError: a value is of another type.
    """

    batch_size: int | None = 1
    shuffle: bool = False
    sampler: Any = None
    batch_sampler: Any = None
    drop_last: bool = False
    seed: int | None = 0
    transform: Callable[..., Any] | None = None
    collate_fn: Callable[..., Any] | None = None
    num_workers: int | Literal["auto"] = 0
    worker_type: WorkerType = "thread"
    item_concurrency: int = 1
    prefetch_depth: int = 2
    prefetch_bytes: int | None = None
    in_order: bool = True
    on_error: ErrorPolicy = "raise"
    max_failures: int | float | None = None
    timeout: float | None = None
    watchdog: float | None = None
    reseed_globals: bool = False
    pin_memory: bool = False
    progress: bool = False
    rank: int | None = None
    world_size: int | None = None

    def __post_init__(self) -> None:
        checked = {
            "batch_size": _optional(_integer, "batch_size", self.batch_size, 1),
            "shuffle": _boolean("shuffle", self.shuffle),
            "drop_last": _boolean("drop_last", self.drop_last),
            "seed": None if self.seed is None else check_seed(self.seed),
            "num_workers": _workers(self.num_workers),
            "item_concurrency": _integer("item_concurrency", self.item_concurrency, 1),
            "prefetch_depth": _integer("prefetch_depth", self.prefetch_depth, 0),
            "prefetch_bytes": _optional(_integer, "prefetch_bytes", self.prefetch_bytes, 1),
            "in_order": _boolean("in_order", self.in_order),
            "on_error": check_policy(self.on_error),
            "max_failures": _failures(self.max_failures),
            "timeout": _seconds("timeout", self.timeout),
            "watchdog": _seconds("watchdog", self.watchdog),
            "progress": _boolean("progress", self.progress),
            "rank": _optional(_integer, "rank", self.rank, 0),
            "world_size": _optional(_integer, "world_size", self.world_size, 1),
            "reseed_globals": _boolean("reseed_globals", self.reseed_globals),
            "pin_memory": _boolean("pin_memory", self.pin_memory),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        _check_worker_type(self.worker_type)
        _check_callables(self)
        _check_samplers(self)
        _check_contradictions(self)

    @property
    def first_workers(self) -> int:
        """How many workers a loader has at its start."""
        return FIRST_WORKERS if self.num_workers == "auto" else self.num_workers

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all options."""
        return tuple(field.name for field in fields(cls))


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__} {value!r}") from None
    if number < least:
        raise OptionError(f"{name} must be at least {least}, not {number}")
    return number


def _workers(value: Any) -> int | Literal["auto"]:
    if not isinstance(value, str):
        return _integer("num_workers", value, 0)
    if value != "auto":
        raise OptionError(f"num_workers must be an int of at least 0, or 'auto', not {value!r}")
    return "auto"


def _optional(check: Callable[[str, Any, int], int], name: str, value: Any, least: int) -> int | None:
    return None if value is None else check(name, value, least)


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not 0 < value < float("inf"):
        raise OptionError(f"{name} must be a positive, finite number of seconds, not {value!r}")
    return float(value)


def _failures(value: Any) -> int | float | None:
    if isinstance(value, (float, np.floating)):
        if not 0 <= value <= 1:
            raise OptionError(f"max_failures as a fraction must be between 0 and 1, not {value!r}")
        return float(value)
    return _optional(_integer, "max_failures", value, 0)


def _check_worker_type(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"worker_type must be a str, not {type(value).__name__}")
    if value not in WORKER_TYPES:
        raise OptionError(f"worker_type must be one of {', '.join(WORKER_TYPES)}, not {value!r}")


def _check_callables(options: LoaderOptions) -> None:
    if options.transform is not None:
        check_transform(options.transform)
        wants_context(options.transform)
    if options.collate_fn is not None and not callable(options.collate_fn):
        raise TypeError(f"collate_fn must be callable, not {type(options.collate_fn).__name__}")


def _check_samplers(options: LoaderOptions) -> None:
    sampler, batch_sampler = options.sampler, options.batch_sampler
    if isinstance(sampler, (str, bytes, Mapping, type)):
        raise TypeError(f"sampler must be a sampler or an iterable of indices, not {sampler!r}")
    if sampler is not None and callable(getattr(sampler, "batches", None)):
        raise OptionError(f"{type(sampler).__name__} is a batch sampler: pass it as batch_sampler=")
    if sampler is not None and not callable(getattr(sampler, "order", None)) and not _can_iterate(sampler):
        raise TypeError(
            f"sampler must have order(length, epoch) or be iterable; {type(sampler).__name__} is neither"
        )
    if batch_sampler is None:
        return
    if isinstance(batch_sampler, (str, bytes, Mapping, type)) or not (
        callable(getattr(batch_sampler, "batches", None)) or _can_iterate(batch_sampler)
    ):
        raise TypeError(
            f"batch_sampler must have batches(length, epoch) or be an iterable of lists of indices, "
            f"not {batch_sampler!r}"
        )


def _can_iterate(value: Any) -> bool:
    return hasattr(value, "__iter__") or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))


def _check_contradictions(options: LoaderOptions) -> None:
    if options.shuffle and options.sampler is not None:
        raise OptionError("shuffle=True and sampler= contradict each other: the sampler decides the order")
    if options.batch_sampler is not None:
        for name, given in (
            ("sampler", options.sampler is not None),
            ("shuffle", options.shuffle),
            ("drop_last", options.drop_last),
            ("batch_size", options.batch_size != 1),
        ):
            if given:
                raise OptionError(f"batch_sampler= and {name}= contradict each other: it decides the batches")
    if options.batch_size is None and options.drop_last:
        raise OptionError("drop_last=True without batches (batch_size=None) has no meaning")
    if options.seed is None and getattr(options.sampler, "stride", 1) > 1:
        raise OptionError(
            "seed=None with world_size > 1: every rank would draw entropy of its own; give all ranks one seed"
        )
    if options.reseed_globals and options.num_workers and options.worker_type == "thread":
        raise OptionError(
            "reseed_globals=True with worker threads: threads share the global generators, so what one item "
            "draws would depend on the others; use num_workers=0 or worker_type='process', or draw from context.rng"
        )
    if options.reseed_globals and options.item_concurrency > 1:
        raise OptionError(
            f"reseed_globals=True with item_concurrency={options.item_concurrency}: items at once in one process share "
            f"the global generators; use item_concurrency=1, or draw from context.rng"
        )
    if options.reseed_globals and options.item_concurrency > 1:
        raise OptionError(
            "reseed_globals=True with item_concurrency > 1: items that are loaded at once share the global generators; "
            "leave item_concurrency at 1, or draw from context.rng"
        )
    if (options.rank is None) != (options.world_size is None):
        missing = "rank" if options.rank is None else "world_size"
        raise OptionError(f"rank= and world_size= go together; {missing} is missing")
    if options.rank is not None and options.world_size is not None and options.rank >= options.world_size:
        raise OptionError(f"rank must be below world_size={options.world_size}, not {options.rank}")


def check_names(given: Mapping[str, Any]) -> None:
    """Raise a `TypeError` for an option that there is none of, naming the one that was meant, perhaps."""
    for name in given:
        if name not in LoaderOptions.names():
            close = difflib.get_close_matches(name, LoaderOptions.names(), 1)
            meant = f"; did you mean {close[0]}=?" if close else ""
            raise TypeError(f"a DataLoader has no option {name}={meant}")


def check_stream_options(options: LoaderOptions) -> None:
    """Raise an `OptionError` for what has no meaning for a stream."""
    for name, given, instead in (
        ("shuffle", options.shuffle, "use feedline.shuffle_buffer(stream, size, seed)"),
        ("sampler", options.sampler is not None, "a stream has an order of its own"),
        ("batch_sampler", options.batch_sampler is not None, "a stream has an order of its own"),
        (
            'on_error="substitute"',
            options.on_error == "substitute",
            'a stream has no other items to take; use on_error="skip"',
        ),
    ):
        if given:
            raise OptionError(f"{name if '=' in name else name + '='} is not for streams: {instead}")


def check_map_options(options: LoaderOptions) -> None:
    """Raise an `OptionError` for what has no meaning for a map-style dataset."""
    if options.world_size is not None:
        raise OptionError(
            "rank= and world_size= are for streams; a map-style loader never shards by itself: "
            "use sampler=DistributedSampler(...)"
        )
