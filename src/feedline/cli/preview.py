"""`feedline preview SOURCE -o sheet.png`: what a training loop gets to see of images, as one picture."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from feedline.cli.sheet import Pixels, as_rgb, draw_sheet
from feedline.cli.wording import count, printable
from feedline.datasets.image_folder import IMAGE_EXTENSIONS, ImageFolderDataset
from feedline.errors import MissingExtraError, OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.color_jitter import ColorJitter
from feedline.transforms.images.crop import RandomResizedCrop
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.flip import RandomHorizontalFlip
from feedline.transforms.images.image_type import IMAGE_DTYPES, ImageKind
from feedline.transforms.protocol import ItemContext, wants_context

__all__ = ["command"]

_MAX_SHOWN = 5


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images (with or without a folder for each class), an image file, an array of images "
            "(.npy), or MODULE:NAME, a dataset or loader.",
        ),
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The PNG.")] = "sheet.png",
    seed: Annotated[int, typer.Option(min=0, help="The loader's seed.")] = 0,
    grid: Annotated[
        str,
        typer.Option(metavar="ROWSxCOLUMNS", help="Images, and columns: one as it is, then one an epoch."),
    ] = "6x7",
    cell: Annotated[int, typer.Option(min=8, max=1024, help="Side of a picture, in pixels.")] = 112,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="A transform of your own; by default random crops, flips and colours are shown.",
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="The images as they are, without a pipeline, in all cells.")
    ] = False,
) -> None:
    """Draw images as a training loop gets them: a row for each image, a column for each epoch, as one PNG."""
    rows, columns = _grid(grid)
    dataset, own = _dataset(source)
    total = len(dataset)
    if total == 0:
        raise OptionError(f"{source!r} has no images")
    chosen = rows * columns if plain else rows
    # Spread over the whole dataset, which is often sorted by class.
    indices = [place * total // min(chosen, total) for place in range(min(chosen, total))]
    failures: dict[int, str] = {}
    whole = _Painter(dataset, None, None, seed, failures)
    if plain:
        pictures = [whole.picture(index, 0) for index in indices]
        drawn = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    else:
        transform = _named(pipeline) if pipeline is not None else own
        augment = _augmentation(2 * cell) if transform is None else None
        painter = _Painter(dataset, transform, augment, seed, failures)
        drawn = [
            [whole.picture(index, 0), *(painter.picture(index, epoch) for epoch in range(columns - 1))]
            for index in indices
        ]
    _write_png(draw_sheet(drawn, cell, heading=not plain), output)
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        printable(f"{output}: {len(indices)} of {count(total, 'image')}, seed {seed}"), markup=False
    )
    for index in list(failures)[:_MAX_SHOWN]:
        console.print(printable(f"image {index} failed: {failures[index]}"), markup=False)
    if len(failures) > _MAX_SHOWN:
        console.print(f"and {len(failures) - _MAX_SHOWN} more failed")
    if len(failures) == len(indices):
        raise typer.Exit(1)


class _Painter:
    """Makes pictures of a dataset's items.

    Args:
        dataset: the dataset.
        transform: what a loader would call with an item; `None` for the items as they are.
        augment: called with a picture and a context; what makes the default columns.
        seed: the loader's seed.
        failures: where the errors of items go, by index.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[..., Any] | None,
        augment: Compose | None,
        seed: int,
        failures: dict[int, str],
    ) -> None:
        self._dataset = dataset
        self._transform = transform
        self._augment = augment
        self._with_context = transform is not None and wants_context(transform)
        kind = getattr(transform, "result", None)
        self._planar = isinstance(kind, ImageKind) and kind.layout == "CHW"
        self._seed = seed
        self._failures = failures

    def picture(self, index: int, epoch: int) -> Pixels | None:
        """Return item `index` as `epoch` gives it; `None`, with a note in `failures`, if it can't be had."""
        try:
            return self._picture(index, ItemContext(index, epoch, self._seed))
        except Exception as error:
            # One broken file must not hide the others; it is crossed out and named.
            self._failures[index] = f"{type(error).__name__}: {error}"
            return None

    def _picture(self, index: int, context: ItemContext) -> Pixels:
        item = self._dataset[index]
        if inspect.isawaitable(item):
            item = asyncio.run(_awaited(item))
        if self._transform is not None:
            item = self._transform(item, context) if self._with_context else self._transform(item)
        image = _image(item)
        # Without a pipeline that vouches for the layout: an image of CHW alone has so few "rows".
        planar = self._planar or (image.shape[2] > 4 and image.shape[0] <= 4)
        picture = as_rgb(image, planar)
        if self._augment is not None:
            picture = self._augment(picture, context)
        return picture


