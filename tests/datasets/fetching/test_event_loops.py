"""One resource for each event loop, and none that outlives it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref

import pytest

from feedline.datasets.fetching.event_loops import PerLoop


class Resource:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_loop_has_one_resource_and_another_loop_another() -> None:
    registry = PerLoop(Resource)

    async def main() -> Resource:
        first = registry.get()
        await asyncio.sleep(0)
        assert registry.get() is first
        return first

    assert asyncio.run(main()) is not asyncio.run(main())


def test_closing_closes_the_running_loops_resource_only_and_only_once() -> None:
    registry = PerLoop(Resource)

    async def main(close: bool) -> Resource:
        resource = registry.get()
        if close:
            registry.close()
            registry.close()
            assert registry.get() is not resource
        return resource

    with asyncio.Runner() as other:
        kept = other.run(main(False))
        assert asyncio.run(main(True)).closed == 1
        assert kept.closed == 0


def test_a_loop_that_ended_without_closing_is_closed_when_another_begins() -> None:
    registry = PerLoop(Resource)

    async def main() -> Resource:
        return registry.get()

    loop = asyncio.new_event_loop()
    left = loop.run_until_complete(main())
    loop.close()
    assert left.closed == 0
    asyncio.run(main())
    assert left.closed == 1


def test_a_resource_goes_with_its_loop() -> None:
    registry = PerLoop(Resource)

    async def main() -> weakref.ref[Resource]:
        return weakref.ref(registry.get())

    left = asyncio.run(main())
    gc.collect()
    assert left() is None


def test_threads_with_loops_of_their_own_do_not_share() -> None:
    registry = PerLoop(Resource)
    found: list[int] = []
    barrier = threading.Barrier(8)

    async def main() -> None:
        resource = registry.get()
        barrier.wait(60)
        found.append(id(resource))
        registry.close()
        assert resource.closed == 1

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(found)) == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_without_and_leaves_its_parents_alone() -> None:
    registry = PerLoop(Resource)

    async def main() -> None:
        resource = registry.get()
        pid = os.fork()
        if pid == 0:
            registry._lock.acquire(timeout=1)
            code = 0 if not len(registry._resources) and resource.closed == 0 else 1
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert registry.get() is resource

    asyncio.run(main())


def test_without_a_running_loop_there_is_none() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        PerLoop(Resource).get()
