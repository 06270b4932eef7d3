"""Every executor keeps to the published contract."""

from __future__ import annotations

from feedline import AsyncDataset
from feedline.loader.execution.event_loop import EventLoopExecutor
from feedline.loader.execution.serial import SerialExecutor
from feedline.loader.execution.threads import ThreadsExecutor
from feedline.testing.executor_contract import Doubled, ExecutorContract


class AsyncDoubled(AsyncDataset):
    def __len__(self):
        return 100

    async def __getitem__(self, index):
        return Doubled()[index]


class TestSerial(ExecutorContract):
    def make_executor(self, load):
        return SerialExecutor(load)


class TestOneThread(ExecutorContract):
    def make_executor(self, load):
        return ThreadsExecutor(load, 1)


class TestFourThreads(ExecutorContract):
    def make_executor(self, load):
        return ThreadsExecutor(load, 4)


class TestEventLoop(ExecutorContract):
    def make_dataset(self):
        return AsyncDoubled()

    def make_executor(self, load):
        return EventLoopExecutor(load, 2)
