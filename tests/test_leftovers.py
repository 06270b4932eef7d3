"""The check that tests rely on to find what was left behind must itself find it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from leftovers import Snapshot, left_since


def test_nothing_is_reported_when_nothing_was_left() -> None:
    assert left_since(Snapshot.take()) == []


def test_a_running_thread_is_reported_by_name() -> None:
    before, release = Snapshot.take(), threading.Event()
    thread = threading.Thread(target=release.wait, args=(60,), name="the one left behind")
    thread.start()
    try:
        assert left_since(before, seconds=0) == ["thread 'the one left behind'"]
    finally:
        release.set()
        thread.join(60)
    assert left_since(before) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to tell open descriptors")
def test_an_open_descriptor_is_reported_with_its_target(tmp_path) -> None:
    before = Snapshot.take()
    with open(tmp_path / "left_open", "w") as file:
        assert left_since(before, seconds=0) == [f"descriptor {file.fileno()} -> {tmp_path / 'left_open'}"]
    assert left_since(before) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc to tell children of any kind")
def test_a_child_process_is_reported_until_it_is_waited_for() -> None:
    before = Snapshot.take()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert f"child process {child.pid}" in left_since(before, seconds=0)
    finally:
        child.communicate(b"\n", timeout=60)
    assert left_since(before) == []


def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    before, release = Snapshot.take(), threading.Event()
    thread = threading.Thread(target=release.wait, args=(60,))
    thread.start()
    release.set()
    assert left_since(before) == []
    assert not thread.is_alive()
