"""A JPEG training pipeline: 1,000 photos of 500 x 375, random resized crop to 224, flip, normalise, batches of 64.

    python -m benchmarks.images [--rounds N] [--only NAME]
    python -m benchmarks.images --stages        where the time goes, on one thread

The photos are parts of scikit-learn's and scikit-image's, quality 90, 4:2:0, 55 KB on average. They are made once, in the
temporary folder, and every system is given their bytes in memory (one row reads the files, too). Two threads, or two
processes where a system has only those. The limit is decoding alone: libjpeg-turbo on two threads into one buffer each.
The rows "by hand" are what a specialist writes without a loader: whole batches a thread, all buffers reused.

Two threads of an AMD EPYC with AVX2, shares of decoding alone (by hand in brackets): uint8 0.85 (0.84) not antialiased, 0.75
(0.74) antialiased; float32 0.75 (0.76) and 0.66 (0.68). By hand all rows are decoded, and normalised by `addWeighted`, which
rounds; feedline decodes the rows that are needed, looks up exact values, and spends some 50 microseconds an image on headers,
limits, draws and Python. Code between two decodes runs out of cold caches, two to three times as slowly as in a loop of its
own: measure it there. See `docs/design/image-resizing.md`. Against peers in one run, as many times
as fast: as DALI 1.5 (float32) and 1.7 (uint8), not antialiased; as torchvision v2 2.1 and 1.5, antialiased; as the usual torch
recipe 3.2.

torchvision, DALI and the usual torch recipe run where they are installed (`scripts/bench --peers`).
"""

from __future__ import annotations

import io
import math
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._contest import Contest, Round

N = 1_000
BATCH = 64
SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FOLDER = Path(tempfile.gettempdir()) / f"feedline-benchmark-photos-{N}"


def write_photos() -> Path:
    """Cut 1,000 JPEGs out of a handful of photos, if they are not there yet."""
    if FOLDER.exists():
        return FOLDER
    import cv2
    import simplejpeg
    import skimage.data
    from sklearn.datasets import load_sample_images

    names = ("astronaut", "coffee", "chelsea", "rocket")
    photos = [*load_sample_images().images, *(getattr(skimage.data, name)() for name in names)]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as made:
        for number in range(N):
            photo = photos[number % len(photos)][..., :3]
            scale = max(375 / photo.shape[0], 500 / photo.shape[1], 0.8) * rng.uniform(1.0, 1.3)
            photo = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            top, left = (int(rng.integers(0, photo.shape[i] - side + 1)) for i, side in ((0, 375), (1, 500)))
            part = photo[top : top + 375, left : left + 500][:, :: rng.choice([-1, 1])]
            folder = Path(made) / f"class{number % 10}"
            folder.mkdir(exist_ok=True)
            data = simplejpeg.encode_jpeg(np.ascontiguousarray(part), 90, "RGB", "420")
            (folder / f"{number:04}.jpg").write_bytes(data)
        os.rename(made, FOLDER)
        os.mkdir(made)  # for the context manager to remove
    return FOLDER


@cache
def photos() -> list[bytes]:
    return [path.read_bytes() for path in sorted(write_photos().glob("*/*.jpg"))]


def batches() -> list[list[int]]:
    order = np.random.default_rng(0).permutation(N).tolist()
    return [order[start : start + BATCH] for start in range(0, N, BATCH)]


def on_two_threads(work: Callable[[list[int]], Any]) -> Round:
    pool = ThreadPoolExecutor(2)
    photos()

    def run() -> float:
        for _ in pool.map(work, batches()):
            pass
        return N

    return run


def decode_alone() -> Round:
    import simplejpeg

    own = threading.local()

    def work(batch: list[int]) -> None:
        buffer = own.__dict__.setdefault("buffer", np.empty((375, 500, 3), np.uint8))
        for index in batch:
            simplejpeg.decode_jpeg(photos()[index], "RGB", buffer=buffer)

    return on_two_threads(work)


