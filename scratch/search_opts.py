"""How far is the automatic choice from what a random search finds, kernel by kernel of a step?

Each kernel of a schedule is compiled under the automatic Opts and under random ones, and timed as a
CUDA graph of many launches.  Prints the automatic time, the best one and its Opts.
Run: python scratch/search_opts.py [candidates]
"""

from __future__ import annotations

import math
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training import Training
from uopc.choose.facts import KernelFacts
from uopc.compiled import Kernel
from uopc.errors import UopcError
from uopc.kernel import KernelBody
from uopc.opts import Opts
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.share import share
from uopc.pipeline import compile_kernel
from uopc.runtime.buffer import Buffer, synchronize
from uopc.runtime.executor import Launcher, errors_of
from uopc.runtime.graph import Launch, Replay
from uopc.target import Target
from uopc.tensor import Tensor
from uopc.tensor.prepare import target_of
from uopc.uop.node import prod, toposort
from uopc.uop.ops import Ops

DEVICE = "cuda"
LAUNCHES = 50


def random_opts(facts: KernelFacts, rng: random.Random) -> Opts:
    """Threads up to 1024 over any axes, small copies, vectors where the last digit allows."""
    local: dict[int, int] = {}
    upcast: dict[int, int] = {}
    room = rng.choice((64, 128, 256, 512, 1024))
    axes = list(range(len(facts.axes)))
    rng.shuffle(axes)
    for a in axes:
        n = 1 << rng.randint(0, 8)
        n = min(n, 1 << max(0, facts.sizes[a] - 1).bit_length(), room // math.prod(local.values()))
        if n > 1:
            local[a] = n
    for a in axes:
        if rng.random() < 0.35:
            upcast[a] = min(rng.choice((2, 4)), facts.sizes[a])
    lanes = tuple(rng.sample(axes, len(axes)))
    grid = tuple(a for a in lanes if a in facts.outputs)
    return Opts(gpu=True, local=local, upcast=upcast, lanes=lanes, grid=grid)


def built(body: KernelBody, name: str, target: Target, opts: Opts) -> Kernel | None:
    """The kernel under these Opts, its cubins made; None where they do not fit."""
    try:
        kernel = compile_kernel(body, target, name, opts=opts)
        for step in kernel.steps:
            _ = step.cubin
    except UopcError:
        return None
    return kernel


def measure(kernel: Kernel, buffers: dict[int, Buffer]) -> float:
    """Microseconds a launch."""
    own = dict(buffers)
    for p in kernel.partials:
        own[p.arg.slot] = Buffer(DEVICE, p.dtype, prod(p.arg.shape))
    work = []
    for step in kernel.steps:
        launcher = Launcher(step, DEVICE)
        work.append(Launch(launcher, {s: own[s] for s in launcher.slots}))
    replay = Replay(work * LAUNCHES)
    best = math.inf
    for _ in range(4):
        synchronize(DEVICE)
        start = time.perf_counter()
        replay()
        synchronize(DEVICE)
        best = min(best, time.perf_counter() - start)
    return best / LAUNCHES * 1e6


def main(candidates: int) -> None:
    rng = random.Random(0)
    training = Training(DEVICE, rows=4096)
    training.step(Tensor(training.batch(0), device=DEVICE))
    plan = training.schedule(Tensor(training.batch(1), device=DEVICE))
    target = target_of(DEVICE)
    total = best_total = 0.0
    for launch in plan.launches:
        body = launch.body
        roots = [u for o in body.outputs for u in (o.value, o.memory)]
        memories = {u.arg.slot: u for u in toposort(*roots) if u.op is Ops.BUFFER}
        buffers = {s: Buffer(DEVICE, u.dtype, prod(u.shape)).zero() for s, u in memories.items()}
        if body.errors is not None:
            buffers[body.errors.arg.slot] = errors_of(DEVICE)
        facts = KernelFacts.of_indexed(share(rangeify_kernel(body), given=True))
        automatic = compile_kernel(body, target, launch.name)
        auto_us = measure(automatic, buffers)
        tried = list(dict.fromkeys(random_opts(facts, rng) for _ in range(candidates)))

        with ThreadPoolExecutor(16) as pool:
            made = pool.map(partial(built, body, launch.name, target), tried)
            kernels = [k for k in made if k is not None]
        timed = sorted(((measure(k, buffers), str(k.opts)) for k in kernels), key=lambda x: x[0])
        total += auto_us
        best_total += min(timed[0][0], auto_us)
        print(f"{launch.name}  sizes {facts.sizes} outputs {facts.outputs} reduced {facts.reduced}")
        print(f"  automatic {auto_us:7.2f} us  {[str(s.opts) for s in automatic.steps]}")
        for us, opts in timed[:3]:
            print(f"  found     {us:7.2f} us  {opts}")
    print(f"step: automatic {total:.1f} us, best {best_total:.1f} us")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
