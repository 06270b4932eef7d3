"""Datasets and transforms for tests of worker processes: in a module, so that workers import them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
import urllib.error
from email.message import Message
from pathlib import Path

import numpy as np

from feedline.datasets.protocol import AsyncDataset


class Numbers:
    """`n` items, each a row of `width` floats and its index."""

    def __init__(self, n=40, width=4):
        self.n = n
        self.width = width

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return np.full(self.width, float(index)), index


class WithGetItems(Numbers):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Awaited(AsyncDataset):
    def __init__(self, n=24, closed=None):
        self.n = n
        self.closed = closed

    def __len__(self):
        return self.n

    async def __getitem__(self, index):
        await asyncio.sleep(0)
        if index == 13:
            raise KeyError("thirteen")
        return index

    async def aclose(self):
        if self.closed is not None:
            Path(self.closed, f"{os.getpid()}").write_text("closed")


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class HoldsLock(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


class RaisesOnLoad(Exception):
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise OSError("refused to load")


class Detailed(Exception):
    def __init__(self, message, detail):
        super().__init__(message, detail)
        self.detail = detail


def make_local_error():
    class Local(Exception):
        pass

    return Local("from inside of a function")


def make_chained():
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        return error


ERRORS = {
    "HTTPError": lambda: urllib.error.HTTPError("http://host/x", 404, "Not Found", Message(), None),
    "CalledProcessError": lambda: subprocess.CalledProcessError(1, ["x"]),
    "KeywordOnly": lambda: KeywordOnly(code=7),
    "Speechless": Speechless,
    "HoldsLock": lambda: HoldsLock("locked"),
    "Local": make_local_error,
    "RaisesOnLoad": lambda: RaisesOnLoad("boom"),
    "Detailed": lambda: Detailed("it broke", {"why": [1, 2]}),
    "KeyError": lambda: KeyError("missing\nkey"),
    "chained": make_chained,
    "StopIteration": lambda: StopIteration(3),
    "SystemExit": lambda: SystemExit("x"),
    "KeyboardInterrupt": KeyboardInterrupt,
}


class Raising:
    """Item 7 raises the error of that name."""

    def __init__(self, name):
        self.name = name

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 7:
            raise ERRORS[self.name]()
        return index


ENDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "_exit": lambda: os._exit(3),
    "abort": os.abort,
}


class Dying:
    """Item `where` ends its process, the first `times` times (a folder keeps count); every time, if 0."""

    def __init__(self, folder, how, where=7, times=0, n=12):
        self.folder = str(folder)
        self.how = how
        self.where = where
        self.times = times
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index == self.where:
            count = len(os.listdir(self.folder))
            if not self.times or count < self.times:
                Path(self.folder, f"{count}-{os.getpid()}").write_text("x")
                ENDS[self.how]()
        return index


class TellsProcess:
    """An item is the process that made it."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return os.getpid()


class Stuck:
    """Item `where` holds the GIL, in C, for ever."""

    def __init__(self, where=5, n=12, together=False):
        self.where = where
        self.n = n
        self.together = together
        if together:
            self.__getitems__ = self.get_many

    def __len__(self):
        return self.n

    def get_many(self, indices):
        return [self[index] for index in indices]

    def __getitem__(self, index):
        if index == self.where:
            hold_gil()
        return index


def hold_gil():
    """Never let go of the GIL: a regular expression that backtracks for ever does not check for anything."""
    import re

    re.match(r"(a*)*b", "a" * 40)


class Gated:
    """Items leave a file with their name and epoch; while there is no gate, they wait for it."""

    def __init__(self, gate, folder, n=64):
        self.gate = str(gate)
        self.folder = str(folder)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        opened = os.path.exists(self.gate)
        Path(self.folder, str(index)).write_text("1" if opened else "0")
        for _ in range(3000):
            if os.path.exists(self.gate):
                break
            time.sleep(0.01)
        return index


class LateItem(Numbers):
    """Item 3 takes longer than any limit of these tests; the others no time."""

    def __getitem__(self, index):
        if index == 3:
            threading.Event().wait(60)
        return super().__getitem__(index)


class Rows:
    """Items that are rows of one large array, with where that array lies."""

    def __init__(self, rows=1000, width=1000):
        self.array = np.arange(rows * width, dtype=np.float64).reshape(rows, width)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        return self.array[index].sum(), os.getpid()


class Large:
    """Items of a batch that is `mega` million bytes large."""

    def __init__(self, n=512, size=150_000):
        self.n = n
        self.size = size

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return np.full(self.size, index, np.float32)


def add_noise(item, context):
    row, index = item
    return row + context.rng.random(row.shape), index


def from_global_generators(item):
    import random

    return item[1], random.random(), np.random.rand()
