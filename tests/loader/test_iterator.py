"""What samplers give and datasets get: kinds of indices, nonsense, lengths, hints, and what a batch is."""

from __future__ import annotations

import logging
import random
import warnings

import numpy as np
import pytest

from feedline import DataLoader, DistributedSampler, MaskedBatch, RandomSampler, SequentialSampler
from loading import Keyed, Squares, results


class Strict:
    """Takes plain ints alone, as dictionaries and caches do."""

    def __init__(self) -> None:
        self.items = {index: float(index) for index in range(10)}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index):
        assert type(index) is int
        return self.items[index]


INDICES = {
    "ints": [3, 1, 2],
    "numpy ints": [np.int64(3), np.uint8(1), np.int16(2)],
    "0-d arrays": [np.array(3), np.array(1, np.uint8), np.array(2)],
    "an array": np.array([3, 1, 2]),
    "small ints": np.array([3, 1, 2], np.uint8),
    "a tuple": (3, 1, 2),
    "a generator": (index for index in (3, 1, 2)),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", INDICES)
def test_integer_like_indices_reach_the_dataset_as_plain_ints(name, workers) -> None:
    if name == "a generator" and workers:
        INDICES[name] = iter((3, 1, 2))
    loader = DataLoader(Strict(), 2, sampler=INDICES[name], num_workers=workers)
    ((one, _), (two, _)) = loader.iter_with_indices()
    assert (one, two) == ([3, 1], [2])
    assert all(type(index) is int for index in one + two)
    loader.close()


def test_tensors_are_integer_like_too() -> None:
    torch = pytest.importorskip("torch")
    loader = DataLoader(Strict(), 2, sampler=[torch.tensor(3), torch.tensor(1)])
    assert next(loader.iter_with_indices())[0] == [3, 1]
    bad = DataLoader(Strict(), 1, sampler=[torch.tensor(1.0), torch.tensor([1, 2])])
    assert [r.value[0] for r in results(bad.iter_with_indices())] == [TypeError, TypeError]


@pytest.mark.parametrize(
    "make", [SequentialSampler, lambda: RandomSampler(1), lambda: DistributedSampler(RandomSampler(1), 1, 3)]
)
def test_own_samplers_hand_out_plain_ints(make) -> None:
    list(DataLoader(Strict(), 3, sampler=make()))
    list(DataLoader(Strict(), 3, sampler=make(), item_concurrency=2))


def test_keys_are_passed_on_unchanged() -> None:
    keys = ["a", ("pair", 1), np.str_("b")]
    loader = DataLoader(Keyed(), 3, sampler=keys)
    ((indices, batch),) = loader.iter_with_indices()
    assert indices == keys
    assert batch[:, 0].tolist() == [0, -1, 1]


NONSENSE = [
    (
        2.0,
        TypeError,
        r"the sampler gave 2\.0 \(float\) at position 5; an index is an int or another hashable key",
    ),
    (None, TypeError, "the sampler gave None .* at position 5"),
    ([1], TypeError, "at position 5.*batches of indices go to batch_sampler="),
    (([1], 2), TypeError, "at position 5"),
    ({1}, TypeError, r"the sampler gave \{1\} \(set\) at position 5"),
    (True, TypeError, r"gave True at position 5: a bool is no index; for a mask, use numpy\.flatnonzero"),
    (np.True_, TypeError, "at position 5: a bool is no index"),
    (-1, IndexError, "the sampler gave the negative index -1 at position 5"),
    (np.int64(-3), IndexError, "the negative index -3 at position 5"),
    (np.array([1, 2]), TypeError, "at position 5"),
    (np.float32(1), TypeError, "at position 5"),
]


@pytest.mark.parametrize(("value", "kind", "message"), NONSENSE, ids=[str(v) for v, _, _ in NONSENSE])
def test_nonsense_of_a_sampler_is_an_error_of_its_batch_that_names_the_position(value, kind, message) -> None:
    for workers in (0, 1):
        loader = DataLoader(Squares(10), 2, sampler=[0, 1, 2, 3, 4, value, 5, 6], num_workers=workers)
        iterator = iter(loader)
        next(iterator), next(iterator)
        with pytest.raises(kind, match=message):
            next(iterator)
        assert next(iterator)["index"].tolist() == [5, 6]
        assert loader.failures == ()
        loader.close()


class Order:
    """A user's own order that does what it is told."""

    def __init__(self, length, part) -> None:
        self.length, self.part = length, part

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part):
        return self.part(part)


class Own:
    def __init__(self, part, length=6) -> None:
        self.part, self.length = part, length

    def order(self, length, epoch):
        return Order(self.length, self.part)


