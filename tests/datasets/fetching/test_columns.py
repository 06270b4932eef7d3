"""The columns that templates are filled from."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest

from feedline.datasets.fetching.columns import Column


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["a", "b"], "str", ["a", "b"]),
        (("a",), "str", ["a"]),
        ([3, np.int8(-4), 2**70], "int", [3, -4, 2**70]),
        (range(5, 8), "int", [5, 6, 7]),
        (np.array([1, 2], np.uint64), "int", [1, 2]),
        (np.array(["x", "yz"]), "str", ["x", "yz"]),
        (np.array(["x", "yz"], object), "str", ["x", "yz"]),
        ([], "int", []),
    ],
)
def test_sequences_of_ints_and_of_strings_are_columns(values: Any, kind: str, expected: list[Any]) -> None:
    column = Column(values)
    assert (column.kind, len(column)) == (kind, len(expected))
    found = [column[place] for place in range(len(column))]
    assert found == expected
    assert {type(value) for value in found} <= {int, str}


def test_numpy_strings_of_variable_length_are_a_column() -> None:
    dtypes = getattr(np, "dtypes", None)
    if dtypes is None or not hasattr(dtypes, "StringDType"):
        pytest.skip("this NumPy has no StringDType")
    column = Column(np.array(["a", "bcd"], dtypes.StringDType()))
    assert (column.kind, column[1]) == ("str", "bcd")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["a", 1], "position 1"),
        ([1, "a"], "position 1"),
        ([1.5], "position 0"),
        ([True], "position 0"),
        ([b"a"], "position 0"),
        ([None], "position 0"),
        ("abc", r"\['abc'\]"),
        (np.array([1.5]), "float64"),
        (np.array([b"a"]), "astype"),
        (np.zeros((2, 2), int), r"\(2, 2\)"),
        ({"a": 1}, "dict"),
        ({1, 2}, "set"),
        (7, "int"),
    ],
)
def test_anything_else_is_refused_with_its_place(values: Any, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        Column(values)


def test_arrays_are_held_by_reference() -> None:
    values = np.array([1, 2, 3])
    column = Column(values)
    values[0] = 9
    assert column[0] == 9


def test_a_list_is_copied() -> None:
    values = ["a", "b"]
    column = Column(values)
    values[0] = "changed"
    assert column[0] == "a"


class TestArrow:
    """Arrow arrays stay Arrow arrays."""

    @pytest.fixture(autouse=True)
    def pa(self) -> Any:
        self.arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        return self.arrow

    def test_arrays_and_chunked_arrays_of_strings_and_ints_are_columns(self) -> None:
        pa = self.arrow
        for values, kind, last in [
            (pa.array(["a", "ü"]), "str", "ü"),
            (pa.array(["a", "b"], pa.large_string()), "str", "b"),
            (pa.array(["a", "b", "a"]).dictionary_encode(), "str", "a"),
            (pa.chunked_array([["a"], ["b", "c"]]), "str", "c"),
            (pa.array([1, 2], pa.uint8()), "int", 2),
        ]:
            column = Column(values)
            assert (column.kind, column[len(column) - 1]) == (kind, last)

    def test_missing_values_and_other_types_are_refused(self) -> None:
        with pytest.raises(TypeError, match="position 1 is null"):
            Column(self.arrow.array(["a", None]))
        with pytest.raises(TypeError, match="double"):
            Column(self.arrow.array([1.5]))

    def test_a_slice_pickles_without_the_rest_of_its_buffer(self) -> None:
        column = Column(self.arrow.array([f"value {number}" for number in range(100_000)]).slice(5, 2))
        data = pickle.dumps(column)
        assert len(data) < 10_000
        again = pickle.loads(data)
        assert [again[0], again[1]] == ["value 5", "value 6"]


def test_pyarrow_is_not_imported_for_anybody_else() -> None:
    import subprocess

    code = (
        "import sys; from feedline.datasets.fetching.columns import Column; import numpy as np;"
        "Column(['a']); Column(np.arange(3)); assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
