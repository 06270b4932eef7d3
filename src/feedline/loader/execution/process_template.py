"""The process that worker processes are forked from: NumPy and what workers need imported, one thread, nothing of the user's.

It is started with a fresh interpreter, so no lock, thread or lazy state of the user's process comes along; a worker is
there in milliseconds, also when it replaces one that died. It alone can wait for workers, so it tells how they end.

It boots while its owner draws the order and pickles the dataset; what it imports, the first batch may have to wait for. So
this module and those that it needs import little, and the rest comes when there is nothing else to do.

Note [orphans]
    The template dies with the thread that started it (Linux: PR_SET_PDEATHSIG) and at the latest when its socket is
    closed; workers die with the template in the same way, whatever they are doing. So nothing survives `kill -9`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import traceback
import warnings
from typing import Any

import numpy as np

from feedline.loader.execution.channel import receive, send
from feedline.loader.execution.control import ControlPage
from feedline.loader.execution.parcel import Parcel
from feedline.loader.execution.process_worker import serve
from feedline.loader.execution.string_lists import TextFile

__all__ = ["bootstrap", "main"]

_PR_SET_PDEATHSIG = 1
#: What most workers need sooner or later, imported while the owner has no orders.
_SOON = ("numpy.random", "cloudpickle")


def bootstrap(descriptor: int, parent: int, borrowed: list[str]) -> str:
    """Return the program text for `python -c` that runs `main` with the import path of this process.

    Args:
        descriptor: the socket.
        parent: the owner's process.
        borrowed: environment variables that are for the imports alone.
    """
    return (
        f"import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = {sys.argv!r}; "
        f"from {__name__} import main; main({descriptor}, {parent}, {borrowed!r})"
    )


def _die_with(parent: int) -> None:
    """End this process when `parent` (its thread that made this process) ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main(descriptor: int, parent: int, borrowed: list[str]) -> None:
    """Serve the owner at the other end of the socket `descriptor` until it is closed."""
    for name in borrowed:
        os.environ.pop(name, None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _die_with(parent)
    # Python counts threads of BLAS libraries, which look after themselves at a fork.
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    _Template(socket.socket(fileno=descriptor)).run()


class _Template:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._alive: set[int] = set()
        self._parcel: Parcel | None = None
        self._options: dict[str, Any] = {}
        self._texts: TextFile | None = None
        self._texts_file: int | None = None
        self._soon = list(_SOON)
        self._child_end, self._signal_end = socket.socketpair()
        self._child_end.setblocking(False)
        self._signal_end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signal_end.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        self._tell("ready")
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._child_end, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(0 if self._soon else None)}
            if not ready:
                self._import(self._soon.pop(0))
            if self._child_end.fileno() in ready:
                self._reap()
            if self._channel.fileno() in ready:
                try:
                    message, descriptors = receive(self._channel)
                except EOFError:
                    self._leave()
                self._obey(pickle.loads(message), descriptors)

    def _leave(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def _obey(self, order: tuple[Any, ...], descriptors: list[int]) -> None:
        if order[0] == "spawn":
            self._spawn(order[1], descriptors)
        elif order[0] == "signal":
            if order[1] in self._alive:
                os.kill(order[1], order[2])
        elif order[0] == "texts" and descriptors:
            self._texts_file = descriptors.pop()
            self._texts = TextFile(self._texts_file)
        elif order[0] == "pieces":
            self._read_pieces(order[1], order[2])
        elif order[0] == "forget":
            self._forget()
        elif order[0] == "parcel":
            self._take(Parcel.of(order[2], descriptors), order[1])

    def _read_pieces(self, start: int, lengths: list[int]) -> None:
        """Read a list of strings before it is whole; not if anything fails, as a worker can tell what does."""
        if self._texts is not None:
            try:
                self._texts.read_on(start, lengths)
            except Exception:
                self._close_texts()

    def _close_texts(self) -> None:
        if self._texts_file is not None:
            os.close(self._texts_file)
        self._texts = self._texts_file = None

    def _take(self, parcel: Parcel, options: dict[str, Any]) -> None:
        if self._texts is not None:
            parcel.begun = self._texts.begun
        self._close_texts()
        self._parcel, self._options = parcel, options
        for name in options["preload"]:
            self._import(name)

    def _forget(self) -> None:
        if self._parcel is not None:
            self._parcel.begun = {}

    @staticmethod
    def _import(name: str) -> None:
        # Once for all workers. What fails here fails in a worker as well, which can tell.
        with contextlib.suppress(Exception):
            importlib.import_module(name)

    def _spawn(self, number: int, descriptors: list[int]) -> None:
        if len(descriptors) != 2 or self._parcel is None:
            for descriptor in descriptors:
                os.close(descriptor)
            self._tell("failed", number, "descriptors are missing")
            return
        # What is there by now is no garbage of any worker, and its pages are to remain shared.
        gc.freeze()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._tell("failed", number, str(error))
        if pid == 0:
            self._become_worker(number, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self._alive.add(pid)
            self._tell("started", number, pid)

    def _become_worker(self, number: int, descriptors: list[int]) -> None:
        code = 1
        try:
            _die_with(self._pid)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._channel, self._child_end, self._signal_end):
                end.close()
            # Forked generators would all draw the same; one that is imported later is seeded anyhow.
            if "numpy.random" in sys.modules:
                np.random.seed()
            if self._options["dump_signal"] is not None:
                faulthandler.register(self._options["dump_signal"], file=2, all_threads=True)
            channel, page = socket.socket(fileno=descriptors[0]), ControlPage(descriptors[1])
            assert self._parcel is not None
            serve(number, channel, page, self._parcel, self._options["heartbeat"])
            code = 0
        except (BrokenPipeError, ConnectionResetError):
            code = 0  # the owner is gone: nobody is left to tell
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        try:
            while self._child_end.recv(4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._alive.discard(pid)
            self._tell("ended", pid, os.waitstatus_to_exitcode(status))

    def _tell(self, *facts: Any) -> None:
        try:
            send(self._channel, pickle.dumps(facts))
        except OSError:
            self._leave()
