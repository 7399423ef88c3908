"""A training step to profile: the MLP of the digits, captured once and replayed.

    uopc profile scratch/18_step.py:step                 where its time goes, on a GPU
    uopc profile scratch/18_step.py:step --device cpu    the same on this machine's processor

As a script it runs forty steps, and says whether the loss falls.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training import Training
from uopc.tensor import Tensor, default_device, jit

training = Training(default_device(), rows=4096)
captured = jit(training.step)
index = Tensor(training.batch(0), device=default_device())


def step() -> Tensor:
    """One update; what `uopc profile` runs."""
    return captured(index)


if __name__ == "__main__":
    first = step().item()
    for _ in range(39):
        last = step().item()
    print(f"the loss of one batch falls: {last < first}")
