"""Memory between processes: results without a copy, arrays of datasets shared, bounds, and what happens without any."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from feedline import DataLoader
from feedline.loader.execution.shared_memory import MIN_BYTES, Block, WorkerMemory
from process_datasets import Large, Numbers, Rows

pytestmark = pytest.mark.usefixtures("nothing_left")


def processes(dataset, num_workers=2, **options):
    return DataLoader(dataset, num_workers=num_workers, worker_type="process", **options)


def run(script, **limits):
    """Run `script` in a process of its own, whose `limits` (names of the resource module) hold for its workers, too."""

    def lower():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    paths = os.pathsep.join([str(Path(__file__).parents[2]), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": paths},
        preexec_fn=lower if limits else None,
    )
    assert done.returncode == 0, done.stderr
    return done


def mapping_of(array):
    """Return the line of the memory map that has the first byte of `array`."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= address < end:
            return line
    raise LookupError(hex(address))


def test_a_large_batch_lies_in_memory_that_the_worker_filled():
    with processes(Large(n=128), batch_size=64) as loader:  # 38.4 MB a batch
        for number, batch in enumerate(loader):
            assert batch.shape == (64, 150_000)
            assert batch.flags.writeable
            assert batch.flags.c_contiguous
            assert "memfd:feedline" in mapping_of(batch)
            batch += 1  # nobody else's
            assert batch[:, 0].tolist() == [64 * number + row + 1 for row in range(64)]


def test_memory_is_used_again_and_never_while_somebody_sees_it():
    with processes(Large(n=400, size=20_000), batch_size=8, num_workers=1) as loader:
        kept, addresses = [], set()
        for number, batch in enumerate(loader):
            addresses.add(batch.__array_interface__["data"][0])
            if number % 5 == 0:
                # A row of a view of an export keeps the whole batch.
                kept.append((number, memoryview(batch[2:5])[1:2]))
            del batch
        assert len(addresses) < 25
        for number, view in kept:
            assert np.array_equal(np.asarray(view)[0], np.full(20_000, 8 * number + 3, np.float32))


def test_every_large_array_of_a_batch_is_shared_also_those_of_own_collate_functions():
    def collate(items):
        return {"stack": np.stack(items), "twice": [np.stack(items) * 2, "text"], "ro": readonly(items)}

    def readonly(items):
        array = np.stack(items)
        array.flags.writeable = False
        return array

    with processes(Large(n=8, size=30_000), batch_size=4, collate_fn=collate) as loader:
        for number, batch in enumerate(loader):
            assert np.array_equal(batch["stack"][:, 0], np.arange(4) + 4 * number)
            assert np.array_equal(batch["twice"][0], batch["stack"] * 2)
            assert not batch["ro"].flags.writeable
            assert batch["stack"].flags.writeable
            assert "memfd:feedline" in mapping_of(batch["stack"])


def test_a_batch_kept_by_the_collate_function_is_not_sent_twice_in_one_memory():
    cache = {}

    def collate(items):
        if "batch" not in cache:
            cache["batch"] = np.stack([item for item, _ in items])
        cache["batch"] += 1
        return cache["batch"]

    with processes(Numbers(40, 20_000), batch_size=8, num_workers=1, collate_fn=collate) as loader:
        batches = list(loader)
    assert [batch[0, 0] for batch in batches] == [1, 2, 3, 4, 5]


def test_arrays_of_the_dataset_are_one_block_for_all_workers():
    def of_this_process():
        text = Path("/proc/self/smaps").read_text()
        block = text[text.index("memfd:feedline") :]
        fields = dict(line.split(":", 1) for line in block.splitlines()[1:25] if ":" in line)
        return [int(fields[name].split()[0]) for name in ("Size", "Rss", "Anonymous")]

    class Watching(Rows):
        def __getitem__(self, index):
            super().__getitem__(index)
            return np.array(of_this_process() if index % 100 == 99 else [0, 0, 0]), os.getpid()

    with processes(Watching(rows=4000), batch_size=100, num_workers=2) as loader:  # 32 MB
        last = {int(pids[-1]): sizes[-1].tolist() for sizes, pids in loader}
    assert len(last) == 2
    for size, touched, copied in last.values():
        assert size >= 31_000
        assert touched > 2_000
        assert copied == 0


