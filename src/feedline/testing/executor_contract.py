# ruff: noqa: D102 - the names of the checks are their docstrings.
"""What every executor keeps to, as a class to subclass: whatever runs batches, somewhere, passes these checks.

```python
class TestMyExecutor(ExecutorContract):
    def make_executor(self, load):
        return MyExecutor(load)
```

pytest then runs every check. Whether all executors give the same batches is a matter of comparing them, not of this.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from feedline.loader.batch import BatchLoader, Outcome, Task, collate_or_default
from feedline.loader.execution.protocol import Session
from feedline.loader.fetch import ItemLoader
from feedline.loader.ordering import Cursor

__all__ = ["Doubled", "ExecutorContract"]

#: Seconds after which a check that waits has failed.
DEADLINE = 60.0


class Doubled:
    """The dataset of the checks: item `i` is `2 * i`; item 13 fails, item 14 would end the program."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: Any) -> int:
        if index == 13:
            raise LookupError("unlucky", index)
        if index == 14:
            raise SystemExit("not obeyed")
        return 2 * int(index)


class ExecutorContract:
    """The checks."""

    def make_dataset(self) -> Any:
        """Return a dataset whose items are those of `Doubled`."""
        return Doubled()

    def make_executor(self, load: BatchLoader) -> Any:
        """Return a new executor that runs `load`."""
        raise NotImplementedError(f"{type(self).__name__} must define make_executor(...)")

    def executor(self) -> Any:
        """Return the executor under test."""
        items = ItemLoader(self.make_dataset(), None, seed=0)
        return self.make_executor(
            BatchLoader(items, collate_or_default(None, False), single_items=False, whole=False)
        )

    def outcome(self, session: Session, cursor: Cursor) -> Outcome:
        """Wait for the next outcome, and take it."""
        end = time.monotonic() + DEADLINE
        while (outcome := session.outcomes.peek(cursor)) is None:
            assert time.monotonic() < end, f"no outcome for {cursor} within {DEADLINE} s"
            session.wait(1.0)
        return outcome

    def test_nothing_is_started_before_the_first_task(self) -> None:
        before = set(threading.enumerate())
        executor = self.executor()
        session = executor.session(True, {})
        assert set(threading.enumerate()) == before
        session.cancel()
        executor.close()

    def test_every_task_has_its_outcome_in_order(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        for number in range(10):
            session.submit(Task(number, 0, np.arange(number, number + 3)))
        for number in range(10):
            outcome = self.outcome(session, Cursor(number))
            assert outcome.number == number
            assert outcome.error is None
            assert outcome.value.tolist() == [2 * number, 2 * number + 2, 2 * number + 4]
            assert list(outcome.indices) == [number, number + 1, number + 2]
        executor.close()

    def test_out_of_order_every_outcome_comes_once(self) -> None:
        executor = self.executor()
        session = executor.session(False, {})
        for number in range(10):
            session.submit(Task(number, 0, np.arange(number, number + 2)))
        cursor, seen = Cursor(0), []
        for _ in range(10):
            outcome = self.outcome(session, cursor)
            seen.append(outcome.number)
            cursor = cursor.after(outcome.number)
        assert sorted(seen) == list(range(10))
        assert session.outcomes.peek(cursor) is None
        executor.close()

    def test_a_group_of_batches_has_an_outcome_for_each(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        session.submit(Task(0, 0, np.arange(10), count=4, batch_size=3))
        values = [self.outcome(session, Cursor(number)).value.tolist() for number in range(4)]
        assert values == [[0, 2, 4], [6, 8, 10], [12, 14, 16], [18]]
        executor.close()

    def test_an_error_is_an_outcome_of_its_batch_alone(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        for number in range(8):
            session.submit(Task(number, 0, np.arange(2 * number + 1, 2 * number + 3)))
        outcomes = [self.outcome(session, Cursor(number)) for number in range(8)]
        assert [outcome.error is not None for outcome in outcomes] == [False] * 6 + [True, False]
        error = outcomes[6].error
        assert type(error) is LookupError
        assert error.args == ("unlucky", 13)
        (failure,) = outcomes[6].failures
        assert (failure.index, failure.epoch, failure.batch) == (13, 0, 6)
        executor.close()

    def test_user_code_that_would_exit_is_an_error_of_its_batch(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        for number, indices in enumerate(([14], [1])):
            session.submit(Task(number, 0, indices))
        assert "SystemExit" in str(self.outcome(session, Cursor(0)).error)
        assert self.outcome(session, Cursor(1)).value.tolist() == [2]
        executor.close()

    def test_a_task_that_was_wrong_before_it_was_loaded_keeps_its_error(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        session.submit(Task(0, 0, (), error=TypeError("no index")))
        assert str(self.outcome(session, Cursor(0)).error) == "no index"
        executor.close()

    def test_sessions_are_independent(self) -> None:
        executor = self.executor()
        one, two = executor.session(True, {}), executor.session(True, {})
        for number in range(4):
            one.submit(Task(number, 0, [number]))
            two.submit(Task(number, 0, [50 + number]))
        one.cancel()
        assert [self.outcome(two, Cursor(n)).value.tolist() for n in range(4)] == [[100], [102], [104], [106]]
        executor.close()

    def test_a_session_after_another_works(self) -> None:
        executor = self.executor()
        for _ in range(3):
            session = executor.session(True, {})
            session.submit(Task(0, 0, [5]))
            session.submit(Task(1, 0, [6]))
            assert self.outcome(session, Cursor(0)).value.tolist() == [10]
            session.cancel()
        executor.close()

    def test_cancelling_and_closing_are_idempotent(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        session.submit(Task(0, 0, [1]))
        for _ in range(2):
            session.cancel()
        for _ in range(2):
            executor.close()
        session.cancel()

    def test_a_notice_ends_a_wait(self) -> None:
        executor = self.executor()
        session = executor.session(True, {})
        session.submit(Task(0, 0, [1]))
        self.outcome(session, Cursor(0))
        session.submit(Task(1, 0, [2]))
        session.notify()
        session.wait(DEADLINE)
        assert self.outcome(session, Cursor(1)).value.tolist() == [4]
        executor.close()
