"""The training step that benchmarks and experiments share: the MLP 784-256-128-10 on batches of 64.

RMSprop with clipped gradients on random values; every step takes the next rows of a permutation.
"""

from __future__ import annotations

import numpy as np

from uopc.schedule.plan import Schedule
from uopc.tensor import Tensor, nn, optim
from uopc.tensor.engine import schedule_of
from uopc.tensor.optim import clip_grad_value_
from uopc.tensor.random import manual_seed

BATCH = 64


class Training:
    """The data, the network and its optimiser on one device; `step(index)` is one update."""

    def __init__(self, device: str, rows: int = 54_000, seed: int = 0) -> None:
        manual_seed(seed)
        rng = np.random.default_rng(seed)
        self.images = Tensor(rng.random((rows, 784), np.float32), device=device)
        self.labels = Tensor(rng.integers(0, 10, rows), device=device)
        self.order = rng.permutation(rows)
        self.net = nn.Sequential(
            *(nn.Linear(784, 256, device=device), nn.ReLU()),
            *(nn.Linear(256, 128, device=device), nn.ReLU()),
            nn.Linear(128, 10, device=device),
        )
        self.optimizer = optim.RMSprop(self.net.parameters(), lr=1e-3, alpha=0.99)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return len(self.order) // BATCH

    def batch(self, step: int) -> np.ndarray:
        """The rows of a step."""
        return self.order[step * BATCH : (step + 1) * BATCH]

    def loss(self, index: Tensor) -> Tensor:
        """The loss on these rows, with clipped gradients ready for the optimiser."""
        loss = nn.cross_entropy(self.net(self.images[index]), self.labels[index])
        self.optimizer.zero_grad()
        loss.backward()
        clip_grad_value_(self.net.parameters(), 1.0)
        return loss

    def step(self, index: Tensor) -> Tensor:
        """One update on these rows; the loss, not waited for."""
        loss = self.loss(index)
        self.optimizer.step()
        return loss

    def schedule(self, index: Tensor) -> Schedule:
        """The kernels of an update, which is not made."""
        loss = self.loss(index)
        return schedule_of(loss, *self.optimizer.updates())
