"""What a transform is: a callable on one item, with or without its context.

| form | called |
| --- | --- |
| one required positional argument | `f(item)` |
| two | `f(item, context)`, `context` an `ItemContext` |

A transform runs in the workers, on several threads at once. `Compose([a, b])`, `a.then(b)` and `Identity` combine them.
Randomness comes from `context.rng`, a function of (seed, epoch, index, place in the chain): never of the worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from feedline.keys import UNIFORMS, BatchUniforms, item_generator, item_uniforms

if TYPE_CHECKING:
    from feedline.transforms.compose import Compose

__all__ = ["ItemContext", "Transform", "check_transform", "wants_context"]


class RowSource(Protocol):
    """Memory of a batch, row by row (`feedline.collate.buffers.BatchMemory` is one)."""

    def row(self, position: int, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> npt.NDArray[Any]:
        """Return memory for the item at `position` of the batch."""
        ...

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> npt.NDArray[Any]:
        """Return memory that is used again once nobody sees it any more."""
        ...


class ItemContext:
    """What a transform may know of its item.

    Attributes:
        index: the item's index in its dataset, as the sampler gave it.
        epoch: the epoch it is loaded for.
        seed: the loader's seed.
        place: which step of the chain runs, from 0, nested chains flattened.
        last: no step of the chain comes after it.
        between: gives memory for what this step hands on, where steps are carried out together; `None` elsewhere.

    Concurrency: belongs to one item and one thread; a new one is made for every item.
    """

    __slots__ = (
        "_batch",
        "_memory",
        "_position",
        "_streams",
        "between",
        "epoch",
        "index",
        "last",
        "place",
        "seed",
    )

    def __init__(
        self,
        index: Any,
        epoch: int,
        seed: int,
        memory: RowSource | None = None,
        position: int = 0,
        batch: BatchUniforms | None = None,
    ) -> None:
        self.index = index
        self.epoch = epoch
        self.seed = seed
        self.place = 0
        self.last = False
        self.between: Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]] | None = None
        # By place: a generator, or the numbers of its stream that `uniform` has not given yet, the next one last.
        self._streams: dict[int, np.random.Generator | list[float]] | None = None
        self._memory = memory
        self._position = position
        self._batch = batch

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this step, made on first use.

        Determinism: depends on (seed, epoch, index, place) alone, so a step draws the same numbers whatever the
        number and kind of workers, after a resume, and when its batch is replayed.
        """
        streams = self._streams
        if streams is None:
            streams = self._streams = {}
        stream = streams.get(self.place)
        if stream is None or type(stream) is list:
            generator = item_generator(self.seed, self.epoch, self.index, self.place)
            if stream is not None:
                generator.bit_generator.random_raw(UNIFORMS - len(stream), output=False)
            streams[self.place] = stream = generator
        return stream  # type: ignore[return-value]

    def uniform(self) -> float:
        """Draw a number from [0, 1): the one that `rng.random()` would give next, at a fraction of the cost.

        Making a generator takes longer than drawing a few numbers and flipping an image; this makes none, unless more
        than eight numbers are drawn. Both may be used by turns.
        """
        streams = self._streams
        if streams is None:
            streams = self._streams = {}
        stream = streams.get(self.place)
        if stream is None:
            if type(self) is not ItemContext:  # a subclass may have an `rng` of its own
                return self.rng.random()
            batch = self._batch
            if batch is None:
                stream = item_uniforms(self.seed, self.epoch, self.index, self.place)
            else:
                stream = batch.take(self.place, self._position, self.index)
            stream.reverse()
            streams[self.place] = stream
        if type(stream) is list and stream:
            return stream.pop()
        return self.rng.random()

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return C-contiguous, writable memory for this item's result, its content undefined.

        Where it can be, it is the item's own row of the batch, so that collation has nothing left to copy. To be used
        for the last step's result only, at most once an item.
        """
        if self._memory is None:
            return np.empty(shape, dtype)
        return self._memory.row(self._position, shape, np.dtype(dtype))

    def temporary(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return C-contiguous, writable memory for what one step hands to the next, its content undefined.

        It has been used before, where that can be: fresh memory for every image costs more page faults than the work
        that it is for. An ordinary array otherwise: it stays valid as long as somebody sees it.
        """
        if self._memory is None:
            return np.empty(shape, dtype)
        return self._memory.allocate(shape, np.dtype(dtype))

    def result(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return memory for what a step returns: by `allocate` in the last step of a chain, by `temporary` in others."""
        if self.between is not None:
            return self.between(shape, dtype)
        return self.allocate(shape, dtype) if self.last else self.temporary(shape, dtype)

    def __repr__(self) -> str:
        return f"ItemContext(index={self.index!r}, epoch={self.epoch}, seed={self.seed}, place={self.place})"


class Transform:
    """A base for steps, for `then`; any callable of one or two arguments will do without it."""

    def __call__(self, item: Any, context: ItemContext) -> Any:
        """Return what becomes of `item`; subclasses may leave `context` out."""
        raise TypeError(f"{type(self).__name__} defines no __call__")

    def then(self, following: Callable[..., Any]) -> Compose:
        """Return the chain of this step and `following`."""
        from feedline.transforms.compose import Compose

        return Compose([self, following])


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def wants_context(transform: Callable[..., Any]) -> bool:
    """Tell whether `transform` is called as `f(item, context)` (two required positional arguments) or as `f(item)`.

    Callables that hide their signature (some builtins) are called as `f(item)`. An attribute `takes_context` decides
    where there is one: so a step can take a context in a chain and do without it by hand.

    Raises:
        TypeError: it can be called neither way.
    """
    check_transform(transform)
    told = getattr(transform, "takes_context", None)
    if isinstance(told, bool):
        return told
    try:
        parameters = inspect.signature(transform).parameters.values()
    except (ValueError, TypeError):
        return False
    required = [p for p in parameters if p.default is inspect.Parameter.empty]
    positional = [p for p in required if p.kind in _POSITIONAL]
    needs_keywords = [p.name for p in required if p.kind is inspect.Parameter.KEYWORD_ONLY]
    takes_any = any(p.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL) for p in parameters)
    if len(positional) > 2 or needs_keywords or not takes_any:
        raise TypeError(
            f"a transform takes one required positional argument (item) or two (item, context); "
            f"{transform!r} has the signature {inspect.signature(transform)}"
        )
    return len(positional) == 2


def check_transform(transform: Any) -> None:
    """Raise a `TypeError` if `transform` is not callable (or is a class where an instance is meant)."""
    if not callable(transform):
        raise TypeError(f"a transform must be callable, not {type(transform).__name__} {transform!r}")
    if isinstance(transform, type) and issubclass(transform, Transform):
        raise TypeError(f"{transform.__name__} is a class; a step is an instance: {transform.__name__}(...)")
