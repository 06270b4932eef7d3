# ruff: noqa: D102 - the names of the checks are their docstrings.
"""What every dataset with random access keeps to, as classes to subclass: for feedline's own datasets and for yours.

```python
class TestMyDataset(DatasetContract):
    def make_dataset(self):
        return MyDataset(...)
```

pytest then runs every check. Optional methods are checked where the dataset has them. `AsyncDatasetContract` is the same
for an `AsyncDataset`.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from feedline.collate.default import default_collate
from feedline.datasets.kind import dataset_kind
from feedline.datasets.protocol import AsyncDataset

__all__ = ["AsyncDatasetContract", "DatasetContract", "same"]


def same(one: Any, other: Any) -> bool:
    """Tell whether two items or batches are of the same structure, types, dtypes, shapes and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (np.ndarray, np.generic)):
        # Objects have no bits of their own.
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and (one.dtype.hasobject or one.tobytes() == other.tobytes())
    return bool(one == other)


class _Contract:
    """What synchronous and asynchronous datasets share."""

    def make_dataset(self) -> Any:
        """Return a dataset of at least one item; equal each time that it is called."""
        raise NotImplementedError(f"{type(self).__name__} must define make_dataset()")

    def read(self, dataset: Any, index: Any) -> Any:
        """Return one item."""
        raise NotImplementedError(f"{type(self).__name__} must define read(...)")

    def read_many(self, dataset: Any, indices: list[int]) -> list[Any]:
        """Return what `__getitems__` gives for `indices`."""
        raise NotImplementedError(f"{type(self).__name__} must define read_many(...)")

    def places(self, dataset: Any) -> list[int]:
        """Return indices in no order, with repeats, the first and the last among them."""
        last = len(dataset) - 1
        return [last, 0, last // 2, last, *random.Random(0).choices(range(last + 1), k=20)]

    def test_it_has_items_and_its_length_does_not_change(self) -> None:
        dataset = self.make_dataset()
        length = len(dataset)
        assert type(length) is int
        assert length >= 1
        self.read(dataset, 0)
        self.read(dataset, length - 1)
        assert len(dataset) == length

    def test_an_item_depends_on_its_index_alone(self) -> None:
        dataset, another = self.make_dataset(), self.make_dataset()
        for place in self.places(dataset):
            item = self.read(dataset, place)
            assert same(self.read(dataset, place), item)
            assert same(self.read(another, place), item)

    def test_an_index_out_of_range_is_an_index_error(self) -> None:
        dataset = self.make_dataset()
        for index in (len(dataset), len(dataset) + 1, 2**62):
            assert isinstance(_error_of(lambda: self.read(dataset, index)), IndexError)  # noqa: B023 - called at once

    def test_negative_indices_count_from_the_end_and_never_wrap(self) -> None:
        dataset = self.make_dataset()
        length = len(dataset)
        assert same(self.read(dataset, -1), self.read(dataset, length - 1))
        assert same(self.read(dataset, -length), self.read(dataset, 0))
        assert isinstance(_error_of(lambda: self.read(dataset, -length - 1)), IndexError)

    def test_many_items_at_once_are_the_items_in_order(self) -> None:
        dataset = self.make_dataset()
        if getattr(dataset, "__getitems__", None) is None:
            return
        places = self.places(dataset)
        items = self.read_many(dataset, places)
        assert len(items) == len(places)
        assert all(same(item, self.read(dataset, place)) for item, place in zip(items, places))
        assert list(self.read_many(dataset, [])) == []
        assert isinstance(_error_of(lambda: self.read_many(dataset, [0, len(dataset)])), IndexError)

    def test_a_hint_changes_nothing(self) -> None:
        dataset = self.make_dataset()
        hint = getattr(dataset, "prefetch", None)
        if hint is None:
            return
        places = self.places(dataset)
        before = [self.read(dataset, place) for place in places]
        assert hint(places) is None
        assert hint([]) is None
        assert all(same(self.read(dataset, place), item) for place, item in zip(places, before))

    def test_a_copy_that_was_pickled_gives_the_same(self) -> None:
        dataset = self.make_dataset()
        copy = pickle.loads(pickle.dumps(dataset))
        assert len(copy) == len(dataset)
        assert dataset_kind(copy) == dataset_kind(dataset)
        for place in self.places(dataset):
            assert same(self.read(copy, place), self.read(dataset, place))

    def test_the_global_random_states_are_left_alone(self) -> None:
        states = _global_states()
        dataset = self.make_dataset()
        for place in self.places(dataset):
            self.read(dataset, place)
        assert _global_states() == states

    def test_it_has_a_repr_of_one_line(self) -> None:
        text = repr(self.make_dataset())
        assert text
        assert "\n" not in text


class DatasetContract(_Contract):
    """The checks of a dataset whose items are simply there."""

    def read(self, dataset: Any, index: Any) -> Any:
        """Return one item."""
        return dataset[index]

    def read_many(self, dataset: Any, indices: list[int]) -> list[Any]:
        """Return what `__getitems__` gives for `indices`."""
        items: list[Any] = dataset.__getitems__(indices)
        return items

    def test_threads_may_read_at_once(self) -> None:
        dataset = self.make_dataset()
        places = self.places(dataset)
        expected = [dataset[place] for place in places]
        with ThreadPoolExecutor(4) as pool:
            rounds = list(pool.map(lambda _: [dataset[place] for place in places], range(8)))
        assert all(same(items, expected) for items in rounds)

    def test_a_batch_that_is_gathered_equals_the_collated_items(self) -> None:
        dataset = self.make_dataset()
        take: Callable[..., Any] | None = getattr(dataset, "take", None)
        if take is None:
            return
        given: list[Any] = []

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            given.append(np.empty(shape, dtype))
            return given[-1]

        for places in (self.places(dataset), [0], [len(dataset) - 1] * 3, list(range(min(8, len(dataset))))):
            indices = np.array(places, np.int64)
            batch = take(indices, allocate)
            assert same(batch, default_collate([dataset[place] for place in places]))
            assert indices.tolist() == places
        leaves = list(batch.values()) if isinstance(batch, dict) else list(batch)
        assert all(any(leaf is array for array in given) for leaf in leaves)
        self._check_bounds(lambda places: take(places, allocate), len(dataset))
        self._check_take_into(dataset)

    def _check_take_into(self, dataset: Any) -> None:
        into = getattr(dataset, "take_into", None)
        if into is None:
            return
        places = np.array(self.places(dataset), np.int64)
        outs = [np.empty((len(places), *spec.shape), spec.dtype) for spec in dataset.row_specs]
        assert into(places, outs) is None
        batch = dataset.take(places, np.empty)
        assert same(outs, list(batch.values()) if isinstance(batch, dict) else list(batch))
        self._check_bounds(lambda wrong: into(wrong, [out[: len(wrong)] for out in outs]), len(dataset))

    def _check_bounds(self, take: Callable[[Any], Any], length: int) -> None:
        for wrong in (length, -length - 1, 2**62):
            error = _error_of(lambda: take(np.array([0, wrong], np.int64)))  # noqa: B023 - called at once
            assert isinstance(error, IndexError)
            assert getattr(error, "position", None) == 1


class AsyncDatasetContract(_Contract):
    """The checks of a dataset whose items are awaited."""

    def read(self, dataset: Any, index: Any) -> Any:
        """Return one item."""
        return asyncio.run(_awaited(dataset, [index]))[0]

    def read_many(self, dataset: Any, indices: list[int]) -> list[Any]:
        """Return what `__getitems__` gives for `indices`."""

        async def run() -> list[Any]:
            try:
                return list(await dataset.__getitems__(indices))
            finally:
                await dataset.aclose()

        return asyncio.run(run())

    def test_it_is_an_async_dataset(self) -> None:
        assert isinstance(self.make_dataset(), AsyncDataset)

    def test_many_items_may_be_awaited_at_once(self) -> None:
        dataset = self.make_dataset()
        places = self.places(dataset)
        items = asyncio.run(_awaited(dataset, places))
        assert all(same(item, self.read(dataset, place)) for item, place in zip(items, places))


async def _awaited(dataset: Any, places: list[Any]) -> list[Any]:
    try:
        return list(await asyncio.gather(*(dataset[place] for place in places)))
    finally:
        await dataset.aclose()


def _error_of(call: Callable[[], Any]) -> Exception | None:
    """Return what `call` raises, or `None`."""
    try:
        call()
    except Exception as error:
        return error
    return None


def _global_states() -> tuple[Any, bytes]:
    return random.getstate(), pickle.dumps(np.random.get_state())
