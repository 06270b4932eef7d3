"""The index of a corpus: a folder of `.ndf` files that reads as one, and `index.json`, which tells what is in it.

```json
{
 "format": "ndf-shards",
 "version": 1,
 "n": 3,
 "d": 2,
 "l": 1,
 "shards": [
  {"file": "shard-00000.ndf", "rows": 2, "bytes": 76, "sha256": "..."},
  {"file": "shard-00001.ndf", "rows": 1, "bytes": 52, "sha256": "..."}
 ]
}
```

The rows of the corpus are those of its shards, one after the other, in the order of the index. Every shard is a whole
`.ndf` file with `d` features and `l` labels; `sha256` is that of the whole file, in lower-case hexadecimal. Packing and
checking are pure; `read_index` and `write_index` touch the folder.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from feedline.errors import NdfError
from feedline.ndf.layout import NdfHeader
from feedline.ndf.temporary import TemporaryFile

__all__ = [
    "INDEX_NAME",
    "PART_SUFFIX",
    "Shard",
    "ShardIndex",
    "check_header",
    "holds_index",
    "pack_index",
    "read_index",
    "unpack_index",
    "write_index",
]

INDEX_NAME = "index.json"
FORMAT = "ndf-shards"
VERSION = 1
#: What is added to a destination's name for the folder in which it is being made.
PART_SUFFIX = ".part"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_INDEX_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a corpus.

    Attributes:
        file: its name in the folder.
        rows: how many it has.
        size_bytes: of the whole file.
        sha256: of the whole file, as 64 hexadecimal digits.
    """

    file: str
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What a corpus holds.

    Attributes:
        d: features in a row.
        l: labels in a row.
        shards: the files, in order.
    """

    d: int
    l: int  # noqa: E741 - the format's own name
    shards: tuple[Shard, ...]

    @property
    def n(self) -> int:
        """Rows of all shards together."""
        return sum(shard.rows for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards together."""
        return sum(shard.size_bytes for shard in self.shards)

    def header(self, number: int) -> NdfHeader:
        """Return the header that shard `number` must have."""
        return NdfHeader(self.shards[number].rows, self.d, self.l)


def pack_index(index: ShardIndex) -> bytes:
    """Return `index` as JSON, a line for each shard; equal indices give equal bytes."""
    head = json.dumps(
        {"format": FORMAT, "version": VERSION, "n": index.n, "d": index.d, "l": index.l}, indent=1
    )
    lines = [
        json.dumps({"file": s.file, "rows": s.rows, "bytes": s.size_bytes, "sha256": s.sha256})
        for s in index.shards
    ]
    shards = ",\n  ".join(lines)
    return f'{head[:-2]},\n "shards": [\n  {shards}\n ]\n}}\n'.encode()


def unpack_index(data: bytes, path: str) -> ShardIndex:
    """Return the index in `data`, the content of the file `path`, checked in itself.

    Raises:
        NdfError: `"bad_index"`; the message tells the value found and the rule.
    """
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"it is not JSON ({error})") from None
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        found = given.get("format") if isinstance(given, dict) else given
        raise _bad(path, f"its format is {_short(found)}, not {FORMAT!r}")
    if given.get("version") != VERSION or isinstance(given["version"], bool):
        raise _bad(
            path, f"its version is {_short(given.get('version'))}; this feedline reads version {VERSION}"
        )
    n, d, labels = (_count(given, name, path, "the index") for name in ("n", "d", "l"))
    if d + labels == 0:
        raise _bad(path, "d and l are both 0: a row must hold something")
    shards = given.get("shards")
    if not isinstance(shards, list) or not shards:
        raise _bad(path, f"shards is {_short(shards)}, not a list of at least one shard")
    index = ShardIndex(d, labels, tuple(_shard(shard, place, path) for place, shard in enumerate(shards)))
    _check_sums(index, n, path)
    return index


