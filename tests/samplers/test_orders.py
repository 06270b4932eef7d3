from __future__ import annotations

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.samplers.orders import ReadAhead, as_indices, gather, order_from
from feedline.samplers.protocol import Order, OrderTail


class OnlySlices:
    """An order that counts what is read of it."""

    def __init__(self, length):
        self.length = length
        self.read = 0

    def __len__(self):
        return self.length

    def __getitem__(self, part):
        first, last, _ = part.indices(self.length)
        self.read += last - first
        return np.arange(first, last) * 2


def test_positions_far_apart_are_gathered_without_reading_what_lies_between():
    order = OnlySlices(10**12)
    assert gather(order, np.array([0, 3, 10**6, 10**12 - 1])).tolist() == [0, 6, 2 * 10**6, 2 * 10**12 - 2]
    assert order.read < 10


def test_an_array_is_an_order():
    assert isinstance(np.arange(3), Order)
    assert gather(np.array([7, 8, 9], np.int32), np.array([0, 2])).tolist() == [7, 9]


@pytest.mark.parametrize("values", [[0.5], [[1, 2]], ["a"], [True]])
def test_what_is_no_row_of_integers_is_refused(values):
    with pytest.raises(TypeError, match="1-d array of integers"):
        as_indices(values)


def test_what_an_order_gives_becomes_int64():
    assert as_indices([]).dtype == np.int64
    assert as_indices([1, 2]).dtype == np.int64
    assert as_indices(np.array([1], np.uint8)).dtype == np.int64
    same = np.arange(3)
    assert as_indices(same) is same


def test_the_rest_of_an_order_is_an_order():
    tail = OrderTail(np.arange(10), 7)
    assert len(tail) == 3
    assert tail[:].tolist() == [7, 8, 9]
    assert tail[-2:].tolist() == [8, 9]
    assert tail[5:1].tolist() == []
    assert len(OrderTail(np.arange(10), 70)) == 0
    with pytest.raises(OptionError, match="step 1"):
        tail[::2]
    with pytest.raises(TypeError, match="takes slices"):
        tail[0]


def test_a_sampler_without_order_from_is_sliced():
    class Plain:
        def order(self, length, epoch):
            return np.arange(length) + epoch

    assert order_from(Plain(), 5, 10, 3)[:].tolist() == [13, 14]
    assert order_from(Plain(), 5, 10, 0)[:].tolist() == [10, 11, 12, 13, 14]


def test_slices_in_sequence_are_read_in_blocks():
    order = OnlySlices(100)
    ahead = ReadAhead(order, block=30)
    parts = [ahead[k : k + 7].tolist() for k in range(0, 105, 7)]
    assert [index for part in parts for index in part] == [2 * p for p in range(100)]
    # Seven alone, then blocks of thirty that start anew where one ended in the middle of a slice.
    assert order.read < 130
    assert len(ahead) == 100


def test_a_seek_reads_what_it_needs_and_no_more():
    order = OnlySlices(10**6)
    ahead = ReadAhead(order, block=5000)
    for place in (500_000, 3, 999_990, 70_000):
        assert ahead[place : place + 5].tolist() == [2 * p for p in range(place, place + 5)]
    assert order.read == 20


def test_what_was_read_ahead_can_not_be_changed_from_outside():
    ahead = ReadAhead(OnlySlices(100), block=30)
    ahead[0:5]
    ahead[5:10][:] = -1
    assert ahead[5:12].tolist() == [10, 12, 14, 16, 18, 20, 22]
