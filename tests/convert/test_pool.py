"""Worker processes of a conversion: Ctrl-C while one of them starts."""

from __future__ import annotations

import signal
import threading

import pytest

from feedline.convert.pool import _without_interrupts

DEADLINE = 30


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals can't be held back here")
def test_ctrl_c_that_any_thread_takes_waits_until_a_process_was_started() -> None:
    # As the threads of a numerical library do, this one takes signals that the main thread holds back.
    start = threading.Event()
    other = threading.Thread(target=lambda: start.wait(DEADLINE) and signal.raise_signal(signal.SIGINT))
    other.start()
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), _without_interrupts():
        start.set()
        other.join(DEADLINE)
        done.append("started")
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals can't be held back here")
def test_without_ctrl_c_nothing_is_changed() -> None:
    before = signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with _without_interrupts():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert (signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())) == before