def _shard(given: Any, place: int, path: str) -> Shard:
    where = f"shard {place}"
    if not isinstance(given, dict):
        raise _bad(path, f"{where} is {_short(given)}, not an object")
    file, sha256 = given.get("file"), given.get("sha256")
    if not isinstance(file, str) or not _is_plain_name(file):
        # An index may come from anywhere: it can't name files outside of its folder.
        raise _bad(
            path, f"{where} has the file name {_short(file)}: it must be a plain name in the same folder"
        )
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _bad(path, f"{where} has the sha256 {_short(sha256)}, which is not 64 hexadecimal digits")
    rows, size = (_count(given, name, path, where) for name in ("rows", "bytes"))
    return Shard(file, rows, size, sha256)


def _check_sums(index: ShardIndex, n: int, path: str) -> None:
    if index.n != n:
        raise _bad(path, f"it promises n={n} rows, its {len(index.shards)} shards have {index.n}")
    if len({shard.file for shard in index.shards}) < len(index.shards):
        names = [shard.file for shard in index.shards]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise _bad(path, f"it names the file {twice!r} twice")
    for place, shard in enumerate(index.shards):
        promised = index.header(place).file_bytes
        if shard.size_bytes != promised:
            raise _bad(
                path,
                f"shard {place} ({shard.file}) has {shard.size_bytes} bytes, but its {shard.rows} rows of "
                f"d={index.d} and l={index.l} make {promised}",
            )


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & set("/\\\0") and ":" not in name


def _count(given: dict[str, Any], name: str, path: str, where: str) -> int:
    value = given.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise _bad(path, f"{name} of {where} is {_short(value)}, not an int from 0 to 2**63 - 1")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bad(path: str, found: str) -> NdfError:
    return NdfError(f"{path!r} is no index of shards: {found}", kind="bad_index", path=path)


def check_header(index: ShardIndex, number: int, found: NdfHeader, path: str) -> None:
    """Raise an `NdfError` (`"changed"`) unless the shard's header is the one that the index promises."""
    promised = index.header(number)
    if found != promised:
        raise NdfError(
            f"{path!r} is not the shard that the index tells of: it has n={found.n}, d={found.d}, l={found.l}, the "
            f"index says n={promised.n}, d={promised.d}, l={promised.l}",
            kind="changed",
            path=path,
        )


def holds_index(folder: str) -> bool:
    """Tell whether `folder` is a folder with an index of shards."""
    return os.path.isfile(os.path.join(folder, INDEX_NAME))


def read_index(folder: str) -> tuple[ShardIndex, bytes]:
    """Return the index of `folder`, and its bytes.

    Raises:
        NdfError: `"bad_index"`.
        OSError: there is no such folder or no index in it; a conversion that was not finished says so.
    """
    path = os.path.join(folder, INDEX_NAME)
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_INDEX_BYTES + 1)
    except NotADirectoryError:
        raise NotADirectoryError(
            f"{folder!r} is a file; a folder of shards with an {INDEX_NAME} is needed"
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(_why_missing(folder)) from None
    if len(data) > _MAX_INDEX_BYTES:
        raise _bad(path, f"it is larger than {_MAX_INDEX_BYTES} bytes")
    return unpack_index(data, path), data


def _why_missing(folder: str) -> str:
    what = f"has no {INDEX_NAME}, so it is no folder of shards" if os.path.isdir(folder) else "does not exist"
    more = ""
    if os.path.isdir(folder + PART_SUFFIX):
        more = f"; its conversion was not finished, run the same 'feedline convert' again ({folder + PART_SUFFIX!r})"
    return f"{folder!r} {what}{more}"


def write_index(folder: str, index: ShardIndex) -> None:
    """Write the index of `folder`, whole or not at all.

    Raises:
        OSError: it can't be written.
    """
    file = TemporaryFile(os.path.join(folder, INDEX_NAME))
    try:
        assert file.descriptor is not None
        with open(file.descriptor, "wb", closefd=False) as stream:
            stream.write(pack_index(index))
        os.fsync(file.descriptor)
        file.keep()
    except BaseException:
        file.discard()
        raise
