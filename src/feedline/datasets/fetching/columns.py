"""The values that a template is filled with: one column of ints or strings for each placeholder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

__all__ = ["Column"]


class Column:
    """One column of a template: a sequence of ints, or a sequence of strings.

    Args:
        values: a `list`, `tuple` or `range`; a NumPy array of shape `(n,)` of integers or strings (`U` or
            `StringDType`; an object array of `str` too); a pyarrow array or chunked array of integers or strings
            (dictionary-encoded ones too), or any object that exports one by the Arrow C interface.

    NumPy and Arrow arrays are held by reference: no Python object is made per value, and changing the array changes
    the column. Other sequences are copied into a tuple.

    Attributes:
        kind: `"int"` or `"str"`.

    Raises:
        TypeError: values that are neither ints nor strings (bools, floats, bytes and missing values are not), a mix of
            both, or a bare `str`; the message has the position.

    Concurrency: immutable; any thread may read. Pickles with its values.

    Example:
        >>> column = Column(["cat", "dog"])
        >>> column.kind, len(column), column[1]
        ('str', 2, 'dog')
    """

    __slots__ = ("_arrow", "_values", "kind")

    kind: Literal["int", "str"]

    def __init__(self, values: Any) -> None:
        if isinstance(values, Column):
            self._values, self._arrow, self.kind = values._values, values._arrow, values.kind
            return
        if isinstance(values, (str, bytes)):
            raise TypeError(
                f"a column is a sequence of ints or strings, not one {type(values).__name__}: write [{values!r}]"
            )
        arrow = _as_arrow(values)
        self._arrow = arrow is not None
        if arrow is not None:
            self._values, self.kind = arrow, _arrow_kind(arrow)
        elif isinstance(values, np.ndarray):
            self._values, self.kind = values, _numpy_kind(values)
        elif isinstance(values, range):
            self._values, self.kind = values, "int"
        elif isinstance(values, Iterable) and not isinstance(values, (dict, set, frozenset)):
            self._values = tuple(values)
            self.kind = _sequence_kind(self._values)
        else:
            raise TypeError(f"a column is a sequence of ints or strings, not a {type(values).__name__}")

    _values: Any
    _arrow: bool

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __getitem__(self, index: int) -> int | str:
        """Return the value `index` (0 to `len - 1`) as a plain `int` or `str`."""
        value = self._values[index]
        if self._arrow:
            value = value.as_py()
        return int(value) if self.kind == "int" else str(value)

    def __getstate__(self) -> dict[str, Any]:
        values = self._values
        if self._arrow:
            # pyarrow pickles the whole buffer behind a slice; `take` makes an array of just these values.
            values = values.take(np.arange(len(values)))
        return {"values": values, "arrow": self._arrow, "kind": self.kind}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._values, self._arrow, self.kind = state["values"], state["arrow"], state["kind"]

    def __repr__(self) -> str:
        return f"Column({len(self)} values of {self.kind})"


def _sequence_kind(values: Sequence[Any]) -> Literal["int", "str"]:
    first: Literal["int", "str"] = "str" if len(values) and isinstance(values[0], str) else "int"
    for position, value in enumerate(values):
        good = isinstance(value, str) if first == "str" else isinstance(value, (int, np.integer))
        if not good or isinstance(value, bool):
            raise TypeError(
                f"a column is all ints or all strings; position {position} has a {type(value).__name__}: {value!r}"
            )
    return first


def _numpy_kind(values: np.ndarray[Any, Any]) -> Literal["int", "str"]:
    if values.ndim != 1:
        raise TypeError(f"a column has one axis, not an array of shape {values.shape}")
    if values.dtype.kind in "iu":
        return "int"
    if values.dtype.kind == "U":
        return "str"
    if values.dtype.kind == "T":
        return "str" if len(values) == 0 else _sequence_kind(values)  # type: ignore[arg-type]
    if values.dtype.kind == "O":
        return _sequence_kind(values)  # type: ignore[arg-type]
    advice = "; convert bytes with .astype(str)" if values.dtype.kind == "S" else ""
    raise TypeError(f"a column is of ints or strings, not of dtype {values.dtype}{advice}")


def _as_arrow(values: Any) -> Any:
    """Return `values` as a pyarrow array if they are one, or export one; else `None`. Never imports pyarrow for others."""
    if isinstance(values, np.ndarray):
        return None
    loaded = sys.modules.get("pyarrow")
    if loaded is not None and isinstance(values, (loaded.Array, loaded.ChunkedArray)):
        return values
    if not hasattr(values, "__arrow_c_stream__") and not hasattr(values, "__arrow_c_array__"):
        return None
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None  # it may be a sequence all the same
    return pyarrow.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pyarrow.array(values)


def _arrow_kind(values: Any) -> Literal["int", "str"]:
    import pyarrow.types as types  # type: ignore[import-not-found,import-untyped,unused-ignore]

    if values.null_count:
        position = next(place for place, value in enumerate(values) if not value.is_valid)
        raise TypeError(f"a column has no missing values; position {position} is null")
    kind = values.type.value_type if types.is_dictionary(values.type) else values.type
    if types.is_integer(kind):
        return "int"
    is_view = getattr(types, "is_string_view", lambda _: False)
    if types.is_string(kind) or types.is_large_string(kind) or is_view(kind):
        return "str"
    raise TypeError(f"a column is of ints or strings, not of Arrow type {values.type}")
