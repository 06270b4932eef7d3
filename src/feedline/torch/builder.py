"""The drop-in's options as a chain, under the names that they have everywhere."""

from __future__ import annotations

from typing import Self

from feedline.loader.builder import LoaderBuilder

__all__ = ["TorchBuilder"]


class TorchBuilder(LoaderBuilder):
    """A `LoaderBuilder` for the drop-in, whose own `timeout` is another one."""

    def timeout(self, timeout: float | None) -> Self:
        """Seconds that one item may take."""
        return self._set(item_timeout=timeout)