def draw_box(height: int, width: int) -> tuple[int, int, int, int]:
    """Draw (top, left, height, width) by torchvision's algorithm."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        columns, rows = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < columns <= width and 0 < rows <= height:
            return random.randint(0, height - rows), random.randint(0, width - columns), rows, columns
    return 0, 0, height, width


def by_hand(planar: bool, antialias: bool, fast: bool = False) -> Round:
    """A pool of simplejpeg, OpenCV (or `resize_into`, where antialiased) and a fused normalisation."""
    import cv2
    import simplejpeg

    from feedline.transforms.images.resample import resize_into

    cv2.setNumThreads(0)
    own = threading.local()
    scales = [(1 / 255 / s, -m / s) for m, s in zip(MEAN, STD)]

    def work(batch: list[int]) -> None:
        if not hasattr(own, "buffer"):
            own.buffer = np.empty((375, 500, 3), np.uint8)
            own.small = np.empty((SIZE, SIZE, 3), np.uint8)
            own.planes = [np.empty((SIZE, SIZE), np.uint8) for _ in range(3)]
            shape = (BATCH, 3, SIZE, SIZE) if planar else (BATCH, SIZE, SIZE, 3)
            own.batch = np.empty(shape, np.float32 if planar else np.uint8)
        for place, index in enumerate(batch):
            image = simplejpeg.decode_jpeg(
                photos()[index], "RGB", fastdct=fast, fastupsample=fast, buffer=own.buffer
            )
            box = draw_box(*image.shape[:2])
            small = own.small if planar else own.batch[place]
            if antialias:
                resize_into(image, box, small)
            else:
                part = image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]
                cv2.resize(part, (SIZE, SIZE), dst=small, interpolation=cv2.INTER_LINEAR)
            if random.random() < 0.5:
                cv2.flip(small, 1, dst=small)
            if planar:
                cv2.split(small, own.planes)
                for plane, (scale, bias), out in zip(own.planes, scales, own.batch[place]):
                    cv2.addWeighted(plane, scale, plane, 0.0, bias, dst=out, dtype=cv2.CV_32F)

    return on_two_threads(work)


def pipeline(planar: bool, antialias: bool, fast: bool = False, plan: bool = True) -> tuple[Any, Any]:
    """Return feedline's transform and collate function."""
    import feedline
    from feedline import images

    steps = [
        images.Decode("RGB", fast=fast),
        images.RandomResizedCrop(SIZE, antialias=antialias),
        images.RandomHorizontalFlip(),
    ]
    if planar:
        steps += [images.ToFloat(), images.Normalize(MEAN, STD), images.ToChw()]
    return feedline.Compose(steps, plan=plan), images.ImageCollator("NCHW" if planar else "NHWC")


def loader(dataset: Any, transform: Any, collate_fn: Any, **options: Any) -> Round:
    import feedline

    options = {"num_workers": 2, **options}
    made = feedline.DataLoader(
        dataset, BATCH, shuffle=True, transform=transform, collate_fn=collate_fn, **options
    )

    def run() -> float:
        for _ in made:
            pass
        return N

    return run


def from_files() -> Round:
    from feedline.datasets.image_folder import ImageFolderDataset

    return loader(ImageFolderDataset(write_photos()), *pipeline(True, True))


def pillow_threads() -> Round:
    """The usual recipe's steps with Pillow and NumPy, on two plain threads."""
    from PIL import Image

    mean, std = np.float32(MEAN), np.float32(STD)

    def one(index: int) -> np.ndarray:
        image = Image.open(io.BytesIO(photos()[index])).convert("RGB")
        top, left, rows, columns = draw_box(image.height, image.width)
        image = image.crop((left, top, left + columns, top + rows))
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return ((np.asarray(image, np.float32) / 255 - mean) / std).transpose(2, 0, 1)

    return on_two_threads(lambda batch: np.stack([one(index) for index in batch]))


class TorchPhotos:
    """What people write: `__getitem__` decodes and transforms."""

    def __init__(self, transform: Callable[[bytes], Any]) -> None:
        self.data = photos()
        self.transform = transform

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.data[index])


def torch_epoch(transform: Callable[[bytes], Any]) -> Round:
    from torch.utils.data import DataLoader

    loader = DataLoader(TorchPhotos(transform), BATCH, shuffle=True, num_workers=2, persistent_workers=True)

    def run() -> float:
        for _ in loader:
            pass
        return N

    return run


def torch_recipe() -> Round:
    from PIL import Image
    from torchvision.transforms import v2 as T

    steps = T.Compose(
        [
            T.RandomResizedCrop(SIZE, antialias=True),
            T.RandomHorizontalFlip(),
            T.PILToTensor(),
            T.ToDtype(__import__("torch").float32, scale=True),
            T.Normalize(MEAN, STD),
        ]
    )
    return torch_epoch(lambda data: steps(Image.open(io.BytesIO(data)).convert("RGB")))


def torchvision_tensors(planar: bool) -> Round:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2 as T

    torch.set_num_threads(1)
    steps: list[Any] = [T.RandomResizedCrop(SIZE, antialias=True), T.RandomHorizontalFlip()]
    if planar:
        steps += [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    chain = T.Compose(steps)
    return torch_epoch(
        lambda data: chain(
            decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        )
    )


def dali(planar: bool) -> Round:
    from nvidia.dali import fn, pipeline_def, types

    data = [np.frombuffer(photo, np.uint8) for photo in photos()]
    order = [index for batch in batches() for index in batch]

    @pipeline_def(batch_size=BATCH, num_threads=2, device_id=None)
    def pipe() -> Any:
        encoded = fn.external_source(
            source=lambda info: data[order[info.idx_in_epoch % N]], batch=False, parallel=False
        )
        image = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0]
        )
        image = fn.resize(image, size=[SIZE, SIZE], antialias=False)
        mirror = fn.random.coin_flip(probability=0.5)
        if not planar:
            return fn.flip(image, horizontal=mirror)
        return fn.crop_mirror_normalize(
            image,
            mirror=mirror,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * m for m in MEAN],
            std=[255 * s for s in STD],
        )

    built = pipe()
    built.build()

    def run() -> float:
        count = 0
        while count < N:
            built.run()
            count += BATCH
        return count

    return run


