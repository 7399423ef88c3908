"""Seconds that the scheduler takes: training steps of transformers of 1, 2, 4 and 8 layers.

    python scratch/bench_schedule.py                microseconds a node, kernels, parts of the time
    python scratch/bench_schedule.py --profile 4    where the time goes, with 4 layers

Forward, backward and Adam, on no device.  Time is that of the processor, the least of three runs
(best on an idle core): of the whole schedule, and of refining axes within it; before that, of
making the graph canonical and of the key under which a schedule is found again.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.schedule.models import DEVICE, transformer_training
from uopc.schedule.normalise import canonical, structure
from uopc.schedule.plan import schedule
from uopc.schedule.refine import refine
from uopc.target import target
from uopc.tensor.engine import base_of
from uopc.uop.node import UOp, toposort

LAYERS = (1, 2, 4, 8)
GPU = target("sm_90a")
T = TypeVar("T")


def nothing_known(u: UOp) -> UOp | None:
    """No value is in memory."""
    return None


def training(layers: int) -> tuple[list[UOp], list[UOp]]:
    """(what a step asks for, the leaves that it reads)."""
    roots = list(dict.fromkeys(base_of(t._u) for t in transformer_training(layers, device=DEVICE)))
    return roots, structure(roots, nothing_known, frozenset())[1]


def least(run: Callable[[], T], times: int = 3) -> tuple[T, float]:
    """(what it returns, the seconds of its quickest run)."""
    best = float("inf")
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        made = run()
        best = min(best, time.process_time() - start)
    return made, best


def timed(layers: int) -> str:
    roots, leaves = training(layers)
    _, key_s = least(lambda: structure(roots, nothing_known, frozenset()))
    (plain, _), canonical_s = least(lambda: canonical(roots, nothing_known, leaves))
    nodes = len(toposort(*plain))
    _, refine_s = least(lambda: refine(plain))
    plan, whole_s = least(lambda: schedule(plain, GPU))

    def each(seconds: float) -> str:
        return f"{seconds / nodes * 1e6:.0f}"

    return (
        f"{layers:6}  {nodes:6}  {len(plan.launches):7}  {whole_s:8.3f}  {each(whole_s):>9}  "
        f"{each(refine_s):>6}  {each(canonical_s):>9}  {each(key_s):>4}"
    )


def profile(layers: int) -> None:
    roots, leaves = training(layers)
    plain: Sequence[UOp] = canonical(roots, nothing_known, leaves)[0]
    with cProfile.Profile() as profiler:
        schedule(plain, GPU)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", type=int, metavar="LAYERS")
    given = parser.parse_args()
    if given.profile:
        profile(given.profile)
        return
    print("layers   nodes  kernels   seconds   us/node  refine  canonical   key")
    for layers in LAYERS:
        print(timed(layers), flush=True)


if __name__ == "__main__":
    main()
