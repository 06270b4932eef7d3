"""Imports point one way. The rule is stated here, once, and read off the source, so that a lazy import counts, too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = sorted(SOURCE.glob("feedline/**/*.py"))

#: A room may import from rooms with a smaller number, and from itself; rooms with equal numbers are siblings.
LAYERS = {
    "early_interrupt": 0,
    "errors": 0,
    "keys": 1,
    "ndf": 2,
    "datasets": 3,
    "samplers": 3,
    "transforms": 3,
    "collate": 3,
    "images": 4,  # a public name for transforms.images and collate.image
    "convert": 4,
    "loader": 4,
    "torch": 5,
    "jax": 5,
    "ray": 5,
    "cli": 5,
    "testing": 6,
}
#: Siblings that know one another all the same: (module, what it may import).
EXCEPTIONS = {
    ("feedline.collate.image", "feedline.transforms.images"),
    ("feedline.cli.convert", "feedline.ray"),
}
#: The public names, all in one place; for rooms that use the library as its users do.
USERS_OF_THE_PACKAGE = {"cli", "torch", "jax", "ray", "testing", "__main__"}
#: Libraries that a room may import when it is imported itself. Everywhere else they are imported inside functions.
LIBRARIES = {
    "": {"numpy"},
    "cli": {"numpy", "typer", "rich"},
    "torch": {"numpy", "torch"},
    "jax": {"numpy", "jax"},
    "ray": {"numpy", "ray"},
    "testing": {"numpy", "pytest"},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def imported_by(node: ast.stmt, module: str, is_package: bool) -> list[str]:
    """Return the absolute names of the modules (or of names in them) that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = module.split(".") if is_package else module.split(".")[:-1]
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def all_imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for name in imported_by(node, name_of(path), path.name == "__init__.py"):
            yield node.lineno, name


def imports_at_import_time(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what runs when the module is imported: not what stands in functions or is for type checkers alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        for name in imported_by(node, name_of(path), path.name == "__init__.py"):
            yield node.lineno, name
        waiting.extend(ast.iter_child_nodes(node))


def may_import(module: str, target: str) -> bool:
    room, other = room_of(module), room_of(target)
    if room == "":
        return True  # the package's own __init__ gathers the public names
    if other not in LAYERS:  # a name of the package itself, such as feedline.DataLoader
        return room in USERS_OF_THE_PACKAGE
    if room == other or room in USERS_OF_THE_PACKAGE - set(LAYERS):
        return True
    if any(module == one and (target + ".").startswith(two + ".") for one, two in EXCEPTIONS):
        return True
    return LAYERS[other] < LAYERS[room]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_layers_below(path: Path) -> None:
    module = name_of(path)
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {target}"
        for line, target in all_imports(path)
        if target.split(".")[0] == "feedline" and not may_import(module, target)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_needs_only_its_own_libraries_to_be_imported(path: Path) -> None:
    allowed = (
        LIBRARIES.get(room_of(name_of(path)), LIBRARIES[""]) | set(sys.stdlib_module_names) | {"feedline"}
    )
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {target}"
        for line, target in imports_at_import_time(path)
        if target.split(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_layer() -> None:
    rooms = {room_of(name_of(path)) for path in MODULES} - {"", "__main__"}
    assert rooms <= set(LAYERS), f"give {sorted(rooms - set(LAYERS))} a place in LAYERS"


def test_importing_feedline_imports_numpy_and_nothing_else_from_outside() -> None:
    # Run apart: this process has imported a great deal by now.
    code = (
        "import sys, numpy; before = set(sys.modules); import feedline; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert "feedline" in found
    # NumPy's own compiled modules bring the run-time support of Cython along, and multiprocessing a second __main__.
    inner = {name for name in found if "cython" in name or name.startswith("__")}
    outside = set(found) - inner - set(sys.stdlib_module_names)
    assert outside - {"numpy"} == {"feedline"}


@pytest.mark.parametrize(
    ("module", "target", "allowed"),
    [
        ("feedline.loader.plan", "feedline.samplers.protocol.Order", True),
        ("feedline.samplers.shard", "feedline.loader.plan.EpochPlan", False),
        ("feedline.samplers.shard", "feedline.collate.default", False),
        ("feedline.collate.image", "feedline.transforms.images.image.Image", True),
        ("feedline.collate.default", "feedline.transforms.images.image.Image", False),
        ("feedline.datasets.ndf", "feedline.ndf.reader.NdfReader", True),
        ("feedline.ndf.reader", "feedline.datasets.ndf", False),
        ("feedline.loader.plan", "feedline.DataLoader", False),
        ("feedline.cli.demo", "feedline.DataLoader", True),
        ("feedline.cli.demo", "feedline.testing.fakes", False),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(module: str, target: str, allowed: bool) -> None:
    assert may_import(module, target) is allowed
