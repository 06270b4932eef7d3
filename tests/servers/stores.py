"""One interface to the stores that tests fill and read: the URL and options for it, and how an object gets into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["StoreServer"]


@dataclass
class StoreServer:
    """A store with a place of its own for one test.

    Attributes:
        name: `"s3"`, `"azure"`, `"gcs"`, `"http"`, `"local"` or `"memory"`.
        place: what messages call it.
        put: `put(key, data)` stores an object.
        url: for `obstore.store.from_url`; `None` where there is no URL.
        options: what goes with the URL.
        store: a store object, instead of a URL.
    """

    name: str
    place: str
    put: Callable[[str, bytes], None]
    url: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    store: Any = None

    @property
    def source(self) -> Any:
        """What `ObjectStoreDataset` takes first."""
        return self.url if self.store is None else self.store
