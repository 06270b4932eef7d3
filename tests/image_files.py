"""Image files for tests: small ones with known pixels (`files/manifest.json`), and encoders for the rest."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FILES = Path(__file__).parent / "transforms" / "images" / "files"
MANIFEST: list[dict[str, Any]] = json.loads((FILES / "manifest.json").read_text(encoding="utf-8"))
GOOD = [entry["file"] for entry in MANIFEST if entry["outcome"] == "ok"]
BAD = [(entry["file"], entry["kind"]) for entry in MANIFEST if entry["outcome"] == "error"]


def read(name: str) -> bytes:
    """Return the bytes of the file `name`."""
    return (FILES / name).read_bytes()


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """Return an RGB picture with smooth parts, edges and a little noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([x * 255 / max(width, 2), y * 255 / max(height, 2), (x + y) % 256], axis=2)
    smooth[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
    noisy = np.clip(smooth + rng.normal(0, 8, smooth.shape), 0, 255)
    return Image.fromarray(noisy.astype(np.uint8))


def encode(image: Image.Image, format: str, **options: Any) -> bytes:
    """Return the file that Pillow writes of `image`."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def pillow(data: bytes, mode: str | None = None) -> np.ndarray[Any, Any]:
    """Return what Pillow decodes, as (height, width, channels)."""
    with Image.open(io.BytesIO(data)) as image:
        array = np.asarray(image if mode is None else image.convert(mode))
    return array if array.ndim == 3 else array[..., None]