async def _awaited(item: Awaitable[Any]) -> Any:
    return await item


def _image(item: Any) -> npt.NDArray[Any]:
    """Return the image in `item`: an array with three axes, `uint8`, `uint16` or `float32`."""
    image = item[0] if isinstance(item, tuple) and item else item
    if isinstance(image, (bytes, bytearray, memoryview, str, os.PathLike)):
        image = Decode()(image)
    elif hasattr(image, "convert") and hasattr(image, "getbands"):  # one of Pillow's
        image = image.convert("RGB")
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.dtype.kind == "f":
        array = array.astype(np.float32)
    if array.ndim != 3 or array.dtype.name not in IMAGE_DTYPES:
        raise TypeError(
            f"the item is no image, but a {type(image).__name__}; a preview takes images and encoded images, alone or "
            f"as the first part of a tuple"
        )
    return array


def _augmentation(size: int) -> Compose:
    return Compose([RandomResizedCrop(size), RandomHorizontalFlip(), ColorJitter(0.3, 0.3, 0.3, 0.05)])


def _grid(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) == 2 and all(part.isdecimal() and 1 <= int(part) <= 100 for part in parts):
        return int(parts[0]), int(parts[1])
    raise typer.BadParameter(f"must be ROWSxCOLUMNS, each between 1 and 100, such as 6x7, not {text!r}")


def _dataset(source: str) -> tuple[Any, Callable[..., Any] | None]:
    """Return the dataset that `source` names, and the transform that comes with it, if there is one."""
    path = Path(source)
    if path.is_dir():
        return _folder(path), None
    if path.suffix == ".npy" and path.exists():
        images = np.load(path, mmap_mode="r", allow_pickle=False)
        if images.ndim not in (3, 4):
            raise OptionError(
                f"{source!r} must hold images, (number, height, width) or (..., channels), not {images.shape}"
            )
        return images, None
    if path.exists():
        return _Files([path]), None
    if ":" not in source:
        raise FileNotFoundError(2, "no such file or folder (nor MODULE:NAME)", source)
    found = _named(source)
    if not hasattr(found, "__getitem__") and hasattr(found, "dataset"):
        return found.dataset, getattr(getattr(found, "options", None), "transform", None)
    if not hasattr(found, "__getitem__") or not hasattr(found, "__len__"):
        raise TypeError(f"{source!r} is no dataset with items and a length, but a {type(found).__name__}")
    return found, None


class _Files(Sequence[Path]):
    """Files as a dataset of their paths."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        return self._paths[index]


def _folder(path: Path) -> Any:
    """Return the images of a folder: those in it, then those of the folders in it."""
    here = sorted(
        file for file in path.iterdir() if file.suffix.lower() in IMAGE_EXTENSIONS and file.is_file()
    )
    if not here:
        return ImageFolderDataset(path, allow_empty=True)
    if not any(entry.is_dir() for entry in path.iterdir()):
        return _Files(here)
    classes = ImageFolderDataset(path, allow_empty=True)
    return _Files([*here, *(Path(classes.path(index)) for index in range(len(classes)))])


def _named(target: str) -> Any:
    """Import `MODULE:NAME`, looking into the present folder, too."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise OptionError(f"{target!r} must be MODULE:NAME")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] == error.name.split(".")[0]:
            raise OptionError(f"there is no module {module!r} (in {target!r})") from None
        raise
    for part in name.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{module!r} has no {name!r}")
        found = getattr(found, part)
    return found


def _write_png(sheet: Pixels, path: str) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.of("drawing a sheet", "images") from error
    Image.fromarray(sheet).save(path, format="PNG", optimize=True)
