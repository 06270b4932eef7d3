"""A folder of images as a source: pixels as rows, the class as label."""

from __future__ import annotations

import io

import numpy as np
import pytest

from feedline.convert.conversion import convert
from feedline.datasets.ndf import NdfDataset
from feedline.datasets.ndf_shards import NdfShards
from feedline.errors import ImageError, OptionError

Image = pytest.importorskip("PIL.Image", reason="images need the extra 'images'")
pytest.importorskip("cv2", reason="images need the extra 'images'")


def png(pixels) -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (10, 6, 8, 3), np.uint8)
    for number, image in enumerate(pixels):
        folder = tmp_path / "images" / ("dog" if number >= 4 else "cat")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(png(image))
    return tmp_path / "images", pixels


def test_an_image_is_a_row_of_its_pixels_and_its_class_the_label(images, tmp_path):
    folder, pixels = images
    convert(folder, tmp_path / "out.ndf")
    x, y = NdfDataset(tmp_path / "out.ndf").take(np.arange(10), np.empty)
    assert np.array_equal(x, pixels.reshape(10, -1))
    assert y[:, 0].tolist() == [0] * 4 + [1] * 6


def test_images_are_resized_and_made_gray(images, tmp_path):
    folder, _ = images
    convert(folder, tmp_path / "out", size=(3, 4), mode="L", num_shards=3)
    convert(folder, tmp_path / "two", size=(3, 4), mode="L", num_shards=3, workers=2)
    dataset = NdfShards(tmp_path / "out")
    assert (dataset.d, dataset.l) == (12, 1)
    x = dataset.take(np.arange(10), np.empty)[0]
    gray = [
        np.asarray(Image.open(path).convert("L").resize((4, 3), Image.Resampling.BILINEAR))
        for path in sorted(folder.glob("*/*.png"))
    ]
    assert np.abs(x - np.reshape(gray, (10, -1))).max() <= 2
    for shard in dataset.index.shards:
        assert (tmp_path / "out" / shard.file).read_bytes() == (tmp_path / "two" / shard.file).read_bytes()


def test_images_of_unequal_sizes_need_one_size(images, tmp_path):
    folder, pixels = images
    (folder / "dog" / "7.png").write_bytes(png(pixels[7][:5]))
    with pytest.raises(OptionError, match=r"7\.png' is of 5 x 8 pixels, the first image of 6 x 8: .* --size"):
        convert(folder, tmp_path / "out.ndf")
    convert(folder, tmp_path / "out.ndf", size=(4, 4))


def test_a_file_that_is_no_image_is_named(images, tmp_path):
    folder, _ = images
    (folder / "dog" / "7.png").write_bytes(b"nonsense")
    with pytest.raises(ImageError) as caught:
        convert(folder, tmp_path / "out.ndf")
    assert any("7.png" in note for note in caught.value.__notes__)


def test_options_that_are_not_for_images_are_told(images, tmp_path):
    folder, _ = images
    with pytest.raises(OptionError, match="mode must be one of L, RGB, RGBA, not 'CMYK'"):
        convert(folder, tmp_path / "out.ndf", mode="CMYK")
    with pytest.raises(OptionError, match="the label of an image is its class"):
        convert(folder, tmp_path / "out.ndf", labels=["y"])
    with pytest.raises(OptionError, match="size"):
        convert(folder, tmp_path / "out.ndf", size=(0, 4))


def test_a_folder_without_classes_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="one folder for each class"):
        convert(tmp_path / "empty", tmp_path / "out.ndf")
