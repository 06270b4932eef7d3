"""Tests of this folder share one Ray, and the first of them has to wait for it."""

from __future__ import annotations

import os

import pytest

from ray_session import local_ray

__all__ = ["local_ray"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(os.path.dirname(__file__)):
            item.add_marker(pytest.mark.timeout(300))