def test_an_own_sampler_needs_order_alone() -> None:
    loader = DataLoader(Squares(6), 4, sampler=Own(lambda part: np.arange(6)[::-1][part]))
    assert [i for i, _ in loader.iter_with_indices()] == [[5, 4, 3, 2], [1, 0]]
    loader = DataLoader(Squares(6), 4, sampler=Own(lambda part: [3, 1, 2, 0, 4, 5][part]))
    assert [i for i, _ in loader.iter_with_indices()] == [[3, 1, 2, 0], [4, 5]]


@pytest.mark.parametrize(
    ("part", "kind", "message"),
    [
        (
            lambda part: np.array([0.5] * 4),
            TypeError,
            "must be a 1-d array of integers; at position 0 it is 1-d of float64",
        ),
        (lambda part: np.zeros((2, 2), int), TypeError, "it is 2-d of int64"),
        (lambda part: np.array([0, 1, -2, 3]), IndexError, "the negative index -2 at position 2"),
        (lambda part: np.array([0, 1]), ValueError, "gave 2 indices for its places 0 to 3, of 6 in all"),
        (lambda part: np.arange(9), ValueError, "gave 9 indices for its places 0 to 3"),
        (lambda part: 1 / 0, ZeroDivisionError, "division"),
        (lambda part: [], ValueError, "gave 0 indices"),
    ],
)
def test_an_order_that_breaks_its_promise_is_an_error_of_its_batch(part, kind, message) -> None:
    iterator = iter(DataLoader(Squares(10), 4, sampler=Own(part)))
    assert len(iterator) == 2
    with pytest.raises(kind, match=message):
        next(iterator)
    assert len(iterator) == 1


def test_an_endless_sampler_works() -> None:
    import itertools

    loader = DataLoader(Squares(10), 3, sampler=itertools.cycle([1, 2]), num_workers=1)
    batches = itertools.islice(loader, 5)
    assert [b["index"].tolist() for b in batches] == [[1, 2, 1], [2, 1, 2], [1, 2, 1], [2, 1, 2], [1, 2, 1]]
    with pytest.raises(TypeError, match="no length"):
        len(loader)
    loader.close()


def test_a_one_shot_sampler_warns_once_and_can_not_be_replayed() -> None:
    loader = DataLoader(Squares(10), 2, sampler=iter([1, 2, 3]))
    with pytest.raises(TypeError, match=r"batch_at.* needs an order that can be walked anew"):
        loader.batch_at(0, 0)
    assert len(list(loader)) == 2
    with pytest.warns(UserWarning, match="is an iterator and used up") as caught:
        assert list(loader) == []
    assert caught[0].filename == __file__
    assert list(loader) == []


def test_set_epoch_of_an_own_sampler_is_called() -> None:
    class Told:
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch])

    loader = DataLoader(Squares(10), sampler=Told())
    assert [int(b["index"][0]) for _ in range(3) for b in loader] == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"drop_last": True}, {"sampler": DistributedSampler(RandomSampler(1), 1, 3)}],
)
def test_an_empty_dataset_has_no_batches(options, workers) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader([], 4, num_workers=workers, **options)
        assert len(loader) == 0
        assert list(loader) == []
    assert loader.state_dict()["epoch"] == 1
    loader.close()


@pytest.mark.parametrize("make", [dict, lambda: {"shuffle": True}, lambda: {"sampler": [0, 1, 2]}])
def test_drop_last_that_leaves_nothing_warns_once(make) -> None:
    loader = DataLoader([1, 2, 3], 4, drop_last=True, **make())
    with pytest.warns(UserWarning, match=r"drop_last=True leaves nothing of 3 items: batch_size=4") as caught:
        assert list(loader) == []
    assert caught[0].filename == __file__
    assert list(loader) == []
    assert len(loader) == 0


def test_building_iterating_and_closing_leave_global_generators_alone() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()
    for options in ({}, {"num_workers": 2}, {"seed": None}, {"seed": None, "num_workers": 1}):
        loader = DataLoader(Squares(20), 4, shuffle=True, **options)
        list(loader)
        next(iter(loader))
        loader.close()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_lengths_count_down_errors_included() -> None:
    class Bad(Squares):
        def __getitem__(self, index):
            if index < 4:
                raise ValueError(index)
            return super().__getitem__(index)

    iterator = iter(DataLoader(Bad(10), 2))
    lengths = [len(iterator)]
    for _ in range(5):
        try:
            next(iterator)
        except ValueError:
            pass
        lengths.append(len(iterator))
    assert lengths == [5, 4, 3, 2, 1, 0]


