"""Digits: a small network that learns scikit-learn's images of handwritten digits in seconds."""

from __future__ import annotations

from typing import Any

from hookline.optional import need

TRAIN = 1500
BATCH = 50
RATE = 3e-3
SLIPPED = 1.0
"""The learning rate, and one that is far too large: somebody's schedule gave a factor instead of a rate."""


class Digits:
    """The network (`model`), its data, and a training loop.

    >>> digits = Digits()
    >>> digits.fit(epochs=1)
    >>> 0.3 < digits.accuracy() <= 1
    True
    """

    def __init__(self, seed: int = 0) -> None:
        self._torch = torch = need("torch", what="the example Digits")
        data = need("sklearn.datasets", "scikit-learn", "the example Digits").load_digits()
        self._random = torch.Generator().manual_seed(seed)
        self.images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
        self.labels = torch.tensor(data.target)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = _network(torch.nn)

    @property
    def unseen(self) -> int:
        """How many images the network is not trained on."""
        return len(self.labels) - TRAIN

    def fit(self, epochs: int, slip: int | None = None) -> None:
        """Trains on the first 1500 images: 30 steps an epoch. From step `slip` on it is broken on purpose."""
        torch = self._torch
        self.optimizer = optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        self.model.train()
        step = 0
        for _ in range(epochs):
            for batch in torch.randperm(TRAIN, generator=self._random).split(BATCH):
                if step == slip:
                    optimizer.param_groups[0]["lr"] = SLIPPED
                optimizer.zero_grad()
                self.loss(batch).backward()
                optimizer.step()
                step += 1
        self.model.eval()

    def loss(self, some: Any) -> Any:
        """The cross-entropy on the images of these numbers."""
        return self._torch.nn.functional.cross_entropy(self.model(self.images[some]), self.labels[some])

    def accuracy(self) -> float:
        """The share of the images it was not trained on that the network names right."""
        with self._torch.no_grad():
            right = self.model(self.images[TRAIN:]).argmax(1) == self.labels[TRAIN:]
        return float(right.float().mean())


def _network(nn: Any) -> Any:
    """Layers with names that a table is easy to read by."""
    model = nn.Sequential()
    for number, (inside, outside) in enumerate([(1, 16), (16, 32)], 1):
        model.add_module(f"conv{number}", nn.Conv2d(inside, outside, 3, padding=1))
        model.add_module(f"norm{number}", nn.BatchNorm2d(outside))
        model.add_module(f"relu{number}", nn.ReLU(inplace=True))
        model.add_module(f"pool{number}", nn.MaxPool2d(2))
    model.add_module("flatten", nn.Flatten())
    model.add_module("hidden", nn.Linear(128, 64))
    model.add_module("relu3", nn.ReLU(inplace=True))
    model.add_module("classify", nn.Linear(64, 10))
    return model
