from __future__ import annotations

import pytest

from feedline.errors import OptionError
from feedline.samplers.sequential import SequentialSampler


def test_items_come_as_they_lie():
    assert SequentialSampler().order(5, 3)[:].tolist() == [0, 1, 2, 3, 4]


def test_the_longest_dataset_there_can_be_costs_nothing():
    order = SequentialSampler().order(2**63 - 1, 0)
    assert len(order) == 2**63 - 1
    assert order[2**63 - 4 :].tolist() == [2**63 - 4, 2**63 - 3, 2**63 - 2]


@pytest.mark.parametrize("length", [-1, 2**63])
def test_a_length_that_no_dataset_has_is_refused(length):
    with pytest.raises(OptionError, match=f"length must be .*not {length}"):
        SequentialSampler().order(length, 0)


@pytest.mark.parametrize(("length", "epoch"), [(2.0, 0), ("2", 0), (True, 0), (2, 1.5), (2, None)])
def test_lengths_and_epochs_are_ints(length, epoch):
    with pytest.raises(TypeError, match="must be an int"):
        SequentialSampler().order(length, epoch)


def test_an_order_takes_slices_with_step_one_only():
    order = SequentialSampler().order(5, 0)
    with pytest.raises(OptionError, match="step 1, not 2"):
        order[::2]
    with pytest.raises(OptionError, match="step 1, not -1"):
        order[::-1]
    with pytest.raises(TypeError, match="takes slices"):
        order[0]
