"""`to_device`: copies ahead on a side stream, correct lifetimes, the structure and the consumer's position kept."""

from __future__ import annotations

import itertools
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: scripts/test --all")

import feedline  # noqa: E402
from feedline.errors import OptionError  # noqa: E402
from feedline.torch import DataLoader, to_device  # noqa: E402
from feedline.torch.device import CopyLane, DeviceLoader  # noqa: E402

Pair = namedtuple("Pair", ["x", "y"])


def numbers(n: int = 10, **options) -> DataLoader:
    return DataLoader(torch.utils.data.TensorDataset(torch.arange(n)), 3, **options)


def values(batches) -> list:
    return [x.tolist() for [x] in batches]


def test_batches_are_the_loaders() -> None:
    for ahead in (0, 1, 5, 50):
        assert values(to_device(numbers(), "cpu", ahead=ahead)) == values(numbers())


def test_numpy_batches_come_as_tensors() -> None:
    loader = feedline.DataLoader([(np.ones(2, np.float32), 1, "a")] * 3, 2)
    first = next(iter(to_device(loader, torch.device("cpu"))))
    assert isinstance(first, tuple)
    assert first[0].dtype == torch.float32
    assert first[2] == ["a", "a"]


def test_structure_and_types_are_kept() -> None:
    class Row(dict):
        pass

    @dataclass(frozen=True)
    class Box:
        side: object
        name: str

    batch = Row(
        a=Pair(torch.ones(2), "text"), b=[np.zeros(2), None], c=Box(torch.tensor(3), "n"), d=np.array(["s"])
    )
    moved = next(iter(to_device([batch], "cpu")))
    assert type(moved) is Row
    assert type(moved["a"]) is Pair
    assert moved["a"].y == "text"
    assert moved["b"][1] is None
    assert isinstance(moved["b"][0], torch.Tensor)
    assert type(moved["c"]) is Box
    assert moved["d"] is batch["d"]


def test_objects_that_can_move_themselves_are_asked() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    moved = next(iter(to_device([{"p": packed}], "cpu")))["p"]
    assert isinstance(moved, torch.nn.utils.rnn.PackedSequence)


def test_the_state_is_the_consumers_not_that_of_what_was_copied_ahead() -> None:
    expected = values(numbers(shuffle=True))
    for received in range(5):
        loader = to_device(numbers(shuffle=True), "cpu", ahead=2)
        iterator = iter(loader)
        got = values(itertools.islice(iterator, received))
        state = loader.state_dict()
        assert state == iterator.state_dict()
        other = to_device(numbers(shuffle=True), "cpu", ahead=2)
        other.load_state_dict(state)
        assert other.state_dict() == state
        rest = values(other)
        assert got + rest == expected if received < 4 else got == expected and rest != expected


def test_the_state_behind_the_end_is_the_next_epochs() -> None:
    loader = to_device(DataLoader(range(4), 2, sampler=iter([0, 1, 2])), "cpu")
    assert [x.tolist() for x in loader] == [[0, 1], [2]]
    assert loader.state_dict()["epoch"] == 1


def test_failures_of_batches_that_were_copied_ahead_are_not_in_the_state() -> None:
    class Bad:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            if index == 3:
                raise ValueError("bad")
            return index

    loader = to_device(feedline.DataLoader(Bad(), 1, on_error="skip"), "cpu", ahead=4)
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["failures"] == []
    list(iterator)
    assert len(loader.state_dict()["failures"]) == 1


def test_an_error_comes_in_its_place_and_the_following_call_goes_on() -> None:
    class Bad(list):
        def __getitem__(self, index: int) -> int:
            if index == 2:
                raise KeyError("two")
            return super().__getitem__(index)

    iterator = iter(to_device(DataLoader(Bad(range(5)), 1), "cpu", ahead=3))
    assert [next(iterator).item() for _ in range(2)] == [0, 1]
    with pytest.raises(KeyError):
        next(iterator)
    assert [batch.item() for batch in iterator] == [3, 4]


def test_lengths_epochs_and_attributes_are_the_loaders() -> None:
    loader = to_device(numbers(shuffle=True), "cpu", ahead=2)
    assert len(loader) == 4
    iterator = iter(loader)
    next(iterator)
    assert len(iterator) == 3
    loader.set_epoch(5)
    assert loader.epoch == 5
    assert loader.batch_size == 3
    with pytest.raises(AttributeError):
        loader.nonsense
    iterator.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nonsense",), OptionError),
        (("cuda",), OptionError),
        (("cpu", -1), OptionError),
        (("cpu", 1.5), TypeError),
    ],
)
def test_mistakes_are_told_at_once(arguments, error) -> None:
    if arguments[0] == "cuda" and torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    with pytest.raises(error):
        to_device(numbers(), arguments[0], **dict(zip(["ahead"], arguments[1:])))