def stages() -> None:
    """Print what each step of one photo costs on one thread, in microseconds: the best of many rounds."""
    import simplejpeg

    from feedline import images
    from feedline.collate.buffers import BatchMemory, BufferPool
    from feedline.transforms.compose import Compose
    from feedline.transforms.images.convert import normalize_into
    from feedline.transforms.images.resample import resize_into
    from feedline.transforms.protocol import ItemContext

    chosen = photos()[:50]
    buffers = [np.empty((375, 500, 3), np.uint8) for _ in chosen]
    small, out = np.empty((SIZE, SIZE, 3), np.uint8), np.empty((3, SIZE, SIZE), np.float32)
    crop, pool = images.RandomResizedCrop(SIZE), BufferPool()
    boxes = [crop.box(375, 500, ItemContext(index, 0, 0)) for index in range(len(chosen))]
    whole, _ = pipeline(planar=True, antialias=True)
    part = Compose([images.Decode("RGB"), crop])

    def run(function: Callable[[int], Any]) -> float:
        best = math.inf
        for _ in range(15):
            start = time.perf_counter()
            for index in range(len(chosen)):
                function(index)
            best = min(best, (time.perf_counter() - start) / len(chosen))
        return best * 1e6

    def item(chain: Any, index: int) -> None:
        chain(chosen[index], ItemContext(index, 0, 0, BatchMemory(pool, 1), 0))

    rows = {
        "decode all of it": lambda i: simplejpeg.decode_jpeg(chosen[i], "RGB", buffer=buffers[i]),
        "decode the rows needed, crop, resize": lambda i: item(part, i),
        "draw the crop": lambda i: crop.box(375, 500, ItemContext(i, 0, 0)),
        "crop, resize antialiased": lambda i: resize_into(buffers[i], boxes[i], small),
        "crop, resize not antialiased": lambda i: resize_into(buffers[i], boxes[i], small, antialias=False),
        "flip": lambda i: images.HorizontalFlip()(small),
        "normalise into the batch": lambda i: normalize_into(small, MEAN, STD, out),
        "the whole chain, float32 NCHW": lambda i: item(whole, i),
    }
    for name, function in rows.items():
        print(f"  {name:40} {run(function):7.0f}")


def contest() -> Contest:
    made = Contest("benchmarks.images", "images/s", rounds=5)
    made.add("limit: decode alone", decode_alone, is_limit=True)
    for planar in (False, True):
        form = "float32 NCHW" if planar else "uint8 NHWC"
        for antialias in (True, False):
            smooth = "antialiased" if antialias else "not antialiased"
            made.add(f"{form}, {smooth}: by hand", lambda p=planar, a=antialias: by_hand(p, a))
            made.add(
                f"{form}, {smooth}: feedline",
                lambda p=planar, a=antialias: loader(photos(), *pipeline(p, a)),
            )
        made.add(f"{form}, not antialiased, fast: by hand", lambda p=planar: by_hand(p, False, True))
        made.add(
            f"{form}, not antialiased, fast: feedline",
            lambda p=planar: loader(photos(), *pipeline(p, False, True)),
        )
    made.add("float32 NCHW, antialiased: feedline, from files", from_files)
    made.add(
        "float32 NCHW, antialiased: feedline, plan=False",
        lambda: loader(photos(), *pipeline(True, True, plan=False)),
    )
    made.add(
        "float32 NCHW, antialiased: feedline, 2 processes",
        lambda: loader(photos(), *pipeline(True, True), worker_type="process"),
    )
    made.add("float32 NCHW, antialiased: Pillow threads", pillow_threads)
    made.add("float32 NCHW, antialiased: usual torch recipe", torch_recipe, is_peer=True)
    for planar in (False, True):
        form = "float32 NCHW" if planar else "uint8 NHWC"
        made.add(f"{form}: torchvision v2", lambda p=planar: torchvision_tensors(p), is_peer=True)
        made.add(f"{form}, not antialiased: DALI", lambda p=planar: dali(p), is_peer=True)
    return made


if __name__ == "__main__":
    if "--stages" in sys.argv:
        stages()
    else:
        contest().main()
