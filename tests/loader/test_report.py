"""What the report says, line by line."""

from __future__ import annotations

from feedline import DataLoader
from feedline.loader.report import report_text
from feedline.loader.stats import LoaderStats

SLOW = LoaderStats(
    batches=100,
    items=3200,
    size_bytes=64_000_000,
    epochs=1,
    wall_seconds=66.0,
    wait_seconds=25.0,
    step_seconds=41.0,
    fetch_seconds=10.0,
    transform_seconds=110.0,
    collate_seconds=5.0,
    cpu_seconds=66.0,
    looks=100,
    gil_looks=80,
    worker_looks=200,
    working_looks=200,
    asleep_looks=100,
    num_workers=2,
    cores=4,
)


def test_the_report_says_who_waits_for_what_and_what_to_change() -> None:
    assert report_text(SLOW, epoch_items=3200).splitlines() == [
        "3,200 items in 100 batches in 66.00 s (48 items/s); the consumer waited 38% of it.",
        "About 64.0 MB in batches (1.0 MB/s), 2 worker threads.",
        "Your step waits for data 38% of the time.",
        "Of the loading: fetch 8%, transform 88%, collate 4%. Transform is the slowest stage, and workers hold the GIL 80% "
        "of the time.",
        "With free data an epoch would take 41 s instead of 66 s.",
        "More threads can't help. Use worker_type='process', num_workers=4, or use a step that releases the GIL (NumPy, "
        "OpenCV and image decoders do).",
    ]


def test_the_report_tells_of_failures_memory_and_notes() -> None:
    stats = SLOW.since(LoaderStats())
    from dataclasses import replace

    stats = replace(
        stats, failed_items=3, failed_batches=1, memory_bytes=2_500_000_000, worker_type="process"
    )
    text = report_text(
        stats, None, "item 7 of epoch 0: ValueError: bad", "num_workers='auto' settled on 2 workers: x."
    )
    assert "2 worker processes with 2.5 GB of memory between them" in text
    assert "3 items failed, 1 batch raised an error; the last was item 7 of epoch 0: ValueError: bad" in text
    assert "num_workers='auto' settled on 2 workers: x.\n" in text
    assert "With free data" not in text


def test_the_report_tells_how_many_items_are_in_flight() -> None:
    from dataclasses import replace

    text = report_text(replace(SLOW, source="async", item_concurrency=8, flight_seconds=330.0))
    assert "5.0 items in flight on average (item_concurrency=8)" in text


def test_a_loader_that_has_done_nothing_says_so() -> None:
    assert DataLoader([1, 2, 3]).report() == "Nothing was loaded yet. Iterate over the loader first."


def test_a_loader_tells_of_its_own_failures() -> None:
    def refuse(item: int) -> int:
        if item == 5:
            raise ValueError("five is bad")
        return item

    loader = DataLoader(list(range(16)), batch_size=4, transform=refuse, on_error="skip")
    list(loader)
    assert "1 item failed; the last was item 5 of epoch 0: ValueError: five is bad" in loader.report()


def test_a_length_that_fails_does_not_cost_the_report() -> None:
    class Moody(list):  # type: ignore[type-arg]
        is_moody = False

        def __len__(self) -> int:
            if self.is_moody:
                raise OSError("not today")
            return super().__len__()

    data = Moody(range(8))
    loader = DataLoader(data, batch_size=4)
    list(loader)
    data.is_moody = True
    assert "8 items in 2 batches" in loader.report()
