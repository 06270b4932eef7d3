"""Objects of S3, Google Cloud Storage, Azure, HTTP, local and in-memory stores, fetched through obstore."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from feedline.datasets.fetching.limits import DEFAULT_MAX_BYTES, check_positive
from feedline.datasets.fetching.locations import Locations
from feedline.datasets.fetching.retry import Retry
from feedline.datasets.fetching.store_errors import Fault
from feedline.datasets.fetching.store_locations import ObjectRange, StoreLocation, StoreLocationRules
from feedline.datasets.fetching.store_reader import StoreReader
from feedline.datasets.fetching.stores import (
    DEFAULT_RETRY,
    DEFAULT_TIMEOUT,
    StoreSource,
    service_of,
    store_place,
    store_source,
)
from feedline.datasets.kind import Named
from feedline.datasets.protocol import AsyncDataset
from feedline.errors import FetchError

__all__ = ["ObjectStoreDataset"]


class ObjectStoreDataset(Named, AsyncDataset):
    """An item is the `bytes` of one object, or of one range of an object; as they are stored, never decoded.

    Args:
        store: a URL, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `http://host/path` or
            `file:///folder`, whose prefix is percent-decoded; or a store object of `obstore.store`.
        keys: a list of keys. A key is an opaque string, relative to the store's prefix: nothing in it is encoded,
            decoded or tidied.
        ranges: instead of `keys`, a list of `(key, start, end)`: the bytes from `start` to `end`, `end` not included.
        max_bytes: the largest item. A larger object is not read at all.
        retry: for a store made from a URL: retries of failed requests. The store's client decides what is retried:
            connection errors, time-outs, 408, 429, 5xx, and bodies cut short, which it takes up where they ended if the
            ETag is still the same. A body that can't be taken up is asked for anew, as often as a request would be
            tried again.
        timeout: for a store made from a URL: seconds per request; `None` for no limit.
        options: for a store made from a URL: what `obstore.store.from_url` takes (`region=`, `access_key_id=`,
            `skip_signature=True`, `endpoint=`, `client_options=`, ...).

    A store object keeps the retries, time limits and credentials that it was made with. Redirects are followed by
    obstore, which drops `Authorization` at another host, but neither the session token of temporary credentials nor
    headers of your own from `client_options`.

    Raises:
        TypeError: a value of a wrong type; neither or both of `keys` and `ranges`.
        OptionError: a URL or an option that obstore refuses; keys that a store's client would tidy or can't name (empty,
            `//`, `.` or `..` as a segment, `/` at either end, control characters; a backslash on Azure), so that never
            another object is fetched; ranges that end before they start or are longer than `max_bytes`.
        MissingExtraError: obstore is not installed.

    Awaiting an item raises `IndexError` for an index out of range, and `FetchError` for all else, with `kind`
    `"not_found"`, `"denied"`, `"too_large"`, `"timeout"`, `"connection"`, `"truncated"`, `"status"`, `"redirect"`,
    `"location"` (a range past the object's end, or what a function or template gave) or `"store"` (all else). Its
    `attempts` counts requests as far as the client tells: not those that take up a body where it ended.

    Concurrency: any number of items at once, on any event loops; nothing belongs to a loop. After `fork` it works only
    in a child whose parent had not read from any store before; else a `RuntimeError` says so. It pickles as the URL
    with its options, *credentials included*, and its keys; with a store object as that does: an in-memory store can't.

    Example:
        >>> import asyncio, obstore
        >>> store = obstore.store.MemoryStore()
        >>> _ = obstore.put(store, "train/0.txt", b"hello")
        >>> dataset = ObjectStoreDataset(store, ["train/0.txt"])
        >>> asyncio.run(dataset[0])
        b'hello'
    """

    def __init__(
        self,
        store: Any,
        keys: Iterable[str] | None = None,
        *,
        ranges: Iterable[tuple[str, int, int]] | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retry: Retry = DEFAULT_RETRY,
        timeout: float | None = DEFAULT_TIMEOUT,
        **options: Any,
    ) -> None:
        if (keys is None) == (ranges is None):
            raise TypeError("give either keys or ranges=[(key, start, end), ...], and not both")
        self._open(store_source(store, retry, timeout, options), check_positive("max_bytes", max_bytes))
        self._are_ranges = ranges is not None
        if ranges is None:
            self._locations = Locations.listed(self._rules("key"), keys, "keys")
        else:
            self._locations = Locations.listed(self._rules("range"), ranges, "ranges")

    @classmethod
    def from_function(
        cls,
        store: Any,
        function: Callable[[int], str | tuple[str, int, int]],
        length: int,
        **options: Any,
    ) -> ObjectStoreDataset:
        """Make a dataset whose item `i` lies where `function(i)` says, a key or a `(key, start, end)`.

        The function is called when an item is fetched, on the event loop; what it raises is the error of that item, and
        a key or range that can't be is a `FetchError` (`"location"`) of that item. `options` are those of the class.
        """
        dataset = cls(store, [], **options)
        dataset._locations = Locations.from_function(dataset._rules("either"), function, length)
        return dataset

    @classmethod
    def from_template(
        cls,
        store: Any,
        template: str,
        columns: Mapping[str, Any] | None = None,
        *,
        length: int | None = None,
        **options: Any,
    ) -> ObjectStoreDataset:
        """Make a dataset whose keys are a template filled from columns, such as `"{split}/{index:06}.jpg"`.

        Args:
            store: as for the class.
            template: text with `{index}` and the names of columns in braces; `{{` and `}}` for braces.
            columns: a sequence of ints or strings (`Column`) for each name, all of one length; strings may have no `/`.
            length: number of items, if only `{index}` is used.
            options: those of the class.

        Raises:
            TypeError, OptionError: as the class does, and for the template; with the byte offset or the column.
        """
        dataset = cls(store, [], **options)
        dataset._locations = Locations.from_template(dataset._rules("key"), template, columns, length)
        return dataset

    _locations: Locations[StoreLocation]
    _are_ranges: bool

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._locations)

    def location(self, index: Any) -> str:
        """Return the key of item `index` as errors show it; nothing is fetched."""
        return self._locations.show(self._locations.locate(index)[1])

    async def __getitem__(self, index: Any) -> bytes:
        """Return the bytes of item `index`; negative indices count from the end.

        Raises:
            IndexError: there is no such item.
            FetchError: the bytes did not come.
        """
        place, location = self._locations.locate(index)
        restarts, attempts = 0, 0
        while True:
            result = await self._reader.read(location)
            if isinstance(result, bytes):
                return result
            attempts += result.attempts
            if not result.passing or restarts >= self._source.restarts:
                raise self._error(place, location, result, attempts)
            await asyncio.sleep(self._source.retry.wait(restarts))
            restarts += 1

    @property
    def __getitems__(self) -> Callable[[Sequence[Any]], Awaitable[list[bytes]]] | None:
        """For a list of ranges: `await dataset.__getitems__(indices)` gives several items; `None` for whole objects.

        Ranges of one object are fetched together, those that touch by one request; objects one after another.
        """
        return self._fetch_ranges if self._are_ranges else None

    async def _fetch_ranges(self, indices: Sequence[Any]) -> list[bytes]:
        objects: dict[str, list[tuple[int, ObjectRange]]] = {}
        for position, index in enumerate(indices):
            wanted = self._locations.locate(index)[1]
            if isinstance(wanted, ObjectRange) and wanted.end > wanted.start:
                objects.setdefault(wanted.key, []).append((position, wanted))
        items = [b""] * len(indices)
        for ranges in objects.values():
            together = await self._reader.read_together([wanted for _, wanted in ranges])
            for place, (position, _) in enumerate(ranges):
                # One that is wrong fails all of its object; each on its own tells which, and has tries of its own.
                items[position] = await self[indices[position]] if together is None else together[place]
        return items

    async def aclose(self) -> None:
        """Do nothing: the client's connections belong to no event loop, and end with the store."""

    def _open(self, source: StoreSource, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes
        store = source.open()
        self._service = service_of(store)
        self._place = store_place(store)
        # The client's limit per request covers only stores that send requests.
        limit = source.timeout if self._service in ("local", "memory") else None
        self._reader = StoreReader(store, self._max_bytes, limit)

    def _rules(self, takes: Literal["key", "range", "either"]) -> StoreLocationRules:
        # A range that a function gives is measured when it is fetched, so that its error says "too_large".
        max_bytes = self._max_bytes if takes == "range" else None
        return StoreLocationRules(self._place, self._service, takes, max_bytes)

    def _error(self, index: int, location: StoreLocation, fault: Fault, attempts: int) -> FetchError:
        shown = self._locations.show(location)
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return FetchError(
            f"item {index}: {shown}: {fault.reason} ({tries})",
            kind=fault.kind,
            index=index,
            location=shown,
            attempts=attempts,
            status=fault.status,
        )

    def __repr__(self) -> str:
        return f"ObjectStoreDataset({self._place or '/'!r}, {len(self)} items)"

    def __getstate__(self) -> dict[str, Any]:
        return {
            "source": self._source,
            "max_bytes": self._max_bytes,
            "locations": self._locations,
            "are_ranges": self._are_ranges,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._open(state["source"], state["max_bytes"])
        self._locations, self._are_ranges = state["locations"], state["are_ranges"]
