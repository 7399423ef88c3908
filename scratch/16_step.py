"""The kernels of one training step, under other limits: how much hangs on the constants?"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scratch.mlp_graph import step_graph
from uopc.schedule.limits import Limits, limits_of
from uopc.schedule.plan import Schedule, schedule
from uopc.target import target

roots = step_graph().roots
gpu = target("sm_80")
usual = limits_of(gpu)
others: dict[str, Limits] = {
    "a block may do 4 Ki": replace(usual, block_work=4 << 10),
    "... 64 Ki": replace(usual, block_work=64 << 10),
    "64 blocks fill the machine": replace(usual, blocks=64),
    "256 do": replace(usual, blocks=256),
    "a product holds no row": replace(usual, product_lanes=1),
    "a product of 64 Ki a block": replace(usual, product_work=64 << 10),
    "... of 2 Mi": replace(usual, product_work=2 << 20),
}


def row(name: str, made: Schedule) -> None:
    ratio = made.moved_bytes / made.least_bytes
    print(f"{name:26} {len(made.launches):7} {ratio:13.2f} {made.arena_bytes >> 10:12}")


print(f"{'':26} {'kernels':>7} {'bytes / least':>13} {'arena in KiB':>12}")
row("a GPU", schedule(roots, gpu))
row("a CPU", schedule(roots, target("cpu")))
row("a GPU, nothing fused", schedule(roots, gpu, fuse=False))
for name, limits in others.items():
    row(name, schedule(roots, gpu, limits=limits))