def test_single_items_come_as_they_are() -> None:
    items = [None, "text", b"bytes", object()]
    for workers in (0, 2):
        loader = DataLoader(items, None, num_workers=workers)
        assert len(loader) == 4
        assert all(one is other for one, other in zip(loader, items, strict=True))
        loader.close()
    assert list(DataLoader([1, 2], None, collate_fn=str)) == ["1", "2"]


def test_a_mask_tells_real_rows_from_padding_for_equal_steps_on_all_ranks() -> None:
    real = []
    for rank in range(3):
        sampler = DistributedSampler(SequentialSampler(), rank, 3, tail="mask")
        loader = DataLoader(list(range(7)), 2, sampler=sampler)
        batches = list(loader)
        assert len(batches) == 2
        for batch in batches:
            assert type(batch) is MaskedBatch
            assert batch.mask.dtype == np.bool_
            real += batch.data[batch.mask].tolist()
    assert sorted(real) == list(range(7))


def test_batch_at_replays_any_batch_of_any_epoch_and_changes_nothing() -> None:
    loader = DataLoader(Squares(20), 3, shuffle=True, seed=4)
    iterator = loader.iter_with_indices()
    next(iterator)
    before = loader.state_dict(), len(iterator)
    far = loader.batch_at(10**12, 6)
    assert (loader.state_dict(), len(iterator)) == before
    loader.set_epoch(10**12)
    assert list(loader)[6]["index"].tolist() == far["index"].tolist()
    for epoch, number, kind in (
        (0, 7, IndexError),
        (0, -1, IndexError),
        (0, 1.0, TypeError),
        (0, True, TypeError),
    ):
        with pytest.raises(kind, match="batch"):
            loader.batch_at(epoch, number)
    with pytest.raises(ValueError, match="epoch must be between"):
        loader.batch_at(-1, 0)


class Hinted(Squares):
    def __init__(self, length, fails=False) -> None:
        super().__init__(length)
        self.hints: list[int] = []
        self.read: list[int] = []
        self.ahead: list[int] = []
        self.fails = fails

    def prefetch(self, indices) -> None:
        assert all(type(index) is int for index in indices)
        self.hints += indices
        if self.fails:
            raise OSError("no hints today")

    def __getitem__(self, index):
        assert index in self.hints or self.fails
        self.read.append(index)
        return super().__getitem__(index)


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"sampler": [3, 1, 2, 0] * 9}, {"drop_last": True}]
)
def test_every_item_is_hinted_at_once_and_a_batch_or_more_ahead(options) -> None:
    dataset = Hinted(36)
    loader = DataLoader(dataset, 3, **{"shuffle": "sampler" not in options, **options})
    iterator = loader.iter_with_indices()
    indices, _ = next(iterator)
    assert len(dataset.hints) >= 3 + len(indices)
    order = indices + [index for indices, _ in iterator for index in indices]
    assert dataset.hints == order
    assert sorted(dataset.read) == sorted(order)
    loader.close()


def test_hints_that_fail_are_logged_and_given_up(caplog) -> None:
    dataset = Hinted(30, fails=True)
    with caplog.at_level(logging.WARNING, "feedline"):
        assert len(list(DataLoader(dataset, 3))) == 10
    assert len(dataset.hints) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "prefetch() of the dataset failed; it is not called again"
    ]


def test_a_prefetch_of_a_stream_means_something_else() -> None:
    class Stream:
        def prefetch(self, indices):
            raise AssertionError("not for streams")

        def __iter__(self):
            return iter(range(4))

    assert len(list(DataLoader(Stream(), 2))) == 2


def test_an_empty_batch_of_mine_is_refused_or_empty_but_never_lost() -> None:
    found = results(DataLoader(Squares(4), batch_sampler=[[0], [], [1]]).iter_with_indices())
    assert [result.indices for result in found][::2] == [(0,), (1,)]
    assert len(found) == 3


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"transform": dict}])
def test_a_batch_that_can_not_be_handed_out_counts_as_received(options) -> None:
    class Delivering(DataLoader):
        def _delivery(self):
            def deliver(batch):
                if 2 in batch["index"]:
                    raise OverflowError("too large for there")
                return batch["index"].tolist()

            return deliver

    loader = Delivering(Squares(6), 2, **options)
    iterator = loader.iter_with_indices()
    assert next(iterator) == ([0, 1], [0, 1])
    with pytest.raises(OverflowError, match="too large for there"):
        next(iterator)
    assert loader.state_dict()["position"] == 4
    assert next(iterator) == ([4, 5], [4, 5])
    loader.close()
