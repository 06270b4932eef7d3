"""Items from files."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feedline.datasets import files
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.files import FileDataset
from feedline.errors import FetchError, OptionError

DEADLINE = 60.0
on_posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX file system")


def awaited(dataset: FileDataset, index: int) -> bytes:
    async def main() -> bytes:
        async with asyncio.timeout(DEADLINE):
            try:
                return await dataset[index]
            finally:
                await dataset.aclose()

    return asyncio.run(main())


def awaited_in_a_batch(dataset: FileDataset, index: int) -> bytes:
    async def main() -> list[bytes]:
        async with asyncio.timeout(DEADLINE):
            try:
                return await dataset.__getitems__([index])
            finally:
                await dataset.aclose()

    return asyncio.run(main())[0]


def read_here(dataset: FileDataset, index: int) -> bytes:
    return dataset.fetch(index)


Fetch = Callable[[FileDataset, int], bytes]


@pytest.fixture(params=[awaited, awaited_in_a_batch, read_here])
def fetch(request: pytest.FixtureRequest) -> Fetch:
    """The three ways to an item: all behave alike."""
    return request.param  # type: ignore[no-any-return]


def refused(fetch: Fetch, dataset: FileDataset, index: int = 0) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetch(dataset, index)
    assert caught.value.index == index
    return caught.value


def test_an_item_is_the_content_of_its_file(fetch: Fetch, tmp_path: Path) -> None:
    contents = [b"", b"x", bytes(range(256)) * 1000]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}").write_bytes(content)
    dataset = FileDataset([tmp_path / "0", str(tmp_path / "1"), os.fsencode(tmp_path / "2")])
    assert len(dataset) == 3
    assert [fetch(dataset, index) for index in (0, 1, -1)] == contents


@on_posix
@pytest.mark.skipif(sys.platform == "darwin", reason="this file system wants decodable names")
def test_undecodable_names_work_and_show_printably(fetch: Fetch, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\xfe.bin"
    Path(os.fsdecode(name)).write_bytes(b"data")
    dataset = FileDataset([name, os.fsdecode(name), name + b"x"])
    assert fetch(dataset, 0) == fetch(dataset, 1) == b"data"
    error = refused(fetch, dataset, 2)
    assert error.location.endswith("/\\xff\\xfe.binx")
    assert error.location in str(error)


def test_a_long_name_of_all_kinds_of_letters_works(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / ("donn\u00e9es \u6570\u636e %20+#" + "x" * 220)
    path.write_bytes(b"data")
    assert fetch(FileDataset([path]), 0) == b"data"


def test_a_missing_file_is_not_found(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "none", tmp_path / "none" / "x", tmp_path / "file" / "x"):
        error = refused(fetch, FileDataset([path]))
        assert (error.kind, error.attempts, error.location) == ("not_found", 1, str(path))
        assert str(path) in str(error)


def test_a_directory_is_no_item(fetch: Fetch, tmp_path: Path) -> None:
    error = refused(fetch, FileDataset([tmp_path]))
    assert error.kind in ("location", "denied")
    if os.name == "posix":
        assert "a directory" in str(error)


@on_posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_denied(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "closed"
    path.write_bytes(b"x")
    path.chmod(0)
    assert refused(fetch, FileDataset([path])).kind == "denied"


def test_what_the_system_refuses_tells_its_kind(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    for number, kind in [(errno.EACCES, "denied"), (errno.EMFILE, "store"), (errno.EIO, "store")]:
        failing = OSError(number, os.strerror(number))
        monkeypatch.setattr("os.open", raising(failing))
        error = refused(fetch, FileDataset([tmp_path / "x"]))
        monkeypatch.undo()
        assert (error.kind, error.attempts) == (kind, 1)
        assert os.strerror(number) in str(error)


def raising(error: OSError) -> Any:
    real = os.open

    def opening(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if os.fspath(path).endswith("x" if isinstance(path, str) else b"x"):
            raise error
        return real(path, flags, *rest, **options)

    return opening


@on_posix
def test_a_fifo_a_device_and_a_socket_are_refused_without_waiting(fetch: Fetch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        short = os.path.relpath(tmp_path / "socket")
        bound.bind(short if len(short) < 100 else str(tmp_path / "socket"))
        for path in (tmp_path / "fifo", Path("/dev/null"), Path("/dev/zero"), tmp_path / "socket"):
            assert refused(fetch, FileDataset([path])).kind == "location"


def test_a_file_over_the_cap_is_refused_with_limit_and_size(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 1001)
    error = refused(fetch, FileDataset([path], max_bytes=1000))
    assert error.kind == "too_large"
    assert "max_bytes=1000" in str(error)
    assert "1001" in str(error)
    assert fetch(FileDataset([path], max_bytes=1001), 0) == b"x" * 1001


def test_a_sparse_file_beyond_memory_is_refused_by_its_size(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert refused(fetch, FileDataset([path])).kind == "too_large"


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_a_file_that_does_not_tell_its_size_is_read_to_its_end(fetch: Fetch) -> None:
    assert b"Pid:" in fetch(FileDataset(["/proc/self/status"]), 0)
    assert refused(fetch, FileDataset(["/proc/self/status"], max_bytes=10)).kind == "too_large"


def test_a_read_that_comes_in_parts_is_continued(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)) * 4)
    real = os.read
    monkeypatch.setattr("os.read", lambda fd, size: real(fd, min(size, 100)))
    assert fetch(FileDataset([path]), 0) == bytes(range(256)) * 4


def test_a_file_that_is_cut_while_it_is_read_is_truncated(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 1000)
    real = os.fstat

    def then_cut(fd: int) -> os.stat_result:
        status = real(fd)
        if stat.S_ISREG(status.st_mode) and status.st_size == 1000:
            os.truncate(path, 400)
        return status

    monkeypatch.setattr("os.fstat", then_cut)
    error = refused(fetch, FileDataset([path]))
    assert error.kind == "truncated"
    assert "400 of 1000" in str(error)


def test_a_file_that_grows_while_it_is_read_is_read_on_up_to_the_cap(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    real = os.fstat

    def then_grow(fd: int) -> os.stat_result:
        status = real(fd)
        if stat.S_ISREG(status.st_mode) and status.st_size == 1000:
            with path.open("ab") as file:
                file.write(b"y" * 500)
        return status

    monkeypatch.setattr("os.fstat", then_grow)
    path.write_bytes(b"x" * 1000)
    assert fetch(FileDataset([path]), 0) == b"x" * 1000 + b"y" * 500
    path.write_bytes(b"x" * 1000)
    assert refused(fetch, FileDataset([path], max_bytes=1200)).kind == "too_large"


def test_passing_errors_are_retried_and_others_are_not(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    path = tmp_path / "x"
    path.write_bytes(b"data")
    real = os.open
    for number in (errno.ETIMEDOUT, errno.EINTR, errno.EAGAIN):
        left = [2]

        def opening(
            name: Any, flags: int, *rest: Any, number: int = number, left: list[int] = left, **options: Any
        ) -> int:
            if os.fspath(name) == str(path) and left[0]:
                left[0] -= 1
                raise OSError(number, os.strerror(number))
            return real(name, flags, *rest, **options)

        monkeypatch.setattr("os.open", opening)
        assert fetch(FileDataset([path], retry=Retry(2, 0.001, 0.01)), 0) == b"data"
        left[0] = 99
        error = refused(fetch, FileDataset([path], retry=Retry(1, 0.001, 0.01)))
        assert (error.kind, error.attempts) == ("timeout" if number == errno.ETIMEDOUT else "store", 2)
        assert refused(fetch, FileDataset([path])).attempts == 1


def test_a_read_that_hangs_times_out_is_tried_again_and_blocks_nobody(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More reads hang than a pool has threads: others go on all the same."""
    (tmp_path / "good").write_bytes(b"data")
    released = threading.Event()
    real = os.open

    def opening(name: Any, flags: int, *rest: Any, **options: Any) -> int:
        if os.fspath(name) == str(tmp_path / "hangs"):
            released.wait(DEADLINE)
        return real(name, flags, *rest, **options)

    monkeypatch.setattr("os.open", opening)
    monkeypatch.setattr(files, "_THREADS", 2)
    try:
        dataset = FileDataset(
            [tmp_path / "hangs", tmp_path / "good"], timeout=0.05, retry=Retry(2, 0.001, 0.01)
        )
        error = refused(fetch, dataset)
        assert (error.kind, error.attempts) == ("timeout", 3)
        assert "0.05 s" in str(error)
        assert fetch(dataset, 1) == b"data"
    finally:
        released.set()


