"""Which decoder, and what decoding only a part saves: one thread, milliseconds of CPU time an image.

    python -m benchmarks.image_decoders [--rounds N]

CPU time of the one thread is measured, the best of several alternating rounds, so that other load on the machine shows
little. The limit is simplejpeg into one buffer that is reused. Decoders that are not installed are left out.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Decoder = Callable[[bytes], Any]


def photo_files(count: int, height: int, width: int) -> list[bytes]:
    """Return JPEGs (quality 90, 4:2:0) of photos with the noise of a sensor, so that they are as large as real ones."""
    import skimage.data
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photos = [
        *load_sample_images().images,
        skimage.data.astronaut(),
        skimage.data.coffee(),
        skimage.data.chelsea(),
    ]
    rng = np.random.default_rng(0)
    files = []
    for number in range(count):
        image = Image.fromarray(photos[number % len(photos)]).resize(
            (width, height), Image.Resampling.LANCZOS
        )
        pixels = np.asarray(image) + rng.normal(0, 8, (height, width, 3))
        file = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(
            file, "JPEG", quality=90, subsampling=2
        )
        files.append(file.getvalue())
    return files


def decoders(height: int, width: int) -> dict[str, Decoder]:
    """Return what decodes a whole JPEG to RGB, by name; the limit first."""
    import cv2
    import simplejpeg
    from PIL import Image

    from feedline.images import Decode

    buffer = np.empty(height * width * 3, np.uint8)
    found: dict[str, Decoder] = {
        "simplejpeg, buffer reused (limit)": lambda data: simplejpeg.decode_jpeg(data, buffer=buffer),
        "simplejpeg, new memory": simplejpeg.decode_jpeg,
        "simplejpeg, fast DCT and upsampling": lambda data: simplejpeg.decode_jpeg(
            data, buffer=buffer, fastdct=True, fastupsample=True
        ),
        "simplejpeg at 1/2": lambda data: simplejpeg.decode_jpeg(
            data, buffer=buffer, min_factor=2, min_height=1
        ),
        "OpenCV": lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB),
        "Pillow": lambda data: np.asarray(Image.open(io.BytesIO(data))),
        "feedline Decode('RGB')": Decode("RGB"),
    }
    try:
        import imagecodecs

        out = buffer.reshape(height, width, 3)
        found["imagecodecs"] = lambda data: imagecodecs.jpeg8_decode(data, out=out)
    except ImportError:
        pass
    try:
        from kornia_rs import io as kornia

        found["kornia-rs"] = lambda data: kornia.decode_image_jpegturbo(data, "rgb")
    except ImportError:
        pass
    return found


def chains(size: int) -> dict[str, Callable[[bytes, int], Any]]:
    """Return chains that decode, crop and resize, planned and step by step."""
    from feedline import Compose, ItemContext
    from feedline.images import CenterCrop, Decode, RandomResizedCrop, Resize

    def runs(*steps: Any, plan: bool) -> Callable[[bytes, int], Any]:
        chain = Compose(steps, plan=plan)
        return lambda data, index: chain(data, ItemContext(index, 0, 0))

    made: dict[str, Callable[[bytes, int], Any]] = {}
    for plan in (True, False):
        word = "planned" if plan else "step by step"
        made[f"random resized crop, {word}"] = runs(Decode("RGB"), RandomResizedCrop(size), plan=plan)
        made[f"resize, {word}"] = runs(Decode("RGB"), Resize(size), plan=plan)
        made[f"centre crop, {word}"] = runs(Decode("RGB"), CenterCrop(size), plan=plan)
    return made


def measure(work: dict[str, Callable[[], Any]], count: int, rounds: int) -> dict[str, float]:
    """Return milliseconds of this thread's CPU time an image, the best of `rounds` alternating rounds."""
    best = dict.fromkeys(work, float("inf"))
    for number in range(rounds + 1):
        for name, run in work.items():
            start = time.thread_time()
            run()
            if number:  # the first round warms up
                best[name] = min(best[name], (time.thread_time() - start) * 1000 / count)
    return best


def report(height: int, width: int, count: int, rounds: int) -> None:
    """Measure and print one size."""
    import cv2

    cv2.setNumThreads(0)  # this process measures one thread
    files = photo_files(count, height, width)
    print(f"\n{width} x {height}, {sum(map(len, files)) // count // 1000} kB a file")
    work: dict[str, Callable[[], Any]] = {
        name: lambda decode=decode: [decode(data) for data in files]  # type: ignore[misc]
        for name, decode in decoders(height, width).items()
    }
    work |= {
        name: lambda run=run: [run(data, index) for index, data in enumerate(files)]  # type: ignore[misc]
        for name, run in chains(224).items()
    }
    results = measure(work, count, rounds)
    limit = next(iter(results.values()))
    for name, milliseconds in results.items():
        print(f"  {name:36s} {milliseconds:8.2f} ms  {limit / milliseconds:5.2f} of the limit's speed")


def main() -> None:
    """Run the comparison."""
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
    report(375, 500, 60, rounds)
    report(768, 1024, 20, rounds)
    report(3000, 4000, 4, rounds)


if __name__ == "__main__":
    main()
