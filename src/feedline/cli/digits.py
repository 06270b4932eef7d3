"""What `feedline demo` trains: scikit-learn's handwritten digits, and a small classifier in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import MissingExtraError
from feedline.transforms.protocol import ItemContext

__all__ = ["Classifier", "Digits", "load_digits", "nudge"]

Floats = npt.NDArray[np.float64]

HIDDEN = 256
CLASSES = 10
RATE = 0.008
#: How far an image is moved at most, along each axis, in pixels.
REACH = 0.5


@dataclass(frozen=True)
class Digits:
    """Images of shape `(n, 64)`, 8 x 8 pixels between 0 and 1, and their digits `(n, 1)`; all float64."""

    train_x: Floats
    train_y: Floats
    held_x: Floats
    held_y: Floats


def load_digits() -> Digits:
    """Return the 1,797 images that come with scikit-learn; every fifth is held out.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("the demo", "demo") from error
    x, y = load(return_X_y=True)
    x, y = x / 16.0, y[:, None].astype(np.float64)
    held = np.arange(len(x)) % 5 == 0
    return Digits(x[~held], y[~held], x[held], y[held])


def nudge(item: tuple[Floats, Floats], context: ItemContext) -> tuple[Floats, Floats]:
    """Move an image by up to half a pixel along each axis, at random: a function of (seed, epoch, index) alone."""
    row, label = item
    image = np.zeros((10, 10))
    image[1:9, 1:9] = row.reshape(8, 8)
    down, right = context.rng.uniform(-REACH, REACH, 2)
    image += abs(down) * (np.roll(image, 1 if down > 0 else -1, axis=0) - image)
    image += abs(right) * (np.roll(image, 1 if right > 0 else -1, axis=1) - image)
    moved = context.allocate((64,), np.float64)
    moved.reshape(8, 8)[:] = image[1:9, 1:9]
    return moved, label


class Classifier:
    """One hidden layer, trained by Adam (Kingma and Ba, 2015) with a rate that falls along a half cosine.

    Attributes:
        state: everything that training changes, by name: weights, both moments of each, and the number of steps.

    Args:
        state: what `state` was when it was saved; by default a new start, the same every time.
        steps: how many steps the whole training has.

    Determinism: the same batches in the same order give the same bits, on one machine with one thread for sums.
    """

    NAMES = ("w1", "b1", "w2", "b2")

    def __init__(self, steps: int, state: dict[str, npt.NDArray[Any]] | None = None) -> None:
        self.steps = steps
        self.state = dict(state) if state is not None else _new_state()

    def step(self, x: Floats, y: Floats) -> float:
        """Learn from a batch, images `(b, 64)` and digits `(b, 1)`; return the mean cross-entropy before the step."""
        weights = [self.state[name] for name in self.NAMES]
        inside = x @ weights[0] + weights[1]
        hidden = np.maximum(inside, 0.0)
        logits = hidden @ weights[2] + weights[3]
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        odds /= odds.sum(axis=1, keepdims=True)
        right = (np.arange(len(x)), y[:, 0].astype(np.int64))
        loss = float(-np.log(odds[right]).mean())
        odds[right] -= 1.0
        odds /= len(x)
        back = (odds @ weights[2].T) * (inside > 0)
        self._descend([x.T @ back, back.sum(axis=0), hidden.T @ odds, odds.sum(axis=0)])
        return loss

    def accuracy(self, x: Floats, y: Floats) -> float:
        """Return the share of images whose digit is recognised."""
        w1, b1, w2, b2 = (self.state[name] for name in self.NAMES)
        guesses = (np.maximum(x @ w1 + b1, 0.0) @ w2 + b2).argmax(axis=1)
        return float((guesses == y[:, 0]).mean())

    def save(self, path: Path) -> None:
        """Write `state` to an `.npz` file."""
        arrays: dict[str, Any] = self.state
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path, steps: int) -> Classifier:
        """Return the classifier that `save` wrote."""
        with np.load(path) as arrays:
            return cls(steps, dict(arrays))

    def _descend(self, gradients: list[Floats]) -> None:
        self.state["step"] = self.state["step"] + 1
        t = int(self.state["step"])
        rate = RATE * 0.5 * (1.0 + np.cos(np.pi * t / self.steps))
        for name, gradient in zip(self.NAMES, gradients):
            first, second = self.state[f"{name}.first"], self.state[f"{name}.second"]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            size = np.sqrt(second / (1 - 0.999**t)) + 1e-8
            self.state[name] -= rate * (first / (1 - 0.9**t)) / size


def _new_state() -> dict[str, npt.NDArray[Any]]:
    # RandomState's streams are frozen, so the demo starts from the same weights in every version of NumPy.
    random = np.random.RandomState(0)
    weights = {
        "w1": random.standard_normal((64, HIDDEN)) * np.sqrt(2 / 64),
        "b1": np.zeros(HIDDEN),
        "w2": random.standard_normal((HIDDEN, CLASSES)) * np.sqrt(2 / HIDDEN),
        "b2": np.zeros(CLASSES),
    }
    moments = {f"{name}.{m}": np.zeros_like(w) for name, w in weights.items() for m in ("first", "second")}
    return {**weights, **moments, "step": np.zeros((), np.int64)}
