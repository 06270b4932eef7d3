"""`progress=True`: a bar with items/s and the share of waiting."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from feedline import DataLoader, MissingExtraError
from feedline.loader import progress_bar
from loading import CountingStream, Squares

tqdm = pytest.importorskip("tqdm", reason="the bar needs the extra 'cli'")


class Bar:
    """Remembers what is asked of it."""

    made: list[Bar] = []
    disable = False

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.updates: list[int] = []
        self.postfix = ""
        self.closed = 0
        Bar.made.append(self)

    def update(self, items: int) -> None:
        self.updates.append(items)

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.postfix = text

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    monkeypatch.setattr(Bar, "made", [])
    monkeypatch.setattr(progress_bar, "require_progress", lambda: Bar)
    return Bar.made


@pytest.mark.parametrize("workers", [0, 2])
def test_each_epoch_has_a_bar_that_counts_items(workers: int, bars: list[Bar]) -> None:
    with DataLoader(Squares(23), batch_size=5, progress=True, num_workers=workers) as loader:
        list(loader)
        list(loader)
        assert [bar.options["desc"] for bar in Bar.made] == ["epoch 0", "epoch 1"]
        assert [bar.updates for bar in Bar.made] == [[5, 5, 5, 5, 3]] * 2
        assert all(bar.closed for bar in Bar.made)
        assert all(bar.postfix.startswith("waiting ") for bar in Bar.made)


def test_a_resumed_epoch_begins_where_it_stood(bars: list[Bar]) -> None:
    loader = DataLoader(Squares(23), batch_size=5, progress=True)
    batches = iter(loader)
    next(batches)
    next(batches)
    again = DataLoader(Squares(23), batch_size=5, progress=True)
    again.load_state_dict(loader.state_dict())
    list(again)
    assert Bar.made[-1].options["initial"] == 10
    assert sum(Bar.made[-1].updates) == 13


def test_a_stream_without_a_length_has_no_total(bars: list[Bar]) -> None:
    list(DataLoader(CountingStream(7), batch_size=5, progress=True))
    assert Bar.made[-1].options["total"] is None
    assert Bar.made[-1].updates == [5, 2]


def test_the_share_of_waiting_is_told_from_time_to_time(
    bars: list[Bar], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(progress_bar, "monotonic", lambda: next(ticks))
    batches = iter(DataLoader(Squares(23), batch_size=5, progress=True))
    next(batches)
    assert Bar.made[-1].postfix == "waiting 100%"


def test_the_real_bar_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    list(DataLoader(Squares(20), batch_size=5, progress=True))
    out, err = capsys.readouterr()
    assert out == ""
    assert "epoch 0" in err
    assert "20" in err


def test_a_missing_library_is_named_when_the_loader_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(MissingExtraError, match=r"progress=True needs .*pip install 'feedline\[cli\]'"):
        DataLoader(Squares(), progress=True)
