"""What splitting axes is worth: a transformer's training step with and without `refine`."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.schedule.models import transformer_training
from uopc.schedule.normalise import canonical, structure
from uopc.schedule.plan import schedule
from uopc.target import target
from uopc.tensor import storage
from uopc.tensor.engine import base_of
from uopc.uop.node import UOp, toposort

GPU = target("sm_80")


def step(layers: int) -> list[UOp]:
    """Forward, backward and Adam of so many layers, batch 4 x 1024, width 768."""
    asked = list(dict.fromkeys(base_of(t._u) for t in transformer_training(layers)))
    _, leaves = structure(asked, storage.becomes.get, frozenset())
    return canonical(asked, storage.becomes.get, leaves)[0]


def row(name: str, roots: list[UOp], fuse: bool = True) -> None:
    made = schedule(roots, GPU, fuse=fuse)
    sizes = [n / 2**20 for n in (made.moved_bytes, made.arena_bytes)]
    print(f"{name:22} {len(made.launches):8} {sizes[0]:9.0f} {sizes[1]:9.0f}")


print(f"{'':22} {'launches':>8} {'MiB moved':>9} {'MiB arena':>9}")
one, two = step(1), step(2)
row("one layer", one)
row("two", two)
with patch("uopc.schedule.plan.refine", lambda roots: {u: u for u in toposort(*roots)}):
    row("one, no axis split", one)
    row("two, no axis split", two)
row("one, nothing fused", one, fuse=False)