def test_workers_may_write_to_arrays_of_the_dataset_and_nobody_else_sees_it():
    class Writing(Rows):
        def __getitem__(self, index):
            self.array[index] += 1
            return self.array[index, 0]

    dataset = Writing(rows=64)
    expected = dataset.array[:, 0] + 1
    with processes(dataset, batch_size=16) as loader:
        assert np.array_equal(np.concatenate(list(loader)), expected)
    assert np.array_equal(dataset.array[:, 0], expected - 1)


def test_a_memory_map_is_opened_again_by_the_workers(tmp_path):
    path = tmp_path / "rows.bin"
    np.arange(3_000_000, dtype=np.float64).tofile(path)
    dataset = Rows(1, 1)
    dataset.array = np.memmap(path, np.float64, "r", offset=800, shape=(2000, 1000))

    class Where(Rows):
        def __init__(self, array):
            self.array = array

        def __getitem__(self, index):
            return float(self.array[index, 0]), str(path) in Path("/proc/self/maps").read_text()

    with processes(Where(dataset.array), batch_size=1000) as loader:
        for number, (values, mapped) in enumerate(loader):
            assert values.tolist() == [100.0 + 1000 * (1000 * number + row) for row in range(1000)]
            assert all(mapped)
    # A part of a map, and a file that is gone, travel as arrays.
    with processes(Where(dataset.array[5:8]), batch_size=3) as loader:
        values, mapped = next(iter(loader))
        assert values.tolist() == [5100.0, 6100.0, 7100.0]


def test_kept_batches_cost_neither_descriptors_nor_segments():
    run(
        """
        import os, resource
        from feedline import DataLoader
        from process_datasets import Numbers
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        loader = DataLoader(Numbers(10_000, 64), batch_size=2, num_workers=2, worker_type="process")
        before, shm = len(os.listdir("/proc/self/fd")), os.listdir("/dev/shm")
        kept = []
        for batch in loader:
            kept.append(batch)
            if len(kept) % 500 == 0:
                assert len(os.listdir("/proc/self/fd")) < before + 20
                assert os.listdir("/dev/shm") == shm
        assert len(kept) == 5000
        assert [int(indices[0]) for _, indices in kept] == list(range(0, 10_000, 2))
        """
    )


def test_many_kept_large_batches_go_through_the_pipe_in_the_end():
    with processes(Large(n=300, size=20_000), batch_size=1, num_workers=1) as loader:
        kept = list(loader)
        shared = sum("memfd:feedline" in mapping_of(batch) for batch in kept)
        assert 8 <= shared <= 64
        assert [float(batch[0, -1]) for batch in kept] == list(range(300))
        assert all(batch.flags.writeable for batch in kept)


def test_without_room_for_shared_memory_bytes_go_through_the_pipe():
    done = run(
        """
        import logging, numpy as np
        logging.basicConfig(level="WARNING")
        from feedline import DataLoader
        from process_datasets import Large, Rows
        with DataLoader(Rows(300, 1000), batch_size=100, num_workers=2, worker_type="process") as loader:
            assert [len(sums) for sums, pids in loader] == [100, 100, 100]
        with DataLoader(Large(24), batch_size=8, num_workers=2, worker_type="process") as loader:
            for _ in range(2):
                assert [float(batch[0, 0]) for batch in loader] == [0, 8, 16]
        """,
        RLIMIT_FSIZE=500_000,
    )
    lines = [line for line in done.stderr.splitlines() if "no shared memory" in line]
    assert len(lines) == 2
    assert "for the dataset" in lines[0]
    assert "for results" in lines[1]