def test_a_batch_is_its_items_in_order_and_raises_for_its_first_bad_one(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).write_bytes(str(number).encode())
    dataset = FileDataset([tmp_path / str(number) for number in range(12)])

    async def main() -> list[bytes]:
        with pytest.raises(FetchError) as caught:
            await dataset.__getitems__([1, 11, 10])
        assert caught.value.index == 11
        with pytest.raises(IndexError):
            await dataset.__getitems__([1, 12])
        items = await dataset.__getitems__([3, -3, 0, 3])
        await dataset.aclose()
        return items

    assert asyncio.run(main()) == [b"3", b"9", b"0", b"3"]


def test_many_items_at_once_are_all_right(tmp_path: Path) -> None:
    count = 500
    for number in range(count):
        (tmp_path / str(number)).write_bytes(str(number).encode())
    dataset = FileDataset.from_template(tmp_path / "{index}", length=count)

    async def main() -> list[bytes]:
        async with asyncio.timeout(DEADLINE):
            items = await asyncio.gather(*(dataset[index] for index in range(count)))
        await dataset.aclose()
        return items

    results: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(main()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert results == [[str(number).encode() for number in range(count)]] * 3


@pytest.mark.usefixtures("nothing_left")
def test_threads_end_when_the_dataset_is_closed_and_soon_when_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    dataset = FileDataset([tmp_path / "a"])
    assert awaited(dataset, 0) == b"x"
    assert asyncio.run(dataset[0]) == b"x"  # type: ignore[arg-type]


def test_cancelling_an_item_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good").write_bytes(b"data")
    (tmp_path / "slow").write_bytes(b"late")
    released, reached = threading.Event(), threading.Event()
    real = os.open

    def opening(name: Any, flags: int, *rest: Any, **options: Any) -> int:
        if os.fspath(name) == str(tmp_path / "slow"):
            reached.set()
            released.wait(DEADLINE)
        return real(name, flags, *rest, **options)

    monkeypatch.setattr("os.open", opening)
    dataset = FileDataset([tmp_path / "slow", tmp_path / "good"])

    async def main() -> None:
        async with asyncio.timeout(DEADLINE):
            slow = asyncio.create_task(dataset[0])  # type: ignore[arg-type]
            await asyncio.to_thread(reached.wait, DEADLINE)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert await dataset[1] == b"data"
            released.set()
            assert await dataset[0] == b"late"
            await dataset.aclose()

    asyncio.run(main())


def test_a_dataset_pickles_small_and_reads_again(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x" * 100_000)
    dataset = FileDataset([tmp_path / "0"], retry=Retry(1), timeout=20.0)
    fetch(dataset, 0)
    data = pickle.dumps(dataset)
    assert len(data) < 2000
    assert fetch(pickle.loads(data), 0) == b"x" * 100_000


def test_locations_come_from_functions_and_templates_too(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "007.bin").write_bytes(b"x")
    template = FileDataset.from_template(tmp_path / "{split}" / "{index:03}.bin", {"split": ["train"] * 8})
    assert fetch(template, 7) == b"x"
    called = FileDataset.from_function(lambda index: tmp_path / "train" / f"{index:03}.bin", 8)
    assert fetch(called, -1) == b"x"
    bad = FileDataset.from_function(lambda index: 7, 8)  # type: ignore[arg-type,return-value]
    error = refused(fetch, bad)
    assert (error.kind, error.attempts) == ("location", 0)


def test_what_a_location_function_raises_is_the_error(fetch: Fetch) -> None:
    def where(index: int) -> str:
        raise LookupError("no such place")

    with pytest.raises(LookupError, match="no such place"):
        fetch(FileDataset.from_function(where, 1), 0)


def test_an_index_out_of_range_is_an_index_error(fetch: Fetch) -> None:
    for index in (1, -2):
        with pytest.raises(IndexError, match=str(index)):
            fetch(FileDataset(["x"]), index)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "named"),
    [
        (("a/path",), {}, TypeError, r"write \[path\]"),
        ((Path("a"),), {}, TypeError, "list of paths"),
        (([""],), {}, OptionError, r"paths\[0\]"),
        (([7],), {}, TypeError, r"paths\[0\]"),
        (([],), {"max_bytes": 0}, OptionError, "max_bytes"),
        (([],), {"max_bytes": "1"}, TypeError, "max_bytes"),
        (([],), {"retry": 1}, TypeError, "retry"),
        (([],), {"timeout": 0}, OptionError, "timeout"),
        (([],), {"timeout": float("nan")}, OptionError, "timeout"),
    ],
)
def test_mistakes_are_found_when_built(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        FileDataset(*arguments, **options)


def test_relative_paths_count_from_the_working_directory_of_the_fetch(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = FileDataset(["name"])
    (tmp_path / "name").write_bytes(b"here")
    monkeypatch.chdir(tmp_path)
    assert fetch(dataset, 0) == b"here"
