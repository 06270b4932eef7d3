"""An iterator over a user's own iterable that survives a Ctrl-C."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["Rewalk"]

#: Iterators whose next value can't be lost by a Ctrl-C: they run no Python code.
_EMPTY: tuple[Iterable[Any], ...] = ([], (), range(0), range(1 << 80), {}, set())
_SAFE = tuple(type(iter(one)) for one in _EMPTY)


class Rewalk:
    """Draws values, and counts them.

    Args:
        values: what is walked.
        again: starts it anew and returns (iterator, values that it has passed already); default: `iter(values)` again.

    Note [Ctrl-C in a generator]
        A KeyboardInterrupt inside of a generator ends it: asked again, it has nothing more, which would look like the end
        of the data. So after one, the iterable is walked anew up to where it was. Its order must be the same each time,
        which resuming needs as well. An iterator that can't be started anew goes on as it is, if it can.
    """

    def __init__(
        self, values: Iterable[Any], again: Callable[[], tuple[Iterator[Any], int]] | None = None
    ) -> None:
        self._values = values
        self._again = again or (lambda: (iter(self._values), 0))
        self._source = iter(values)
        self._is_one_shot = self._source is values
        self._is_interrupted = False
        #: Values that were drawn so far.
        self.drawn = 0

    def draw(self, kept: list[Any], count: int) -> None:
        """Append values to `kept` until it has `count`, or nothing more comes; what an exception cuts off is kept."""
        self._begin()
        if len(kept) < count:
            for value in self._source:
                # No call between the value's coming and its being kept: see Note [Ctrl-C] in ordering.
                kept += (value,)
                self.drawn += 1
                if len(kept) >= count:
                    break
        self._is_interrupted = False

    def skip(self, count: int) -> None:
        """Draw `count` values, or what there is, and drop them."""
        self._begin()
        goal = self.drawn + count
        if self.drawn < goal:
            for _ in self._source:
                self.drawn += 1
                if self.drawn >= goal:
                    break
        self._is_interrupted = False

    def _begin(self) -> None:
        """Start anew if the last call was cut off; until this one ends, it counts as cut off itself."""
        if self._is_interrupted and type(self._source) not in _SAFE:
            if not self._is_one_shot:
                source, passed = self._again()
                while passed < self.drawn:
                    for _ in source:
                        passed += 1
                        break
                    else:
                        break
                self._source = source
            elif inspect.isgenerator(self._source) and self._source.gi_frame is None:
                raise RuntimeError(
                    f"the generator {self._source.__name__} was interrupted in its own code and is dead; give an "
                    f"object that can be iterated anew, such as a list, or a class with __iter__"
                )
        self._is_interrupted = True
