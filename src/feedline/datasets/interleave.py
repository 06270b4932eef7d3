"""A weighted interleave whose position is computed, not replayed. Pure arithmetic.

Note [nested lines]
    Two parts with shares `x` and `1 - x` are interleaved as evenly as can be by a line of slope `x` (Bresenham): among
    the first `p` places the first part has `floor(p x + 1/2)`, never more than half an item from its due. More parts
    are split in two again and again, along a Huffman tree of their weights: the places that a half gets are counted by
    its parent's line, and shared out by its own. So both questions, which part has place `p`, and which of its items
    that is, take one step per level, for any `p`, without what came before.

    An error is passed on to a child in the measure of its share: within a tree of Huffman's no half that is split again
    is heavier than two thirds, so that any part is always within two items of its due, within one for three parts,
    and within half an item for two.

    Shares are held in units of 2**-52 and positions are below 2**36, so products are split to stay within 64 bits, and
    a count is exact to less than a thousandth of an item anywhere.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from feedline.datasets.protocol import Int64Array

__all__ = ["MAX_POSITIONS", "Interleave"]

#: Positions are below this: 68.7 billion.
MAX_POSITIONS = 2**36
_UNIT_BITS = 52
_LOW_BITS = 26

#: A leaf is a part's number; a node is (share of the first half in units, first half, second half).
_Tree: TypeAlias = "int | tuple[int, _Tree, _Tree]"


class Interleave:
    """The order of parts for given weights: place 0, 1, 2, ... without end.

    Args:
        weights: positive and finite, one for each part; only their ratios matter.

    Determinism: a function of the weights alone.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self.num_parts = len(weights)
        self._tree = _huffman([Fraction(weight) for weight in weights])

    def locate(self, position: int) -> tuple[int, int]:
        """Return (part, which of its items) at `position`, in [0, MAX_POSITIONS)."""
        tree = self._tree
        while not isinstance(tree, int):
            share, first, second = tree
            before = _line(position, share)
            if _line(position + 1, share) > before:
                tree, position = first, before
            else:
                tree, position = second, position - before
        return tree, position

    def locate_many(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the same for int64 `positions` of shape `(b,)`: two arrays of shape `(b,)`."""
        parts = np.empty(len(positions), np.int64)
        items = np.empty(len(positions), np.int64)
        self._descend(self._tree, positions, np.arange(len(positions)), parts, items)
        return parts, items

    def _descend(
        self, tree: _Tree, positions: Int64Array, places: Int64Array, parts: Int64Array, items: Int64Array
    ) -> None:
        if isinstance(tree, int):
            parts[places] = tree
            items[places] = positions
            return
        share, first, second = tree
        before = _lines(positions, share)
        chosen = _lines(positions + 1, share) > before
        self._descend(first, before[chosen], places[chosen], parts, items)
        self._descend(second, (positions - before)[~chosen], places[~chosen], parts, items)

    def counts(self, position: int) -> list[int]:
        """Return how many items of each part lie before `position`."""
        found = [0] * self.num_parts
        waiting: list[tuple[_Tree, int]] = [(self._tree, position)]
        while waiting:
            tree, position = waiting.pop()
            if isinstance(tree, int):
                found[tree] = position
                continue
            share, first, second = tree
            before = _line(position, share)
            waiting += [(first, before), (second, position - before)]
        return found

    def longest(self, lengths: Sequence[int]) -> int:
        """Return how many places there are until a part of `lengths[part]` items would be asked for one more."""
        low, high = 0, min(sum(lengths), MAX_POSITIONS)
        while low < high:
            middle = (low + high + 1) // 2
            if all(count <= length for count, length in zip(self.counts(middle), lengths)):
                low = middle
            else:
                high = middle - 1
        return low


def _line(position: int, share: int) -> int:
    return (position * share + (1 << (_UNIT_BITS - 1))) >> _UNIT_BITS


def _lines(positions: Int64Array, share: int) -> Int64Array:
    # The same as `_line`, with the product in two halves: positions * share has up to 88 bits.
    high, low = share >> _LOW_BITS, share & ((1 << _LOW_BITS) - 1)
    carried = (positions * low) >> _LOW_BITS
    half = 1 << (_UNIT_BITS - 1 - _LOW_BITS)
    return (positions * high + carried + half) >> (_UNIT_BITS - _LOW_BITS)


def _huffman(weights: list[Fraction]) -> _Tree:
    # The least number of a tree's parts breaks ties, so that the tree is the same everywhere, and trees are never
    # compared; negative, so that of equal halves the one with the earlier part comes first.
    heap: list[tuple[Fraction, int, _Tree]] = [
        (weight, -number, number) for number, weight in enumerate(weights)
    ]
    heapq.heapify(heap)
    while len(heap) > 1:
        light, one, lighter = heapq.heappop(heap)
        heavy, other, heavier = heapq.heappop(heap)
        share = math.floor(heavy / (light + heavy) * 2**_UNIT_BITS + Fraction(1, 2))
        heapq.heappush(heap, (light + heavy, max(one, other), (share, heavier, lighter)))
    return heap[0][2]
