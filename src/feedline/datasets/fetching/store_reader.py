"""Reads whole objects and ranges through obstore: one try of one item, told as bytes or as what went wrong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from feedline.datasets.fetching.store_errors import Fault, error_document, read_fault
from feedline.datasets.fetching.store_locations import ObjectRange, StoreLocation
from feedline.datasets.fetching.stores import obstore_module

__all__ = ["StoreReader"]

# The process in which obstore's threads were started. They do not live on in a forked child, where every request would
# wait for ever; there is no way to start them again.
_started_in: int | None = None


def _check_process() -> None:
    global _started_in
    process = os.getpid()
    if _started_in is None:
        _started_in = process
    elif _started_in != process:
        raise RuntimeError(
            "object stores can't be read in this process: it was forked after its parent had read one, and obstore's "
            "threads do not live on in the child. Start processes by 'spawn' or 'forkserver', or fork before the first read"
        )


class StoreReader:
    """Reads items of one store.

    Args:
        store: a store of obstore.
        max_bytes: the largest item.
        time_limit: seconds per try, for stores that have no limit of their own; `None` for the others.

    Concurrency: any number of reads at once, on any event loop: the client's connections belong to threads of its own.
    A read that is cancelled drops its request.
    """

    def __init__(self, store: Any, max_bytes: int, time_limit: float | None) -> None:
        obstore = obstore_module()
        self._store = store
        self._max_bytes = max_bytes
        self._time_limit = time_limit
        self._get, self._head = obstore.get_async, obstore.head_async
        self._get_range, self._get_ranges = obstore.get_range_async, obstore.get_ranges_async
        # Everything that the client raises for a request; other exceptions are mistakes, and come out as they are.
        self._errors = (obstore.exceptions.BaseError, OSError, ValueError)

    async def read(self, location: StoreLocation) -> bytes | Fault:
        """Return the bytes of one item, or why they did not come."""
        if isinstance(location, ObjectRange):
            if location.end == location.start:
                return b""
            if location.end - location.start > self._max_bytes:
                return Fault("too_large", self._too_large(location.end - location.start), attempts=0)
        _check_process()
        if self._time_limit is None:
            return await self._read(location)
        try:
            async with asyncio.timeout(self._time_limit):
                return await self._read(location)
        except TimeoutError:
            return Fault("timeout", f"no whole answer in {self._time_limit:g} s")

    async def _read(self, location: StoreLocation) -> bytes | Fault:
        if isinstance(location, ObjectRange):
            return await self._read_range(location)
        return await self._read_object(location)

    async def read_together(self, ranges: Sequence[ObjectRange]) -> list[bytes] | None:
        """Return ranges of one object, none of them empty; `None` if anything is wrong with any of them.

        Ranges that touch or overlap come by one request; at most 10 requests are made at once.
        """
        _check_process()
        starts, ends = [wanted.start for wanted in ranges], [wanted.end for wanted in ranges]
        try:
            async with asyncio.timeout(self._time_limit):
                # With gaps bridged, the client would read bytes that nobody asked for, up to a MiB for each range.
                parts = await self._get_ranges(
                    self._store, ranges[0].key, starts=starts, ends=ends, coalesce=0
                )
        except self._errors:
            return None
        items = [bytes(part) for part in parts]
        lengths = [wanted.end - wanted.start for wanted in ranges]
        return items if [len(item) for item in items] == lengths else None

    async def _read_object(self, key: str) -> bytes | Fault:
        try:
            result = await self._get(self._store, key)
        except self._errors as error:
            return read_fault(error, in_body=False)
        meta = result.meta
        size = meta["size"]
        if size > self._max_bytes:
            # Dropping the body closes the connection. It is taken out of the result first: the client's threads may hold
            # that a while longer.
            result.stream()
            return Fault("too_large", self._too_large(size))
        try:
            data = bytes(await result.bytes_async())
        except self._errors as error:
            return read_fault(error, in_body=True)
        if len(data) != size:
            return Fault("truncated", f"{len(data)} of {size} bytes came", passing=True)
        if meta["e_tag"] is None and (code := error_document(data)) is not None:
            return Fault("store", f"an error document ({code}) came in the object's place", passing=True)
        return data

    async def _read_range(self, wanted: ObjectRange) -> bytes | Fault:
        # One call instead of two: a third less work per item than the way of whole objects.
        length = wanted.end - wanted.start
        try:
            data = await self._get_range(self._store, wanted.key, start=wanted.start, end=wanted.end)
        except self._errors as error:
            fault = read_fault(error, in_body=False)
            return await self._past_the_end(wanted, fault) if fault.kind == "store" else fault
        if len(data) == length:
            return bytes(data)
        if len(data) > length:
            return Fault("store", f"{len(data)} bytes came for a range of {length}")
        cut = Fault("truncated", f"{len(data)} of {length} bytes came", passing=True)
        return await self._past_the_end(wanted, cut)

    async def _past_the_end(self, wanted: ObjectRange, fault: Fault) -> Fault:
        # Clients and stores give what there is of a range that goes past the end, or an answer that can't be read; only
        # the object's size tells that from a fault on the way.
        try:
            size = (await self._head(self._store, wanted.key))["size"]
        except self._errors:
            return fault
        attempts = fault.attempts + 1
        if size >= wanted.end:
            return replace(fault, attempts=attempts)
        return Fault(
            "location", f"the range goes past the object's end: it has {size} bytes", attempts=attempts
        )

    def _too_large(self, size: int) -> str:
        return f"it has {size} bytes, more than max_bytes={self._max_bytes}"
