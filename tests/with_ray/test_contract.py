"""The executor of Ray keeps to the published contract."""

from __future__ import annotations

import pytest

from feedline.loader.execution.cluster import RayExecutor
from feedline.testing.executor_contract import ExecutorContract


@pytest.mark.usefixtures("local_ray")
class TestRay(ExecutorContract):
    def make_executor(self, load):
        return RayExecutor(load, 1)
