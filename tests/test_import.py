"""`import feedline` is light: NumPy alone, no state touched, nothing started."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: What must not come along, though it may be installed.
HEAVY = (
    "torch",
    "jax",
    "ray",
    "cv2",
    "PIL",
    "simplejpeg",
    "pycurl",
    "certifi",
    "obstore",
    "pyarrow",
    "pandas",
    "cloudpickle",
    "tqdm",
    "rich",
    "typer",
    "matplotlib",
    "sklearn",
    "pytest",
    "ml_dtypes",
)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("module", ["feedline", "feedline.images", "feedline.loader.dataloader"])
def test_no_optional_library_comes_along(module) -> None:
    # `images` may import what its extra brings, when it is used.
    assert (
        run(f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])").split() == []
    )


def test_heavy_parts_of_the_standard_library_stay_out() -> None:
    names = (
        "asyncio",
        "multiprocessing.pool",
        "concurrent.futures.process",
        "http.client",
        "tkinter",
        "unittest",
    )
    before = set(run(f"import sys, numpy; print(*[n for n in {names} if n in sys.modules])").split())
    after = set(run(f"import sys, feedline; print(*[n for n in {names} if n in sys.modules])").split())
    assert after <= before


def test_importing_touches_no_global_state_and_starts_nothing() -> None:
    code = """
import gc, locale, logging, os, random, signal, sys, threading, warnings
import numpy as np
def state():
    return (random.getstate(), np.random.get_state()[1].tolist(), threading.active_count(), warnings.filters[:],
            sorted(os.environ), gc.isenabled(), gc.get_threshold(), signal.getsignal(signal.SIGINT),
            logging.getLogger().handlers, logging.getLogger("feedline").handlers, logging.getLogger("feedline").level,
            sys.getswitchinterval(), os.getcwd(), np.geterr(), sys.excepthook, threading.excepthook)
before = state()
import feedline
print(before == state())
"""
    assert run(code) == "True\n"


def test_it_says_nothing() -> None:
    assert run("import feedline") == ""


def test_every_module_of_the_core_imports_alone() -> None:
    code = """
import importlib, pkgutil, feedline
for package in ("datasets", "samplers", "transforms", "collate", "loader", "ndf"):
    module = importlib.import_module(f"feedline.{package}")
    for info in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        importlib.import_module(info.name)
"""
    assert run(code) == ""
