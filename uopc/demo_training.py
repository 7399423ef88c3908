"""The demo's second part: a network trained on the same digits, as a user of `Tensor` writes it.

On the CPU, with native kernels: the scheduler makes them, the optimiser's updates ride in them, and
a captured step is replayed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console

from uopc.dtype import dtypes
from uopc.printing import duration, heading, paragraph
from uopc.tensor import Tensor, explain, jit, nn, no_grad, optim
from uopc.tensor.random import manual_seed

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

DEVICE = "cpu"
BATCH = 64
STEPS = 140  # one pass over 9,000 images
HIDDEN = (256, 128)
CLASSES = 10


@dataclass(frozen=True)
class Trained:
    """The loss of each step; the share of test images that are right; the kernels that answer, in
    words; seconds of it all, compilers included."""

    losses: tuple[float, ...]
    accuracy: float
    kernels: str
    time_s: float


def network(pixels: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    first, second = HIDDEN
    return nn.Sequential(
        *(nn.Linear(pixels, first, device=DEVICE), nn.ReLU()),
        *(nn.Linear(first, second, device=DEVICE), nn.ReLU()),
        nn.Linear(second, CLASSES, device=DEVICE),
    )


def train(parts: tuple[Array, Array, Array, Array], steps: int) -> Trained:
    """RMSprop on random batches.

    parts: images u8 (n, pixels) and labels (n,) to train on, and as many arrays to test on.
    """
    start = time.perf_counter()
    train_images, train_labels, test_images, truth = parts
    images = Tensor(train_images, device=DEVICE)
    labels = Tensor(train_labels.astype(np.int32), device=DEVICE)
    manual_seed(0)
    net = network(images.shape[1])
    optimizer = optim.RMSprop(net.parameters(), lr=1e-3)

    def scaled(pixels: Tensor) -> Tensor:
        return pixels.cast(dtypes.f32) * (1 / 255)

    @jit
    def step(batch: Tensor) -> Tensor:
        loss = nn.cross_entropy(net(scaled(images[batch])), labels[batch])
        loss.backward()
        optimizer.step()
        return loss

    lazy = [step(Tensor(batch, device=DEVICE)) for batch in batches(len(train_labels), steps)]
    losses = tuple([float(loss) for loss in lazy])
    with no_grad():
        answer = net(scaled(Tensor(test_images, device=DEVICE))).argmax(1)
    kernels = explain(answer)
    right = float((answer.numpy() == truth).mean())
    return Trained(losses, right, kernels, time.perf_counter() - start)


def batches(count: int, steps: int) -> Sequence[Array]:
    """Rows of each step: permutations of all, one after the other, cut into batches."""
    shuffle = np.random.default_rng(0)
    passes = -(-steps * BATCH // count)
    rows = np.concatenate([shuffle.permutation(count) for _ in range(passes)]).astype(np.int32)
    return list(rows[: steps * BATCH].reshape(steps, BATCH))


def show(out: Console, trained: Trained) -> None:
    """Print what came of it."""
    first, second = HIDDEN
    heading(out, f"A network on the same digits, with Tensor on the {DEVICE}")
    paragraph(
        out,
        f"Hidden layers of {first} and {second}, {len(trained.losses)} steps of {BATCH} images, "
        f"RMSprop: {duration(trained.time_s)} with compiling.",
    )
    shown = sorted({0, *range(19, len(trained.losses), 20), len(trained.losses) - 1})
    paragraph(out, "loss  " + "  ".join(f"{trained.losses[n]:.2f}" for n in shown))
    out.print("The kernels of its answer, with the reason why each result has memory:")
    for line in trained.kernels.splitlines():
        out.print(f"  {line}", soft_wrap=True)
    heading(out, f"{trained.accuracy:.1%} of the test images are right.")
