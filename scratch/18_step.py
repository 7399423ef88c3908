"""One training step of a small network, for `uopc profile scratch/18_step.py:step`."""

from __future__ import annotations

from uopc.tensor import Tensor, nn, optim, randn

x, target = randn(256, 64).realize(), randn(256, 8).realize()
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = optim.SGD(net.parameters(), lr=0.01)


def step() -> Tensor:
    """Forward, backward, update; returns the loss."""
    loss = ((net(x) - target) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss
