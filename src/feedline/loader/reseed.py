"""The global generators of Python, NumPy and torch, re-seeded for one item and put back afterwards.

For transforms of other libraries that draw from global state. Only where one item at a time is loaded in a process:
threads share these generators.
"""

from __future__ import annotations

import random
import sys
from types import TracebackType
from typing import Any

import numpy as np

from feedline.keys import derive_key, encode_index

__all__ = ["Reseeded"]


class Reseeded:
    """A context in which the three global generators depend on (seed, epoch, index) alone."""

    def __init__(self, seed: int, epoch: int, index: Any) -> None:
        self._key = derive_key("global reseed", seed, epoch, encode_index(index), size=32)

    def __enter__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()
        torch = sys.modules.get("torch")
        # A torch that is only being imported on another thread has no generator yet.
        self._torch = torch if hasattr(torch, "get_rng_state") and hasattr(torch, "manual_seed") else None
        if self._torch is not None:
            self._torch_state = self._torch.get_rng_state()
            self._torch.default_generator.manual_seed(int.from_bytes(self._key[16:24], "little") >> 1)
        random.seed(self._key)
        np.random.seed(np.frombuffer(self._key, "<u4").tolist())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        if self._torch is not None:
            self._torch.set_rng_state(self._torch_state)
