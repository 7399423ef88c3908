"""Kernels as text in all three languages: what goldens hold, and what must not change from run to
run.  As a script it prints a digest of each text, for a process with other hashes and addresses."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from tests.kernels import axpy, columns, param, product, softmax
from tests.random_kernels import random_case
from tests.three_ways import random_opts
from uopc.dtype import dtypes
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import compile, emulate, render_cuda
from uopc.uop.node import UOp

SUFFIX = {"c": ".c", "cuda": ".cu", "emulated": ".emulated.c"}


@dataclass(frozen=True)
class Example:
    """Bodies with the Opts of a GPU kernel and of a native one."""

    bodies: tuple[UOp, ...]
    gpu: Opts
    cpu: Opts


def _mixed() -> UOp:
    """Narrow integers that wrap, floor division, a shift and a cast."""
    a, b = (param(s, 50, dtype=dtypes.i16) for s in range(2))
    return ((a * b + 300) // b - (a >> 3)).cast(dtypes.u8)


EXAMPLES: dict[str, Example] = {
    "axpy": Example(
        (axpy(3, 100),),
        Opts(gpu=True, merge=(2,), local={0: 64}),
        Opts(merge=(2,)),
    ),
    "wide": Example(
        (param(0, 64, 130) * param(1, 64, 1).expand((64, 130)),),
        Opts(gpu=True, local={0: 4, 1: 16}, vector={1: 2}, lanes=(1, 0)),
        Opts(upcast={0: 2}, vector={1: 8}, thread=0),
    ),
    "padded": Example(
        (param(0, 30, 70).pad(((1, 2), (3, 0)), 7.0).permute((1, 0)).flip((0,)),),
        Opts(gpu=True, local={0: 16, 1: 8}, loop={1: 2}),
        Opts(tile={0: 8, 1: 8}),
    ),
    "softmax": Example(
        (softmax(param(0, 33, 1000)),),
        Opts(gpu=True, local={1: 64}, upcast={1: 4}, vector={1: 4}, lanes=(1, 0), blocks_per_sm=8),
        Opts(vector={1: 16}, thread=0),
    ),
    "argmax": Example(
        (param(0, 5, 777).argmax(1),),
        Opts(gpu=True, local={0: 2, 1: 64}, upcast={1: 2}, lanes=(1, 0)),
        Opts(vector={1: 8}),
    ),
    "columns": Example(
        (columns(param(0, 100, 48, dtype=dtypes.f16)),),
        Opts(gpu=True, local={0: 8, 1: 16}, vector={0: 2}, lanes=(0, 1)),
        Opts(vector={0: 16}),
    ),
    "product": Example(
        (product(64, 48, 100),),
        Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2, 1: 2, 2: 4}),
        Opts(upcast={0: 4}, vector={1: 8}, thread=0),
    ),
    "mixed": Example((_mixed(),), Opts(gpu=True, local={0: 32}), Opts()),
}


def texts(bodies: Sequence[UOp], gpu: Opts, cpu: Opts, name: str) -> dict[str, str]:
    """The kernel in each language; two launches of a split reduction follow each other."""
    steps = compile(bodies, gpu, "sm_80", name).steps
    return {
        "c": compile(bodies, cpu, "cpu", name).steps[0].source,
        "cuda": "\n".join(s.source for s in steps),
        "emulated": "\n".join(emulate(s.sink, s.source.name) for s in steps),
    }


def hand_written() -> dict[str, str]:
    """The product through shared memory, in the languages that have it."""
    sink = smem_gemm_ir(64, 16)
    return {"cuda": render_cuda(sink, "gemm"), "emulated": emulate(sink, "gemm")}


def random_texts(seed: int) -> dict[str, str]:
    """A random kernel under random Opts."""
    rng = random.Random(seed)
    bodies = random_case(rng, most=300).bodies
    gpu, cpu = (random_opts(rng, bodies, on_gpu) for on_gpu in (True, False))
    return texts(bodies, gpu, cpu, f"random{seed}")


def main(clutter: int, seeds: int) -> None:
    """Print a digest of each text, with so many other nodes built before."""
    kept = [param(0, 1 + n) * float(n) for n in range(clutter)]
    found = {name: texts(e.bodies, e.gpu, e.cpu, name) for name, e in EXAMPLES.items()}
    found["gemm"] = hand_written()
    found |= {f"random{seed}": random_texts(seed) for seed in range(seeds)}
    for name, languages in found.items():
        for language, text in languages.items():
            print(name, language, sha256(text.encode()).hexdigest())
    del kept


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
