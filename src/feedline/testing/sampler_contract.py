# ruff: noqa: D102 - the names of the checks are their docstrings.
"""What every sampler keeps to, as classes to subclass: for feedline's own samplers and for yours.

```python
class TestMySampler(SamplerContract):
    def make_sampler(self, length):
        return MySampler()
```

pytest then runs every check over datasets of the lengths in `lengths`. Optional members of the protocol are checked where the
sampler has them.
"""

from __future__ import annotations

import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

__all__ = ["BatchSamplerContract", "SamplerContract"]


def _global_states() -> tuple[Any, bytes]:
    return random.getstate(), pickle.dumps(np.random.get_state())


class _Contract:
    """What samplers of items and of batches share."""

    #: Lengths of dataset that the checks run over.
    lengths: tuple[int, ...] = (0, 1, 2, 10, 257)
    epochs: tuple[int, ...] = (0, 1, 2**64 - 1)

    def make_sampler(self, length: int) -> Any:
        """Return a sampler for a dataset of `length` items; equal each time that it is called."""
        raise NotImplementedError(f"{type(self).__name__} must define make_sampler(length)")

    def read(self, sampler: Any, length: int, epoch: int, position: int = 0) -> list[Any]:
        """Return everything that `sampler` gives for an epoch, as plain lists."""
        raise NotImplementedError(f"{type(self).__name__} must define read(...)")

    def test_an_epoch_depends_on_its_arguments_only(self) -> None:
        for length in self.lengths:
            sampler = self.make_sampler(length)
            first = {epoch: self.read(sampler, length, epoch) for epoch in self.epochs}
            again = self.make_sampler(length)
            for epoch in reversed(self.epochs):
                assert self.read(again, length, epoch) == first[epoch]
                assert self.read(sampler, length, epoch) == first[epoch]

    def test_a_copy_that_was_pickled_gives_the_same(self) -> None:
        for length in self.lengths:
            sampler = self.make_sampler(length)
            expected = self.read(sampler, length, 1)
            copy = pickle.loads(pickle.dumps(sampler))
            assert self.read(copy, length, 1) == expected
            assert repr(copy) == repr(sampler)

    def test_nothing_touches_the_global_random_state(self) -> None:
        before = _global_states()
        for length in self.lengths:
            self.read(self.make_sampler(length), length, 0)
        assert _global_states() == before

    def test_the_global_random_state_has_no_say(self) -> None:
        length = max(self.lengths)
        expected = self.read(self.make_sampler(length), length, 0)
        saved = random.getstate(), np.random.get_state()
        try:
            random.seed(123)
            np.random.seed(123)
            assert self.read(self.make_sampler(length), length, 0) == expected
        finally:
            random.setstate(saved[0])
            np.random.set_state(saved[1])

    def test_a_resumed_epoch_goes_on_with_what_is_left(self) -> None:
        for length in self.lengths:
            sampler = self.make_sampler(length)
            whole = self.read(sampler, length, 1)
            stride = getattr(sampler, "stride", 1)
            for done in {0, 1, 2, len(whole) // 2, len(whole) - 1, len(whole)}:
                if 0 <= done <= len(whole):
                    assert self.read(sampler, length, 1, done * stride) == whole[done:]

    def test_longest_is_no_shorter_than_what_comes(self) -> None:
        for length in self.lengths:
            sampler = self.make_sampler(length)
            if hasattr(sampler, "longest"):
                for position in (0, 1, length // 2, length, length + 1):
                    left = self.read(sampler, length, 0, position)
                    assert sampler.longest(length, position, 0) >= len(left)

    def test_options_are_json_and_equal_for_equal_samplers(self) -> None:
        for length in self.lengths:
            sampler = self.make_sampler(length)
            if hasattr(sampler, "options"):
                options = sampler.options()
                assert json.loads(json.dumps(options)) == options
                assert self.make_sampler(length).options() == options

    def test_another_seed_gives_another_order_and_the_old_one_comes_back(self) -> None:
        length = max(self.lengths)
        sampler = self.make_sampler(length)
        if getattr(sampler, "seed", None) is None or not hasattr(sampler, "with_seed"):
            return
        expected = self.read(sampler, length, 0)
        other = sampler.with_seed(sampler.seed + 1)
        assert other.seed == sampler.seed + 1
        assert self.read(other, length, 0) != expected
        assert self.read(other.with_seed(sampler.seed), length, 0) == expected
        assert self.read(sampler, length, 0) == expected

    def test_threads_may_share_a_sampler_and_what_it_gives(self) -> None:
        length = max(self.lengths)
        expected = self.read(self.make_sampler(length), length, 0)
        sampler = self.make_sampler(length)
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(self.read, sampler, length, 0) for _ in range(8)]
            assert all(job.result(timeout=60) == expected for job in jobs)

    def test_the_repr_names_the_class_on_one_line(self) -> None:
        sampler = self.make_sampler(10)
        assert repr(sampler).startswith(type(sampler).__name__)
        assert "\n" not in repr(sampler)


class SamplerContract(_Contract):
    """The contract of samplers of single indices: subclass, and give `make_sampler(length)`."""

    def read(self, sampler: Any, length: int, epoch: int, position: int = 0) -> list[Any]:
        """Return the indices of an epoch from `position` on."""
        if position == 0:
            return [int(index) for index in sampler.order(length, epoch)[:]]
        own = getattr(sampler, "order_from", None)
        if own is None:
            return [int(index) for index in sampler.order(length, epoch)[position:]]
        return [int(index) for index in own(length, epoch, position)[:]]

    def test_indices_are_int64_and_in_range(self) -> None:
        for length in self.lengths:
            order = self.make_sampler(length).order(length, 0)
            indices = order[:]
            assert indices.dtype == np.int64
            assert indices.shape == (len(order),)
            assert all(0 <= index < length for index in indices.tolist())

    def test_slices_are_those_of_a_list(self) -> None:
        for length in self.lengths:
            order = self.make_sampler(length).order(length, 0)
            whole = order[:].tolist()
            places = [None, 0, 1, -1, len(whole) // 2, len(whole), len(whole) + 5, -len(whole) - 5]
            for first in places:
                for last in places:
                    part = order[first:last]
                    assert part.tolist() == whole[first:last]
                    assert part.dtype == np.int64

    def test_changing_a_slice_changes_nothing_else(self) -> None:
        length = max(self.lengths)
        order = self.make_sampler(length).order(length, 0)
        if isinstance(order, np.ndarray):
            return  # An array is an order, too, and its slices are views of it; it is made anew for each epoch.
        expected = order[:].tolist()
        part = order[:]
        part[:] = -1
        assert order[:].tolist() == expected


class BatchSamplerContract(_Contract):
    """The contract of batch samplers: subclass, and give `make_sampler(length)`."""

    def read(self, sampler: Any, length: int, epoch: int, position: int = 0) -> list[Any]:
        """Return the batches of an epoch from batch `position` of the whole job on."""
        own = getattr(sampler, "batches_from", None)
        if position == 0 or own is None:
            batches = sampler.batches(length, epoch)
            return [batches[number].tolist() for number in range(position, len(batches))]
        batches = own(length, epoch, position)
        return [batches[number].tolist() for number in range(len(batches))]

    def test_batches_are_int64_and_in_range(self) -> None:
        for length in self.lengths:
            batches = self.make_sampler(length).batches(length, 0)
            for number in range(len(batches)):
                batch = batches[number]
                assert batch.dtype == np.int64
                assert batch.ndim == 1
                assert len(batch) > 0
                assert all(0 <= index < length for index in batch.tolist())

    def test_any_batch_is_reached_by_its_number_alone(self) -> None:
        for length in self.lengths:
            sampler = self.make_sampler(length)
            whole = self.read(sampler, length, 0)
            for number in range(len(whole)):
                assert sampler.batches(length, 0)[number].tolist() == whole[number]

    def test_a_number_without_a_batch_is_an_index_error(self) -> None:
        for length in self.lengths:
            batches = self.make_sampler(length).batches(length, 0)
            for number in (len(batches), -len(batches) - 1):
                try:
                    batches[number]
                except IndexError:
                    continue
                raise AssertionError(f"batch {number} of {len(batches)} is no IndexError")
