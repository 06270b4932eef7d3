"""Threads that do blocking calls for an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from feedline.datasets.fetching import read_pool
from feedline.datasets.fetching.read_pool import ReadPool

DEADLINE = 60.0


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(DEADLINE):
            return await main

    return asyncio.run(bounded())


def test_results_and_exceptions_come_back() -> None:
    async def main() -> None:
        pool = ReadPool(2)
        assert await pool.run(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        with pytest.raises(SystemExit):
            await pool.run(lambda: exit_now())
        pool.close()

    run(main())


def exit_now() -> None:
    raise SystemExit(3)


def test_many_jobs_run_on_few_threads_and_none_is_lost() -> None:
    seen: set[str] = set()

    def job(number: int) -> int:
        seen.add(threading.current_thread().name + str(threading.get_ident()))
        return number

    async def main() -> list[int]:
        pool = ReadPool(3)
        results: list[int] = []
        for _ in range(20):
            results += await asyncio.gather(
                *(pool.run(lambda number=number: job(number)) for number in range(50))
            )
            await asyncio.sleep(0)
        pool.close()
        return results

    assert run(main()) == list(range(50)) * 20
    assert len(seen) <= 3


def test_as_many_jobs_as_threads_run_at_once() -> None:
    barrier = threading.Barrier(5)

    async def main() -> None:
        pool = ReadPool(5)
        await asyncio.gather(*(pool.run(lambda: barrier.wait(DEADLINE)) for _ in range(5)))
        await asyncio.gather(*(pool.run(lambda: barrier.wait(DEADLINE)) for _ in range(5)))
        pool.close()

    run(main())


def test_a_job_that_hangs_does_not_keep_the_others_waiting() -> None:
    gate = threading.Event()

    async def main() -> None:
        pool = ReadPool(2)
        for _ in range(20):
            await pool.run(lambda: None)  # short jobs: one thread does them
        stuck = asyncio.create_task(pool.run(lambda: gate.wait(DEADLINE)))
        others = await asyncio.gather(*(pool.run(lambda number=number: number) for number in range(100)))
        assert others == list(range(100))
        gate.set()
        await stuck
        pool.close()

    run(main())


def test_short_jobs_are_done_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is short is told by the clock, which a busy machine stops at will: here everything is.
    monkeypatch.setattr(read_pool, "_LONG_SECONDS", DEADLINE)
    monkeypatch.setattr(read_pool, "_CHECK_SECONDS", DEADLINE)
    seen: set[int] = set()

    async def main() -> None:
        pool = ReadPool(8)
        await asyncio.gather(*(pool.run(lambda: seen.add(threading.get_ident())) for _ in range(200)))
        pool.close()

    run(main())
    assert len(seen) == 1


def test_a_job_that_nobody_waits_for_is_not_begun() -> None:
    gate = threading.Event()
    begun: list[str] = []

    async def main() -> None:
        pool = ReadPool(1)
        blocking = asyncio.create_task(pool.run(lambda: gate.wait(DEADLINE)))
        await asyncio.sleep(0)
        cancelled = asyncio.create_task(pool.run(lambda: begun.append("cancelled")))
        wanted = asyncio.create_task(pool.run(lambda: begun.append("wanted")))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(blocking, wanted)
        pool.close()

    run(main())
    assert begun == ["wanted"]


def test_a_job_over_its_limit_is_given_up_and_its_thread_replaced() -> None:
    gate = threading.Event()

    async def main() -> None:
        pool = ReadPool(1)
        stuck = [asyncio.create_task(pool.run(lambda: gate.wait(DEADLINE), timeout=0.02)) for _ in range(3)]
        after = asyncio.create_task(pool.run(lambda: "after"))
        for task in stuck:
            with pytest.raises(TimeoutError, match=r"0\.02"):
                await task
        assert await after == "after"
        assert await pool.run(lambda: "in time", timeout=DEADLINE) == "in time"
        pool.close()
        gate.set()

    run(main())


@pytest.mark.usefixtures("nothing_left")
def test_threads_end_when_the_pool_is_closed() -> None:
    async def main() -> None:
        pool = ReadPool(4)
        await asyncio.gather(*(pool.run(lambda: None) for _ in range(100)))
        pool.close()
        pool.close()

    run(main())


@pytest.mark.usefixtures("nothing_left")
def test_a_loop_that_is_gone_when_a_job_ends_is_no_trouble() -> None:
    gate = threading.Event()

    async def main() -> None:
        pool = ReadPool(1)
        task = asyncio.create_task(pool.run(lambda: gate.wait(DEADLINE)))
        await asyncio.sleep(0)
        task.cancel()

    run(main())
    gate.set()
