"""Draw what a training loop gets to see: photos out of a folder, augmented anew in every epoch, as one picture.

    python examples/contact_sheet.py [sheet.png]

Photos that come with scikit-learn and scikit-image are written to a small folder of JPEGs, one folder a class. A loader
decodes, crops, flips and recolours them on two threads. Each row of the sheet is one photo: whole at the left, then as
six epochs give it. The same seed gives the same sheet, whatever the number of workers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image
from sklearn.datasets import load_sample_images

import feedline
from feedline import images
from feedline.datasets.image_folder import ImageFolderDataset

SIDE, GAP, EPOCHS = 100, 4, 6


def write_folder(root: Path) -> None:
    """Write `root/CLASS/0.jpg` for each of six photos."""
    china, flower = load_sample_images().images
    photos = {"china": china, "flower": flower}
    photos |= {name: getattr(skimage.data, name)() for name in ("astronaut", "chelsea", "coffee", "rocket")}
    for name, photo in photos.items():
        (root / name).mkdir()
        Image.fromarray(photo).save(root / name / "0.jpg", quality=90)


def load_columns(dataset: ImageFolderDataset) -> list[np.ndarray]:
    """Return the columns of the sheet: all photos whole, then as each epoch gives them, (photo, row, column, RGB)."""
    whole = feedline.Compose([images.Decode("RGB"), images.Resize(SIDE), images.CenterCrop(SIDE, SIDE)])
    augmented = feedline.Compose(
        [
            images.Decode("RGB"),
            images.RandomResizedCrop(SIDE, scale=(0.2, 1.0)),
            images.RandomHorizontalFlip(),
            images.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.5, hue=0.05),
            images.RandomGrayscale(0.1),
            images.RandomErasing(0.25, value=(124, 116, 104)),
        ]
    )
    columns = []
    for transform, epochs in ((whole, 1), (augmented, EPOCHS)):
        loader = feedline.DataLoader(
            dataset,
            batch_size=len(dataset),
            transform=transform,
            collate_fn=images.ImageCollator("NHWC"),
            num_workers=2,
            seed=7,
        )
        for _ in range(epochs):
            for batch, _labels in loader:
                columns.append(batch.data.copy())
    return columns


def draw(columns: list[np.ndarray]) -> Image.Image:
    """Put the columns side by side on white."""
    step = SIDE + GAP
    sheet = np.full((GAP + len(columns[0]) * step, 2 * GAP + len(columns) * step, 3), 255, np.uint8)
    for x, column in enumerate(columns):
        left = GAP + x * step + (GAP if x else 0)
        for y, image in enumerate(column):
            top = GAP + y * step
            sheet[top : top + SIDE, left : left + SIDE] = image
    return Image.fromarray(sheet)


def main(target: str = "contact-sheet.png") -> None:
    """Draw the sheet and say where it is."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder))
        dataset = ImageFolderDataset(folder)
        sheet = draw(load_columns(dataset))
        sheet.quantize(256).save(target, optimize=True)
        print(f"{len(dataset)} photos of {len(dataset.classes)} classes, {EPOCHS} epochs: {target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
