"""The MLP epoch: 843 steps of batch 64 on 54,000 x 784 random values, every step a fresh batch.

uopc eager, uopc jit, and in the same process torch eager and torch with a CUDA graph captured by
hand.  Prints seconds an epoch (median of the repeats), the kernels of a step, and the ratio to the
better torch.
Run: python scratch/bench_mlp.py [repeats]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training import BATCH, Training
from uopc.runtime.buffer import synchronize
from uopc.runtime.cuda import why_unusable
from uopc.tensor import Tensor, jit

DEVICE = "cuda"


def epochs(run: Callable[[], None], repeats: int) -> float:
    """Median seconds of an epoch, after one to warm up."""
    times = []
    for k in range(repeats + 1):
        time.sleep(0.15)
        start = time.perf_counter()
        run()
        if k:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def with_uopc(eager: bool) -> tuple[Callable[[], None], Training]:
    training = Training(DEVICE)
    step = training.step if eager else jit(training.step)
    indices = [Tensor(training.batch(k), device=DEVICE) for k in range(training.steps)]

    def run() -> None:
        loss = None
        for index in indices:
            loss = step(index)
        assert loss is not None
        loss.item()
        synchronize(DEVICE)

    return run, training


def with_torch(graph: bool) -> Callable[[], None]:
    import torch

    training = Training("cpu")
    images = torch.from_numpy(training.images.numpy()).cuda()
    labels = torch.from_numpy(training.labels.numpy()).cuda()
    order = torch.from_numpy(training.order).cuda()
    net = torch.nn.Sequential(
        *(torch.nn.Linear(784, 256), torch.nn.ReLU()),
        *(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)),
    ).cuda()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.99, capturable=graph)
    index = order[:BATCH].clone()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(images[index]), labels[index])
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    if graph:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()

    def run() -> None:
        for k in range(training.steps):
            index.copy_(order[k * BATCH : (k + 1) * BATCH])
            if graph:
                captured.replay()
            else:
                step()
        torch.cuda.synchronize()

    return run


def main(repeats: int) -> None:
    if reason := why_unusable():
        print(reason)
        sys.exit(3)
    rows = []
    run, _ = with_uopc(eager=False)
    rows.append(("uopc jit", epochs(run, repeats)))
    run, _ = with_uopc(eager=True)
    rows.append(("uopc eager", epochs(run, 1)))
    rows.append(("torch, CUDA graph", epochs(with_torch(graph=True), repeats)))
    rows.append(("torch eager", epochs(with_torch(graph=False), 1)))
    for name, seconds in rows:
        print(f"{name:20s} {seconds:8.4f} s an epoch of 843 steps")
    best = min(seconds for name, seconds in rows if name.startswith("torch"))
    print(f"uopc jit against the better torch: {best / rows[0][1]:.2f}x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
