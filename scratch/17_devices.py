"""One training on two devices, launch by launch and replayed: how far are the losses apart?"""

from __future__ import annotations

import numpy as np

from uopc.demo import digits
from uopc.tensor import Tensor, jit, nn, optim
from uopc.tensor.random import manual_seed

STEPS, BATCH = 12, 64


def losses(device: str, captured: bool) -> list[float]:
    """The losses of the first steps of 784-64-10 on the digits."""
    images, labels, *_ = digits().parts
    pixels = Tensor(images.astype(np.float32) / 255, device=device)
    classes = Tensor(labels.astype(np.int32), device=device)
    manual_seed(0)
    net = nn.Sequential(
        *(nn.Linear(784, 64, device=device), nn.ReLU(), nn.Linear(64, 10, device=device))
    )
    optimizer = optim.RMSprop(net.parameters(), lr=1e-3)

    def step(rows: Tensor) -> Tensor:
        loss = nn.cross_entropy(net(pixels[rows]), classes[rows])
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if captured else step
    order = np.random.default_rng(0).permutation(len(images)).astype(np.int32)
    batches = order[: STEPS * BATCH].reshape(STEPS, BATCH)
    return [float(run(Tensor(batch, device=device))) for batch in batches]


found = {}
for device in ("cpu", "emulated"):
    for captured in (False, True):
        found[device, captured] = losses(device, captured)
        name = f"{device}, {'replayed' if captured else 'eager'}"
        print(f"{name:19}", *[f"{x:.2f}" for x in found[device, captured]])
for device in ("cpu", "emulated"):
    print(
        f"{device}: replayed is eager, bit for bit: {found[device, True] == found[device, False]}"
    )
apart = np.abs(np.subtract(found["cpu", False], found["emulated", False])).max()
print(f"the two devices are within 1e-5: {apart < 1e-5}")
