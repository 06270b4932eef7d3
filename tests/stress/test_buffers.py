"""Many threads on one pool: every array keeps its pattern until its last view is gone."""

from __future__ import annotations

import gc
import queue
import sys
import threading
from typing import Any

import numpy as np
import pytest

from feedline.collate.buffers import BufferPool

SIZES = [70_000, 131_072, 131_073, 300_000]
ROUNDS = 150


@pytest.fixture
def quick_switches():
    """Let threads change often, in the middle of whatever they do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def patterned(pool: BufferPool, rng: np.random.Generator, number: int) -> np.ndarray:
    array = pool.allocate((int(rng.choice(SIZES)) // 4,), "u4")
    array[:] = number
    return array


def seen_as(array: np.ndarray, way: int) -> Any:
    ways = [
        lambda: array,
        lambda: array[10:-10],
        lambda: array.view(np.int32).reshape(1, -1),
        lambda: memoryview(array),
        lambda: np.from_dlpack(array),
        lambda: array.base[:100].view(np.uint32)[:20],
    ]
    return ways[way % len(ways)]()


def holds(view: Any, number: int) -> bool:
    return bool((np.asarray(view) == number).all())


def run_all(targets: list[Any]) -> None:
    failures: list[BaseException] = []

    def guarded(target: Any) -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


@pytest.mark.usefixtures("quick_switches")
def test_no_thread_ever_sees_another_ones_pattern():
    pool = BufferPool(max_idle_bytes=2_000_000)

    def work(part: int) -> None:
        rng = np.random.default_rng(part)
        held: list[tuple[Any, int]] = []
        for round_ in range(ROUNDS):
            number = part * ROUNDS + round_
            held.append((seen_as(patterned(pool, rng, number), round_), number))
            if len(held) > 6:
                view, expected = held.pop(int(rng.integers(len(held))))
                assert holds(view, expected)
        assert all(holds(view, expected) for view, expected in held)

    run_all([lambda part=part: work(part) for part in range(8)])
    gc.collect()
    assert 0 < pool.idle_bytes <= 2_000_000


@pytest.mark.usefixtures("quick_switches")
def test_slow_consumers_on_other_threads_keep_what_they_were_given():
    pool = BufferPool()
    handed: queue.Queue[tuple[Any, int] | None] = queue.Queue(maxsize=20)

    def produce(part: int) -> None:
        rng = np.random.default_rng(part)
        for round_ in range(ROUNDS):
            number = part * ROUNDS + round_
            handed.put((seen_as(patterned(pool, rng, number), round_), number), timeout=60)
        handed.put(None, timeout=60)

    def consume() -> None:
        late: list[tuple[Any, int]] = []
        while (given := handed.get(timeout=60)) is not None:
            late.append(given)
            del given
            if len(late) == 10:  # looks at them long after they were made, and drops them in one go
                assert all(holds(view, number) for view, number in late)
                late.clear()
        assert all(holds(view, number) for view, number in late)

    run_all([lambda part=part: produce(part) for part in range(3)] + [consume] * 3)


@pytest.mark.usefixtures("quick_switches")
def test_arrays_in_cycles_and_collections_on_any_thread_do_no_harm():
    pool = BufferPool()

    def work(part: int) -> None:
        rng = np.random.default_rng(part)
        for round_ in range(ROUNDS // 3):
            number = part * ROUNDS + round_
            array = patterned(pool, rng, number)
            cycle: list[Any] = [array, array.base]
            cycle.append(cycle)
            if round_ % 10 == part:
                gc.collect()
            assert holds(array, number)

    threshold = gc.get_threshold()
    gc.set_threshold(200, 2, 2)
    try:
        run_all([lambda part=part: work(part) for part in range(4)])
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert pool.idle_bytes > 0
