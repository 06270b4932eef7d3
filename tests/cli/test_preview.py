"""`feedline preview`: a contact sheet of folders, files, arrays, datasets and loaders."""

from __future__ import annotations

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="needs the extra 'images'")

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def save(path, color, size=(40, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


def cells(path, cell, rows, columns, heading):
    """Return the pixels in the middle of every cell of a sheet."""
    sheet = np.asarray(Image.open(path).convert("RGB"))
    step = cell + 4
    assert sheet.shape == (4 + rows * step, 4 + columns * step + (4 if heading else 0), 3)
    middle = [4 + cell // 2 + place * step for place in range(max(rows, columns))]
    return [
        [tuple(sheet[middle[y], middle[x] + (4 if heading and x else 0)].tolist()) for x in range(columns)]
        for y in range(rows)
    ]


@pytest.fixture
def folder(tmp_path):
    for name, color in (("a", RED), ("b", GREEN), ("c", BLUE)):
        save(tmp_path / "photos" / f"{name}.png", color)
    return tmp_path / "photos"


def test_a_folder_of_images_is_drawn_as_it_is(cli, folder, tmp_path) -> None:
    sheet = tmp_path / "sheet.png"
    result = cli("preview", folder, "-o", sheet, "--plain", "--grid", "1x3", "--cell", 32)
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{sheet}: 3 of 3 images, seed 0\n"
    assert cells(sheet, 32, 1, 3, heading=False) == [[RED, GREEN, BLUE]]


def test_a_folder_of_classes_has_a_row_for_each_image_and_a_column_for_each_epoch(cli, tmp_path) -> None:
    for name, color in (("ant", RED), ("bee", BLUE)):
        for number in range(3):
            save(tmp_path / "root" / name / f"{number}.png", color)
    sheet = tmp_path / "sheet.png"
    result = cli("preview", tmp_path / "root", "-o", sheet, "--grid", "2x4", "--cell", 32)
    assert result.out == f"{sheet}: 2 of 6 images, seed 0\n"
    first, second = cells(sheet, 32, 2, 4, heading=True)
    assert first[0] == RED
    assert second[0] == BLUE
    assert all(color[0] > color[2] for color in first)
    assert all(color[2] > color[0] for color in second)
    assert len(set(first)) > 2


def test_images_beside_class_folders_are_shown_with_those_of_the_classes(cli, folder, tmp_path) -> None:
    save(folder / "z" / "deeper" / "1.png", (255, 255, 0))
    save(folder / "ant" / "2.png", (0, 255, 255))
    (folder / "without images").mkdir()
    sheet = tmp_path / "sheet.png"
    result = cli("preview", folder, "-o", sheet, "--plain", "--grid", "1x5", "--cell", 32)
    assert result.out == f"{sheet}: 5 of 5 images, seed 0\n"
    assert cells(sheet, 32, 1, 5, heading=False) == [[RED, GREEN, BLUE, (0, 255, 255), (255, 255, 0)]]


def test_the_seed_decides_what_is_drawn(cli, folder, tmp_path) -> None:
    def drawn(name, seed):
        cli("preview", folder, "-o", tmp_path / name, "--seed", seed, "--grid", "3x4", "--cell", 32)
        return (tmp_path / name).read_bytes()

    assert drawn("one.png", 5) == drawn("two.png", 5)
    assert drawn("one.png", 5) != drawn("three.png", 6)


def test_one_file_and_an_array_are_drawn_too(cli, folder, tmp_path) -> None:
    sheet = tmp_path / "sheet.png"
    assert cli("preview", folder / "b.png", "-o", sheet, "--grid", "1x2", "--cell", 16).code == 0
    assert cells(sheet, 16, 1, 2, heading=True)[0][0] == GREEN
    stored = np.zeros((5, 20, 20), np.uint8)
    stored[:] = np.arange(5)[:, None, None] * 60
    np.save(tmp_path / "digits.npy", stored)
    assert (
        cli("preview", tmp_path / "digits.npy", "-o", sheet, "--plain", "--grid", "1x5", "--cell", 16).code
        == 0
    )
    assert cells(sheet, 16, 1, 5, heading=False) == [[(60 * n,) * 3 for n in range(5)]]


MODULE = """
import numpy as np
import feedline
from feedline import images

class Squares:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return np.full((30, 40, 3), 50 * index, np.uint8), index

squares = Squares()
chain = feedline.Compose([images.Resize((20, 20)), images.ToFloat(), images.ToChw()])
def inverted(item):
    return 255 - item[0]
loader = feedline.DataLoader(squares, 2, transform=inverted)
nothing = []
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "previewed.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "previewed"
    import sys

    sys.modules.pop("previewed", None)


def test_a_dataset_goes_through_a_pipeline_in_any_layout(cli, module) -> None:
    result = cli(
        "preview",
        f"{module}:squares",
        "-o",
        "s.png",
        "--grid",
        "4x2",
        "--cell",
        20,
        "--pipeline",
        f"{module}:chain",
    )
    assert (result.code, result.err) == (0, "")
    assert cells("s.png", 20, 4, 2, heading=True) == [[(50 * n,) * 3] * 2 for n in range(4)]


def test_a_loader_brings_its_own_pipeline(cli, module) -> None:
    assert cli("preview", f"{module}:loader", "-o", "s.png", "--grid", "4x2", "--cell", 20).code == 0
    assert cells("s.png", 20, 4, 2, heading=True) == [[(50 * n,) * 3, (255 - 50 * n,) * 3] for n in range(4)]


def test_a_broken_image_is_crossed_out_and_named(cli, folder, tmp_path) -> None:
    (folder / "b.png").write_bytes(b"<html>not found</html>")
    sheet = tmp_path / "sheet.png"
    result = cli("preview", folder, "-o", sheet, "--plain", "--grid", "1x3", "--cell", 32)
    assert result.code == 0
    first, crossed, last = cells(sheet, 32, 1, 3, heading=False)[0]
    assert (first, last) == (RED, BLUE)
    assert crossed == (214, 69, 65)
    assert "image 1 failed: ImageError: " in result.out
    assert "b.png" in result.out


def test_nothing_but_broken_images_is_a_failed_run(cli, tmp_path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.jpg").write_bytes(b"")
    assert cli("preview", tmp_path / "x", "-o", tmp_path / "s.png").code == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing", "no such file or folder"),
        ("no.such.module:x", "there is no module 'no.such.module'"),
        ("previewed:absent", "'previewed' has no 'absent'"),
        ("previewed:nothing", "has no images"),
        ("previewed:inverted", "is no dataset"),
        ("previewed:", "must be MODULE:NAME"),
    ],
)
def test_a_source_that_is_none_is_an_error_in_one_line(cli, module, source, message) -> None:
    result = cli("preview", source)
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("grid", ["6", "0x3", "3x101", "axb"])
def test_a_grid_that_is_none_is_wrong_usage(cli, folder, grid) -> None:
    result = cli("preview", folder, "--grid", grid)
    assert result.code == 2
    assert "ROWSxCOLUMNS" in result.err
