"""`TemplateProcess`: the owner's side of the process that workers are forked from."""

from __future__ import annotations

import os
import pickle
import select
import socket
import subprocess
import sys
from typing import Any

from feedline.loader.execution.channel import Inbox, Outbox
from feedline.loader.execution.parcel import Parcel
from feedline.loader.execution.process_template import bootstrap

__all__ = ["TemplateProcess"]

#: Seconds that it gets to end when its socket is closed.
PATIENCE_SECONDS = 0.5
#: Set while it imports NumPy. OpenBLAS starts a thread for each processor then, and they spin for a while, waiting for
#: work, when the owner needs the processor to pickle the dataset; this lets them sleep at once.
_WHILE_IMPORTING = {"OPENBLAS_THREAD_TIMEOUT": "4"}


class TemplateProcess:
    """Starts the process; must be made by a thread that lives as long as it: see Note [orphans].

    Raises:
        OSError: it can't be started.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            theirs.set_inheritable(True)
            lent = {name: value for name, value in _WHILE_IMPORTING.items() if name not in os.environ}
            program = bootstrap(theirs.fileno(), os.getpid(), list(lent))
            self._process = subprocess.Popen(
                [_executable(), *_interpreter_flags(), "-c", program],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **lent},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._channel = ours
        self._inbox = Inbox(ours)
        self._outbox = Outbox(ours)
        self.is_alive = True
        self.has_lists = False
        self._is_ready = False

    @property
    def descriptor(self) -> int:
        """What to poll."""
        return self._channel.fileno()

    def wanted_events(self) -> int:
        """Return what to poll for."""
        return select.POLLIN | (0 if self._outbox.is_empty else select.POLLOUT)

    def _send(self, order: tuple[Any, ...], descriptors: list[int]) -> None:
        self._outbox.put([pickle.dumps(order, protocol=5)], descriptors)
        self._flush()

    def _flush(self) -> None:
        try:
            self._outbox.flush()
        except OSError:
            self._outbox.drop()
            self.is_alive = False

    def equip(self, parcel: Parcel, options: dict[str, Any]) -> None:
        """Send what workers run; to be done before they are spawned.

        Raises:
            OSError: no descriptor can be had.
        """
        copies: list[int] = []
        try:
            copies.extend(os.dup(file) for file in parcel.descriptors())
        except OSError:
            for copy in copies:
                os.close(copy)
            raise
        self._send(("parcel", options, parcel.facts()), copies)

    def read_texts(self, descriptor: int) -> None:
        """Have it read lists of strings before they are whole, so that all workers have them; the descriptor is closed."""
        self.has_lists = True
        self._send(("texts",), [descriptor])

    def forget_lists(self) -> None:
        """Have it drop what it has read: workers have it by now, and one that is made later reads for itself."""
        if self.has_lists:
            self.has_lists = False
            self.order("forget")

    def order(self, *order: Any) -> None:
        """Send an order that needs no descriptors."""
        self._send(order, [])

    def spawn(self, number: int, descriptors: list[int]) -> None:
        """Have a worker made; the descriptors (its socket, its page) are closed here once they are sent."""
        self._send(("spawn", number), descriptors)

    def talk(self) -> list[tuple[Any, ...]]:
        """Send and receive what can be; return the news."""
        self._flush()
        news: list[tuple[Any, ...]] = []
        before = -1
        while len(news) != before and not self._inbox.ended:
            before = len(news)
            self._inbox.read()
            while self._inbox.messages:
                news.append(pickle.loads(self._inbox.messages.popleft()[0]))
        if self._inbox.ended:
            self.is_alive = False
        self._is_ready = self._is_ready or bool(news)
        return news

    def close(self) -> None:
        """End it, and what workers it has."""
        self.is_alive = False
        self._outbox.drop()
        self._channel.close()
        try:
            self._process.wait(PATIENCE_SECONDS if self._is_ready else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        self.is_alive = False
        self._channel.close()
        self._process.returncode = 0


def _executable() -> str:
    # Whoever embeds Python has told multiprocessing which one to start, if anybody; it takes long to import.
    spawn = sys.modules.get("multiprocessing.spawn")
    path = sys.executable if spawn is None else spawn.get_executable()
    if not path:
        raise OSError("the path of the Python interpreter is not known: sys.executable is empty")
    return os.fsdecode(path)


def _interpreter_flags() -> list[str]:
    # What multiprocessing passes on, too: -O, -W, -X, -E and their like.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags
