"""Handwritten digits in PyTorch: one changed import, a run that is stopped in mid-epoch, and one that goes on.

    python examples/digits_torch.py

Needs torch and scikit-learn (which brings the images along).
"""

from __future__ import annotations

import itertools
import json

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from feedline.torch import DataLoader, to_device  # instead of: from torch.utils.data import DataLoader

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def digits() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32) / 16
    y = torch.tensor(labels)
    return TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])


def new_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(DEVICE)
    return model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches) -> None:
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    with torch.no_grad():
        right = [
            (model(x).argmax(1) == y).sum().item() for x, y in to_device(DataLoader(dataset, 256), DEVICE)
        ]
    return sum(right) / len(dataset)


def main() -> None:
    torch.set_num_threads(1)  # for matrices this small, more threads only wait for each other
    training, test = digits()

    def new_loader():
        # The order of epoch e is a function of (seed, e): no global seed is needed, none is touched.
        return to_device(DataLoader(training, batch_size=32, shuffle=True, seed=1), DEVICE)

    # A run without interruption: eight epochs.
    model, optimizer = new_model()
    loader = new_loader()
    for _ in range(8):
        train(model, optimizer, loader)
    print(f"accuracy after 8 epochs: {accuracy(model, test):.1%}")

    # The same, stopped after 20 batches of the second epoch ...
    stopped, its_optimizer = new_model()
    loader = new_loader()
    train(stopped, its_optimizer, loader)
    train(stopped, its_optimizer, itertools.islice(loader, 20))
    checkpoint = {
        "model": stopped.state_dict(),
        "optimizer": its_optimizer.state_dict(),
        "loader": json.dumps(loader.state_dict()),
    }

    # ... and resumed by another process, as it were: the next batch is the 21st.
    resumed, its_optimizer = new_model()
    resumed.load_state_dict(checkpoint["model"])
    its_optimizer.load_state_dict(checkpoint["optimizer"])
    loader = new_loader()
    loader.load_state_dict(json.loads(checkpoint["loader"]))
    while loader.epoch < 8:
        train(resumed, its_optimizer, loader)
    print(f"accuracy of the resumed run: {accuracy(resumed, test):.1%}")
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters(), strict=True))
    print(f"weights are equal, bit for bit: {same}")
    if not same and DEVICE == "cpu":
        raise SystemExit("they should be")


if __name__ == "__main__":
    main()
