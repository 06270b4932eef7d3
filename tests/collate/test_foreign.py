"""torch tensors and JAX arrays stay what they are, and are recognised only where their module is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from feedline.collate.default import default_collate
from feedline.errors import CollateError


def test_tensors_are_stacked_to_tensors_as_torch_does():
    torch = pytest.importorskip("torch")
    items = [{"x": torch.full((2, 3), float(i)).T, "y": torch.tensor(i)} for i in range(3)]
    batch = default_collate(items)
    expected = torch.utils.data.default_collate(items)
    for key in ("x", "y"):
        assert torch.equal(batch[key], expected[key])
        assert batch[key].dtype == expected[key].dtype
        assert batch[key].is_contiguous()
    batch["x"][:] = 9
    assert items[1]["x"].eq(1).all()


def test_gradients_flow_through_a_batch():
    torch = pytest.importorskip("torch")
    parameter = torch.ones(2, requires_grad=True)
    default_collate([parameter, parameter * 2]).sum().backward()
    assert parameter.grad.tolist() == [3, 3]


def test_one_tensor_is_a_copy():
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2)
    default_collate([tensor])[:] = 5
    assert tensor.tolist() == [1, 1]


def test_bfloat16_and_bool_tensors_are_kept():
    torch = pytest.importorskip("torch")
    assert default_collate([torch.ones(2, dtype=torch.bfloat16)] * 2).dtype == torch.bfloat16
    assert default_collate([torch.tensor(True)] * 2).dtype == torch.bool


def test_jax_arrays_are_stacked_to_jax_arrays():
    jax = pytest.importorskip("jax")
    batch = default_collate([(jax.numpy.arange(3), jax.numpy.float32(1))] * 2)
    assert all(isinstance(part, jax.Array) for part in batch)
    assert batch[0].tolist() == [[0, 1, 2]] * 2
    assert batch[1].tolist() == [1, 1]


def make(name: str, shape: tuple[int, ...], dtype: str):
    if name == "torch":
        torch = pytest.importorskip("torch")
        return torch.ones(shape, dtype=getattr(torch, dtype))
    return pytest.importorskip("jax").numpy.ones(shape, dtype)


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        (((2,), "float32"), ((3,), "float32"), "shapes differ: (2,) in item 0; (3,) in item 1"),
        (((2,), "float32"), ((2, 1), "float32"), "shapes differ"),
        (((2,), "float32"), ((2,), "int32"), "dtypes differ"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(name, one, other, word):
    with pytest.raises(CollateError) as caught:
        default_collate([{"x": make(name, *one)}, {"x": make(name, *other)}])
    assert word in str(caught.value)
    assert (caught.value.path, caught.value.positions) == ("['x']", (1,))


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_tensors_and_numpy_arrays_are_not_mixed(name):
    with pytest.raises(CollateError, match="types differ: ndarray in item 0"):
        default_collate([np.ones(2, "f4"), make(name, (2,), "float32")])


def test_collating_loads_neither_torch_nor_jax():
    code = (
        "import sys; from feedline.collate.default import default_collate\n"
        "try: default_collate([object()])\n"
        "except TypeError as error: print(error, {'torch', 'jax'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.startswith("can't collate the items: object in item 0")
    assert done.stdout.strip().endswith("set()")
