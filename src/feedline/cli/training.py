"""The training run that `feedline demo` starts, stops, resumes and compares with an unbroken one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline import DataLoader, NdfDataset
from feedline.cli.digits import Classifier, nudge

__all__ = ["EPOCHS", "SEED", "EpochEnd", "Run", "one_thread_for_sums"]

EPOCHS = 15
BATCH = 32
WORKERS = 2
SEED = 7


@dataclass(frozen=True)
class EpochEnd:
    """How an epoch went: its number from 0, mean loss, held-out accuracy, and items per second, training included."""

    epoch: int
    loss: float
    accuracy: float
    items_per_second: float


class Run:
    """A training run over `train.ndf` in `folder`, from the start or from what `save` left there.

    Attributes:
        items: how many training images there are.
        loader: streams them.
        model: learns from them.
        digests: a checksum of each batch that this run was given, in order.
        accuracy: share of held-out images recognised at the end of the last epoch that was finished.
    """

    def __init__(self, folder: Path, resume: bool = False) -> None:
        self.folder = folder
        dataset = NdfDataset(folder / "train.ndf")
        self.items = len(dataset)
        self.loader = DataLoader(
            dataset,
            batch_size=BATCH,
            shuffle=True,
            seed=SEED,
            transform=nudge,
            num_workers=WORKERS,
        )
        steps = EPOCHS * len(self.loader)
        if resume:
            self.loader.load_state_dict(json.loads((folder / "state.json").read_text(encoding="utf-8")))
            self.model = Classifier.load(folder / "weights.npz", steps)
        else:
            self.model = Classifier(steps)
        held = NdfDataset(folder / "held_out.ndf")
        self._held = next(iter(DataLoader(held, batch_size=len(held))))
        self.digests: list[str] = []
        self.accuracy = 0.0

    def train(
        self,
        on_batch: Callable[[int, int, float], None],
        on_epoch: Callable[[EpochEnd], None],
        stop_after: int | None = None,
    ) -> None:
        """Train to the end, or until `stop_after` batches were learned, which may be anywhere in an epoch.

        Args:
            on_batch: called with (epoch, items done in this epoch, items per second) after each batch.
            on_epoch: called after each finished epoch.
        """
        for epoch in range(self.loader.epoch, EPOCHS):
            # Kept: the loader's state speaks of this iterator while it lives, also after the loop was left.
            self._iterator = iter(self.loader)
            before = BATCH * (len(self.loader) - len(self._iterator))
            losses, items, start = [], 0, time.perf_counter()
            for x, y in self._iterator:
                self.digests.append(_digest(x, y))
                losses.append(self.model.step(x, y))
                items += len(x)
                on_batch(epoch, before + items, items / (time.perf_counter() - start))
                if len(self.digests) == stop_after:
                    return
            seconds = time.perf_counter() - start
            self.accuracy = self.model.accuracy(*self._held)
            on_epoch(EpochEnd(epoch, float(np.mean(losses)), self.accuracy, items / seconds))

    def save(self) -> int:
        """Write where the loader stands and what the model knows; return how many bytes of JSON the former took."""
        text = json.dumps(self.loader.state_dict())
        (self.folder / "state.json").write_text(text, encoding="utf-8")
        self.model.save(self.folder / "weights.npz")
        return len(text)

    def close(self) -> None:
        """End the loader's workers."""
        self.loader.close()


def one_thread_for_sums() -> AbstractContextManager[Any]:
    """Hold NumPy's matrix products to one thread: how many there are may change the order of a sum, and so its bits."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def _digest(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> str:
    return hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
