"""Every kernel of the suite, launched and emulated: the same bits.  Needs a GPU.

    python scratch/same_bits.py [RANDOM]     how many random kernels, 300 unless told otherwise

The suite under automatic Opts, every op on every dtype, every transcendental as exact math, random
kernels under random Opts at odd and prime shapes, hand-written kernels for each family of ops.
Equal means every bit, but that one NaN is as good as another.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.device import why_no_gpu
from tests.examples.launch import emulated as emulate_example
from tests.examples.launch import launched as launch_example
from tests.examples.launch import runs_here
from tests.kernels import arrays_of
from tests.random_kernels import random_case
from tests.suite import OPS, ROUNDED, SUITE, bodies_of
from tests.three_ways import REFUSED, random_opts
from uopc import Numerics
from uopc.errors import TargetError, UsageError
from uopc.examples import EXAMPLES
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.render.emulate import render_emulated
from uopc.runtime.program import Program
from uopc.uop.node import UOp, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import TRANSCENDENTAL, Ops

Outputs: TypeAlias = Sequence[Array]
Pair: TypeAlias = tuple[str, Outputs, Outputs]


def both(name: str, bodies: list[UOp], opts: Opts | None, arrays: dict[int, Array]) -> Pair:
    """One kernel, launched and emulated step by step from the same PROGRAM."""
    exact = any(u.op in TRANSCENDENTAL for u in toposort(*bodies))
    kernel = compile(bodies, opts, "cuda", numerics=Numerics(exact_math=exact))
    launched = kernel(*(arrays[s] for s in sorted(arrays)))
    launched = launched if isinstance(launched, list) else [launched]
    memory = dict(arrays)
    for step in kernel.steps:
        for p in step.source.params:
            if p.slot not in memory:
                memory[p.slot] = np.zeros(p.size, p.dtype.numpy)
        text = render_emulated(step.program, step.source.name, target=step.source.target)
        Program(text)(*(memory[p.slot] for p in step.source.params))
    first = 1 + max(arrays, default=-1)
    return name, launched, [memory[first + n].reshape(g.shape) for n, g in enumerate(launched)]


def of_suite() -> Iterator[Pair]:
    for name, build in {**SUITE, **ROUNDED, **OPS}.items():
        bodies = bodies_of(build())
        yield both(name, bodies, None, arrays_of(*bodies))


def of_chance(count: int) -> Iterator[Pair]:
    for seed in range(count):
        rng = random.Random(seed)
        case = random_case(rng)
        bodies = list(case.bodies)
        if any(0 in b.shape for b in bodies):
            continue
        opts = random_opts(rng, bodies, gpu=True) if seed % 4 else None
        read = {u.arg.slot for u in toposort(*bodies) if u.op is Ops.BUFFER}
        try:
            yield both(
                f"random {seed}", bodies, opts, {s: a for s, a in case.arrays.items() if s in read}
            )
        except (TargetError, UsageError) as error:
            if opts is None or not (
                isinstance(error, TargetError) or any(r in str(error) for r in REFUSED)
            ):
                raise


def of_examples() -> Iterator[Pair]:
    for name, example in EXAMPLES.items():
        if example.order_dependent or not runs_here(example):
            continue
        there, here = example.arrays(), example.arrays()
        launch_example(name, there)
        emulate_example(name, here)
        written = sorted(example.expected(example.arrays()))
        yield name, [there[s] for s in written], [here[s] for s in written]


def different(a: Array, b: Array) -> int:
    """Elements whose bits differ and that are not both NaN."""
    a, b = a.reshape(-1), b.reshape(-1)
    wrong = (a.view(np.uint8) != b.view(np.uint8)).reshape(a.size, -1).any(axis=-1)
    if a.dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            wrong &= ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
    return int(wrong.sum())


def main() -> int:
    if why_no_gpu():
        print(why_no_gpu())
        return 3
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    total = [0, 0, 0]
    families: dict[str, Callable[[], Iterator[Pair]]] = {
        "suite, ops, exact functions": of_suite,
        "random kernels": lambda: of_chance(count),
        "hand-written kernels": of_examples,
    }
    print(f"{'':30}{'kernels':>10}{'elements':>14}{'different':>12}")
    for family, pairs in families.items():
        kernels = elements = wrong = 0
        for name, launched, emulated in pairs():
            here = sum(different(a, b) for a, b in zip(launched, emulated, strict=True))
            if here:
                print(f"  {name}: {here} elements differ")
            kernels, wrong = kernels + 1, wrong + here
            elements += sum(a.size for a in launched)
        print(f"{family:30}{kernels:>10}{elements:>14,}{wrong:>12}", flush=True)
        total = [total[0] + kernels, total[1] + elements, total[2] + wrong]
    print(f"{'all':30}{total[0]:>10}{total[1]:>14,}{total[2]:>12}")
    return 1 if total[2] else 0


if __name__ == "__main__":
    sys.exit(main())