def test_a_consumer_that_is_out_of_descriptors_gets_its_batches_all_the_same():
    run(
        """
        import os, resource
        from feedline import DataLoader
        from process_datasets import Large
        loader = DataLoader(Large(64, 50_000), batch_size=4, num_workers=2, worker_type="process", prefetch_depth=1)
        iterator = iter(loader)
        first = next(iterator)
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        kept = [first, *iterator]
        assert [float(batch[0, 0]) for batch in kept] == list(range(0, 64, 4)), [float(b[0, 0]) for b in kept]
        """
    )


def test_torch_tensors_travel_without_a_copy():
    torch = pytest.importorskip("torch.utils.data") and sys.modules["torch"]
    rows = torch.arange(400_000, dtype=torch.float32).reshape(1000, 400)

    class Tensors:
        def __len__(self):
            return 1000

        def __getitem__(self, index):
            return rows[index], torch.tensor(index, dtype=torch.bfloat16), torch.empty(0, 3)

    with processes(Tensors(), batch_size=250, collate_fn=_stack) as loader:
        for number, (values, indices, empty) in enumerate(loader):
            assert torch.equal(values, rows[250 * number : 250 * number + 250])
            assert indices.dtype == torch.bfloat16
            assert empty.shape == (250, 0, 3)
            assert "memfd:feedline" in mapping_of(values.numpy())
            values += 1


def _stack(items):
    import torch

    return tuple(torch.stack(column) for column in zip(*items))


def test_no_torch_in_workers_that_do_not_need_it():
    pytest.importorskip("torch.utils.data")
    with processes(Numbers(4), transform=lambda item: "torch" in sys.modules) as loader:
        assert not any(bool(batch[0]) for batch in loader)


def test_blocks_are_bounded_and_make_room_for_other_sizes():
    memory = WorkerMemory(max_blocks=3, max_bytes=10 * MIN_BYTES)
    lent = [memory.allocate((MIN_BYTES,), "u1") for _ in range(3)]
    assert memory.borrow(MIN_BYTES) is None
    assert memory.allocate((MIN_BYTES,), "u1").base is None
    del lent[0]
    assert memory.borrow(9 * MIN_BYTES) is None
    assert memory.borrow(6 * MIN_BYTES) is not None
    small = memory.allocate((10,), "f8")
    assert small.base is None
    _, descriptors, _ = memory.take_news(set())
    assert descriptors == []
    for descriptor in memory._descriptors.values():
        os.close(descriptor)


def test_a_block_is_lent_as_long_as_anything_sees_it():
    memory = WorkerMemory()
    array = memory.allocate((MIN_BYTES,), "u1")
    block = memory.find(array.__array_interface__["data"][0])
    assert isinstance(block, Block)
    view = memoryview(array[5:])[3:]
    del array
    assert block.is_lent
    del view
    assert not block.is_lent
    assert memory.find(block.address) is None
    again = memory.allocate((MIN_BYTES // 2,), "u2")
    assert again.__array_interface__["data"][0] == block.address
    for descriptor in memory._descriptors.values():
        os.close(descriptor)


def test_a_forked_child_keeps_the_batches_that_it_saw():
    run(
        """
        import os, numpy as np
        from feedline import DataLoader
        from process_datasets import Large
        loader = DataLoader(Large(400, 50_000), batch_size=4, num_workers=1, worker_type="process")
        iterator = iter(loader)
        batch = next(iterator)
        ready, go = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go[1])
            os.read(go[0], 1)
            os._exit(0 if batch[0, 0] == 0 and (batch[3] == 3).all() else 1)
        del batch
        assert [float(batch[0, 0]) for batch in iterator] == list(range(4, 400, 4))
        os.write(go[1], b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )


def test_results_arrive_in_any_thread():
    with processes(Large(8, 30_000), batch_size=2) as loader:
        found = []
        thread = threading.Thread(target=lambda: found.extend(float(batch[0, 0]) for batch in loader))
        thread.start()
        thread.join(30)
        assert found == [0, 2, 4, 6]
