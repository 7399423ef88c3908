"""The graph of one training step of the MLP 784-256-128-10: for experiments with the scheduler.

Nothing is compiled or run.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from uopc.dtype import dtypes
from uopc.schedule.normalise import canonical, structure
from uopc.tensor import Tensor, nn, optim, storage
from uopc.tensor.base import memory_of
from uopc.tensor.engine import base_of
from uopc.uop.node import UOp

BATCH, WIDTHS = 64, (784, 256, 128, 10)
DEVICE = "emulated"


@dataclass(frozen=True)
class StepGraph:
    """roots: the loss, and the new parameters and states, over numbered leaves; leaves: a name for
    each of these."""

    roots: list[UOp]
    leaves: list[str]


def step_graph() -> StepGraph:
    """RMSprop with clipped gradients on one batch of 9,000 images."""
    images = _leaf((9000, 784))
    labels = Tensor([0] * 9000, dtypes.i32, DEVICE)
    rows = Tensor(range(BATCH), dtypes.i32, DEVICE)
    shapes = [s for k, n in itertools.pairwise(WIDTHS) for s in ((n, k), (n,))]
    parameters = [_leaf(shape, requires_grad=True) for shape in shapes]
    optimizer = optim.RMSprop(parameters, lr=1e-3)
    names = {"images": images, "labels": labels, "rows": rows, "lr": optimizer.lr}
    for n, (p, state) in enumerate(zip(parameters, optimizer.state, strict=True)):
        name = f"{'Wb'[n % 2]}{n // 2 + 1}"
        names |= {name: p, f"s{name}": state["square"]}
    known = {memory_of(t._u): name for name, t in names.items()}

    x = images[rows]
    for n in range(0, len(parameters), 2):
        x = (x.relu() if n else x) @ parameters[n].T + parameters[n + 1]
    loss = nn.cross_entropy(x, labels[rows])
    loss.backward()
    optim.clip_grad_value_(parameters, 1.0)
    asked = [base_of(t._u) for t in (loss, *optimizer.updates())]
    _, leaves = structure(asked, storage.becomes.get, frozenset())
    roots, _ = canonical(asked, storage.becomes.get, leaves)
    return StepGraph(roots, [known[u] for u in leaves])


def _leaf(shape: tuple[int, ...], requires_grad: bool = False) -> Tensor:
    return Tensor(np.zeros(shape, np.float32), device=DEVICE, requires_grad=requires_grad)
