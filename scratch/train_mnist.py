"""Train a network on the digits that come with uopc, on any device, and draw what it gets wrong.

    python scratch/train_mnist.py --device cpu --epochs 10 --seed 0 --out digits.png

784-256-128-10 with ReLU; batches of 64 by a gather; RMSprop with gradients clipped by value; the
whole step is captured once and replayed.  The first 9,000 digits train, the last 1,000 test.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from uopc.demo import digits
from uopc.dtype import dtypes
from uopc.tensor import Tensor, default_device, jit, nn, no_grad, optim, set_default_device
from uopc.tensor.random import manual_seed

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

BATCH = 64
WIDTHS = (784, 256, 128, 10)
SHOWN = 20  # steps between looks at the loss: each look waits for the device
GRID = 5  # rows and columns of the picture's wrong digits


@dataclass(frozen=True)
class Trained:
    """Losses of the steps, in order; what the network says of each test image, and the truth."""

    losses: Array
    predicted: Array
    truth: Array
    images: Array

    @property
    def accuracy(self) -> float:
        """The share of test images that are right."""
        return float((self.predicted == self.truth).mean())


def network() -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.ReLU()] if layers else []
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers)


def pixels(images: Tensor) -> Tensor:
    """u8 as f32 from 0 to 1."""
    return images.cast(dtypes.f32) / 255.0


def train(
    epochs: int, seed: int, steps: int | None, progress: Callable[[int, int, float], None]
) -> Trained:
    """Train on the default device.  steps: at most so many; progress hears step, of all, loss."""
    train_images, train_labels, test_images, truth = digits().parts
    images, labels = Tensor(train_images), Tensor(train_labels.astype(np.int32))
    manual_seed(seed)
    shuffle = np.random.default_rng(seed)
    net = network()
    optimizer = optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.99)

    @jit
    def step(batch: Tensor) -> Tensor:
        loss = nn.cross_entropy(net(pixels(images[batch])), labels[batch])
        loss.backward()
        optim.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    each = len(train_images) // BATCH
    total = epochs * each if steps is None else min(steps, epochs * each)
    losses: list[float] = []
    running: list[Tensor] = []
    for n in range(total):
        if n % each == 0:
            order = shuffle.permutation(len(train_images)).astype(np.int32)
        at = n % each * BATCH
        running.append(step(Tensor(order[at : at + BATCH])))
        if len(running) == SHOWN or n + 1 == total:
            losses += [float(loss) for loss in running]
            running.clear()
            progress(n + 1, total, losses[-1])
    with no_grad():
        predicted = net(pixels(Tensor(test_images))).argmax(1).numpy()
    return Trained(np.array(losses), predicted, truth, test_images)


def draw(trained: Trained, path: Path) -> None:
    """A PNG of the losses, and of digits that were taken for others."""
    from matplotlib.figure import Figure  # only here: training needs no picture

    wrong = np.flatnonzero(trained.predicted != trained.truth)[: GRID * GRID]
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False)[0]
    axes = left.subplots()
    axes.plot(trained.losses, linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title=f"{trained.accuracy:.1%} right")
    right.suptitle("digit, answer")
    cells = right.subplots(GRID, GRID)
    for cell in cells.flat:
        cell.set_axis_off()
    for cell, n in zip(cells.flat, wrong, strict=False):
        cell.imshow(trained.images[n].reshape(28, 28), cmap="gray_r")
        cell.set_title(f"{trained.truth[n]}, {trained.predicted[n]}", fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", help="cpu, emulated or cuda (default: UOPC_DEVICE)")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--out", type=Path, help="write a picture there (PNG)")
    options = parser.parse_args()
    set_default_device(options.device)
    out = Console()
    columns = (
        TextColumn(f"training on {default_device()}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out) as bar:
        task = bar.add_task("training", total=None, loss=float("nan"))
        trained = train(
            options.epochs,
            options.seed,
            options.steps,
            lambda n, total, loss: bar.update(task, completed=n, total=total, loss=loss),
        )
    if options.out is not None:
        try:
            draw(trained, options.out)
            out.print(f"picture: {options.out}")
        except ImportError:
            out.print("no picture: matplotlib is not installed (pip install matplotlib)")
    print(f"test accuracy: {trained.accuracy:.1%}")


if __name__ == "__main__":
    main()
