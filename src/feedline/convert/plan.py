"""Which rows make which part of the result. Pure: the same for every number of workers, and for every run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from feedline.errors import OptionError
from feedline.ndf.layout import HEADER_BYTES, NdfHeader

__all__ = ["SINGLE_FILE", "Part", "Plan", "make_plan"]

#: The name, while it is being made, of a result that is one file.
SINGLE_FILE = "rows.ndf"
#: About so many bytes has a shard, unless told otherwise.
SHARD_BYTES = 256 * 2**20
#: About so many bytes of a single file are one part: what is written by one worker, and what a resume keeps or not.
RANGE_BYTES = 256 * 2**20
_MAX_SHARDS = 10_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """What one job writes: a whole shard, or a range of rows of a single file.

    Attributes:
        number: counted from 0.
        start, stop: its rows.
        file: name of the file.
        header: of the shard; `None` for a range, whose file has its header written last.
        offset: where in the file its bytes begin.
        size_bytes: how many it has.
    """

    number: int
    start: int
    stop: int
    file: str
    header: NdfHeader | None
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All parts, in order.

    Attributes:
        header: sizes of all rows together.
        parts: the parts; together they are all rows.
        is_single: whether they make one file.
    """

    header: NdfHeader
    parts: tuple[Part, ...]
    is_single: bool

    def digest(self, identity: dict[str, Any]) -> str:
        """Return what tells this plan for the source `identity` from every other, as 64 hexadecimal digits."""
        told = {
            "version": 1,
            "source": identity,
            "sizes": [self.header.n, self.header.d, self.header.l],
            "parts": [[part.file, part.start, part.stop, part.offset] for part in self.parts],
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def make_plan(
    header: NdfHeader,
    *,
    is_single: bool,
    num_shards: int | None = None,
    rows_per_shard: int | None = None,
) -> Plan:
    """Return the plan of a result with the sizes `header`, of which n is at least 1.

    Args:
        header: rows, features and labels.
        is_single: one file, or a folder of shards.
        num_shards: so many shards, whose sizes differ by one row at most: shard `s` of `N` has the rows from `s*n//N`.
        rows_per_shard: so many rows in each shard but the last. Without either, shards have about 256 MiB.

    Raises:
        OptionError: there are fewer rows than shards, or far too many shards.

    >>> [(p.file, p.stop) for p in make_plan(NdfHeader(10, 2, 1), is_single=False, num_shards=3).parts]
    [('shard-00000.ndf', 3), ('shard-00001.ndf', 6), ('shard-00002.ndf', 10)]
    """
    if is_single:
        edges = _edges_by_rows(header.n, max(1, RANGE_BYTES // header.row_bytes))
        parts = [
            Part(k, a, b, SINGLE_FILE, None, HEADER_BYTES + a * header.row_bytes, (b - a) * header.row_bytes)
            for k, (a, b) in enumerate(pairwise(edges))
        ]
        return Plan(header, tuple(parts), True)
    if num_shards is not None:
        if num_shards > header.n:
            raise OptionError(
                f"{num_shards} shards can't be made of {header.n} rows: each must have one at least"
            )
        edges = [shard * header.n // num_shards for shard in range(num_shards + 1)]
    else:
        edges = _edges_by_rows(header.n, rows_per_shard or max(1, SHARD_BYTES // header.row_bytes))
    count = len(edges) - 1
    digits = max(5, len(str(count - 1)))
    shards = []
    for number, (start, stop) in enumerate(pairwise(edges)):
        own = NdfHeader(stop - start, header.d, header.l)
        shards.append(Part(number, start, stop, f"shard-{number:0{digits}}.ndf", own, 0, own.file_bytes))
    return Plan(header, tuple(shards), False)


def _edges_by_rows(n: int, rows: int) -> list[int]:
    if -(-n // rows) > _MAX_SHARDS:
        raise OptionError(
            f"{n} rows in shards of {rows} would make {-(-n // rows)} files; {_MAX_SHARDS} are the most"
        )
    return [*range(0, n, rows), n]
