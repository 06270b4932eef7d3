"""Slips that a first user makes, and what they are told."""

from __future__ import annotations

import gc
import re
import threading

import numpy as np
import pytest

from feedline import DataLoader, OptionError, StateError


class Numbers:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index


class Failing(Numbers):
    def __getitems__(self, indices):
        raise ValueError("bad")


def test_an_option_that_there_is_none_of_is_named_with_the_one_that_was_meant():
    with pytest.raises(TypeError, match=r"no option num_worker=; did you mean num_workers=\?"):
        DataLoader(Numbers(), num_worker=2)
    with pytest.raises(TypeError, match="no option bogus="):
        DataLoader(Numbers(), bogus=1)


def test_a_batch_sampler_of_indices_is_told_what_it_gives():
    with pytest.raises(TypeError, match="the batch sampler gave 1 at position 0; it gives lists of indices"):
        next(iter(DataLoader(Numbers(), batch_sampler=[1, 2])))


def test_a_sampler_whose_order_is_none_is_named():
    class Lazy:
        def order(self, length, epoch):
            return None

    with pytest.raises(TypeError, match=re.escape("Lazy.order(20, 0) returned None")):
        iter(DataLoader(Numbers(), sampler=Lazy()))


def test_a_single_value_is_no_dataset():
    with pytest.raises(TypeError, match="single value"):
        DataLoader(np.array(3))


def test_an_empty_state_is_called_empty():
    with pytest.raises(StateError, match="it is empty"):
        DataLoader(Numbers()).load_state_dict({})


def test_substitutes_for_streams_are_refused_by_their_name():
    with pytest.raises(OptionError, match='on_error="substitute" is not for streams'):
        DataLoader(iter([1, 2]), on_error="substitute")


@pytest.mark.parametrize("options", [{}, {"timeout": 60.0}, {"item_concurrency": 2}])
def test_an_error_of_items_fetched_together_keeps_no_worker_alive(options):
    before = set(threading.enumerate())
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="bad"):
            list(
                DataLoader(
                    Failing() if not options.get("item_concurrency") else _Broken(),
                    4,
                    num_workers=2,
                    **options,
                )
            )
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
            assert not thread.is_alive()
    finally:
        gc.enable()


class _Broken(Numbers):
    def __getitem__(self, index):
        raise ValueError("bad")
