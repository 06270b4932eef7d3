"""Where jobs are mapped over workers: in the calling process, or in processes of their own.

Note [worker processes]
    Each worker has a pipe of its own, and no other end of anybody else's: when the parent is gone, however it went, the
    worker sees that at its next block, and ends. Workers are started by `spawn`, which inherits nothing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from feedline.convert.protocol import Source
from feedline.convert.work import Job, Written, write_job
from feedline.errors import WorkerDied, WorkerError

__all__ = ["run_jobs"]

#: Seconds that a worker gets to end, once it was told to.
END_SECONDS = 5.0


def run_jobs(
    source: Source, jobs: Sequence[Job], workers: int, advance: Callable[[int], None] | None = None
) -> Iterator[Written]:
    """Run `write_job(source, job)` for all jobs on `workers` workers, and yield what was written, as it is done.

    Args:
        source: sent to each worker once.
        jobs: in any order; they do not depend on each other.
        workers: processes; with 1, the jobs run in the calling one.
        advance: called with a number of rows whenever so many more are done.

    Raises:
        WorkerDied: a worker ended in the middle of a job.
        WorkerError: what a worker raised can't be sent. Everything else that a job raises is raised as it is.

    An error, or an iterator that is closed early, ends all workers.
    """
    if min(workers, len(jobs)) <= 1:
        return (write_job(source, job, advance) for job in jobs)
    return _run_in_processes(source, jobs, min(workers, len(jobs)), advance)


def _run_in_processes(
    source: Source, jobs: Sequence[Job], workers: int, advance: Callable[[int], None] | None
) -> Iterator[Written]:
    waiting = list(reversed(jobs))
    crew: dict[Any, _Worker] = {}
    try:
        for number in range(workers):
            worker = _Worker(source, number)
            crew[worker.connection] = worker
            worker.give(waiting.pop())
        while crew:
            for connection in multiprocessing.connection.wait(list(crew)):
                worker = crew[connection]
                kind, value = worker.receive()
                if kind == "rows":
                    if advance is not None:
                        advance(value)
                    continue
                if kind == "error":
                    raise value
                yield value
                if waiting:
                    worker.give(waiting.pop())
                else:
                    del crew[connection]
                    worker.end()
    finally:
        for worker in crew.values():
            worker.end(at_once=True)


class _Worker:
    """A process that does one job at a time, seen from the parent."""

    def __init__(self, source: Source, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(source, theirs), name=f"feedline-convert-{number}", daemon=True
        )
        try:
            with _without_interrupts():
                self._process.start()
        except BaseException:
            theirs.close()
            if self._process.pid is not None:
                self.end(at_once=True)
            raise
        # Without our copy of its end, the pipe breaks when the worker ends.
        theirs.close()
        self._job: Job | None = None

    def give(self, job: Job) -> None:
        self._job = job
        # A worker that has ended is found by `receive`.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(job)

    def receive(self) -> tuple[str, Any]:
        try:
            kind, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        return kind, value

    def _death(self) -> WorkerDied:
        self._process.join(END_SECONDS)
        code = self._process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"signal {signal.Signals(-code).name}"
        part = "nothing yet" if self._job is None else f"{self._job.part.file} (part {self._job.part.number})"
        return WorkerDied(
            f"a conversion worker ended with {how}, while it had {part}; a script that converts with workers needs the "
            f"guard `if __name__ == '__main__':`",
            exit_code=code,
        )

    def end(self, at_once: bool = False) -> None:
        self.connection.close()
        if at_once:
            self._process.terminate()
        self._process.join(END_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back while a process starts: it inherits that, and so is not interrupted before it can ignore it.

    Nor is this process, half way through telling the new one what it is to be, which would end it with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # Python's own helper starts with the first process, and lets Ctrl-C through again after it.
    resource_tracker.ensure_running()
    with _interrupts_later():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Let the handler of Ctrl-C wait: the mask is this thread's alone, and libraries have threads that take signals."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        handler(signal.SIGINT, came[0])


def _work(source: Source, connection: Any) -> None:
    """Do the jobs that come through `connection`, until it is closed: the life of a worker process."""
    # Ctrl-C goes to the whole group of processes; the parent is the one that answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            job = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            result: tuple[str, Any] = (
                "done",
                write_job(source, job, lambda rows: connection.send(("rows", rows))),
            )
        except (BrokenPipeError, ConnectionResetError):
            return
        except BaseException as error:
            result = ("error", _portable(error))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(result)


def _portable(error: BaseException) -> BaseException:
    """Return `error`, or a `WorkerError` that tells of it, if it can't be sent or is none that may pass through."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            # Whatever its __reduce__ does wrong: it is told as text.
            pass
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return WorkerError(f"a conversion worker raised {name}: {error}", type_name=name, traceback_text=text)