# -- a stream that only notes what is asked of it


class FakeTensor:
    """A tensor that notes what is done with it."""

    def __init__(self, log: list, name: str, pinned: bool = False, device: str = "cpu") -> None:
        self.log, self.name, self.pinned = log, name, pinned
        self.device = torch.device(device)

    def is_pinned(self) -> bool:
        return self.pinned

    def pin_memory(self):
        self.log.append(("pin", self.name))
        return FakeTensor(self.log, self.name + "'", pinned=True)

    def to(self, device, non_blocking: bool):
        assert non_blocking
        self.log.append(("copy", self.name, self.log.current))
        return FakeTensor(self.log, self.name, device="meta")

    def record_stream(self, stream) -> None:
        self.log.append(("in use", self.name, stream.name))


class Log(list):
    current = "main"


class FakeEvent:
    done = False

    def query(self) -> bool:
        return self.done


class FakeStream:
    def __init__(self, log: Log, name: str) -> None:
        self.log, self.name = log, name

    def record_event(self) -> FakeEvent:
        self.log.append(("event", self.name))
        self.log.events.append(FakeEvent())
        return self.log.events[-1]

    def wait_event(self, event: FakeEvent) -> None:
        self.log.append(("wait", self.name, self.log.events.index(event)))


class FakeCuda:
    def __init__(self, log: Log) -> None:
        self.log = log
        log.events = []

    def Stream(self, device) -> FakeStream:
        return FakeStream(self.log, "side")

    def current_stream(self, device) -> FakeStream:
        return FakeStream(self.log, "main")

    @contextmanager
    def stream(self, stream: FakeStream):
        self.log.current = stream.name
        yield
        self.log.current = "main"


def faked(log: Log, batches: list, ahead: int) -> DeviceLoader:
    cuda = FakeCuda(log)
    return DeviceLoader(batches, torch.device("meta"), ahead, lambda device: CopyLane(device, cuda))


def test_copies_go_ahead_on_the_side_stream_and_the_consumer_waits_for_its_own_batch_alone() -> None:
    log = Log()
    batches = [(FakeTensor(log, f"x{i}"), "text") for i in range(3)]
    iterator = iter(faked(log, batches, ahead=1))
    next(iterator)
    assert log == [
        ("pin", "x0"),
        ("copy", "x0'", "side"),
        ("event", "side"),
        ("pin", "x1"),
        ("copy", "x1'", "side"),
        ("event", "side"),
        ("wait", "main", 0),
        ("in use", "x0'", "main"),
    ]
    log.clear()
    next(iterator)
    assert log == [
        ("pin", "x2"),
        ("copy", "x2'", "side"),
        ("event", "side"),
        ("wait", "main", 1),
        ("in use", "x1'", "main"),
    ]
    log.clear()
    assert len(list(iterator)) == 1
    assert log == [("wait", "main", 2), ("in use", "x2'", "main")]


def test_pinned_memory_is_copied_from_as_it_is_and_kept_until_its_copy_is_done() -> None:
    import weakref

    log = Log()

    def batches():
        for i in range(4):
            yield [FakeTensor(log, f"x{i}", pinned=True)]

    source = batches()
    iterator = iter(faked(log, source, ahead=0))
    sources = []
    real_copy = CopyLane.copy

    def spy(self, leaf):
        sources.append(weakref.ref(leaf))
        return real_copy(self, leaf)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyLane, "copy", spy)
        next(iterator)
        next(iterator)
    assert ("pin", "x0") not in log
    assert sources[0]() is not None, "its copy may still be running"
    log.events[0].done = log.events[1].done = True
    next(iterator)
    assert sources[0]() is None


def test_without_ahead_nothing_is_copied_before_it_is_asked_for() -> None:
    log = Log()
    iterator = iter(faked(log, [[FakeTensor(log, f"x{i}")] for i in range(3)], ahead=0))
    next(iterator)
    assert [entry for entry in log if entry[0] == "copy"] == [("copy", "x0'", "side")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_batches_equal_the_loaders() -> None:
    dataset = torch.utils.data.TensorDataset(torch.randn(4096, 512))
    expected = [x.clone() for [x] in DataLoader(dataset, 64)]
    for ahead in (0, 1, 3):
        for [x], y in zip(to_device(DataLoader(dataset, 64), "cuda", ahead=ahead), expected, strict=True):
            torch.cuda._sleep(100_000)
            assert torch.equal((x + 0).cpu(), y)
