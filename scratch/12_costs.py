"""What exact functions cost beside the library's: GPU instructions, bytes of stack, CPU time.

python scratch/12_costs.py      needs no GPU: instructions are counted in what NVRTC makes
"""

from __future__ import annotations

import re
import time

import numpy as np

import uopc
from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.runtime import compile_cubin
from uopc.uop import Ops, buffer
from uopc.uop.node import alu
from uopc.uop.numbers import Array

OPS = (Ops.EXP2, Ops.EXP, Ops.LOG2, Ops.LOG, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF)
BOTH = (uopc.Numerics(), uopc.Numerics(exact_math=True))
ARCH, N, ROUNDS = "sm_90a", 1 << 20, 7
GPU = Opts(gpu=True, local={0: 256})


def instructions(op: Ops, dtype: DType, numerics: uopc.Numerics) -> tuple[int, int]:
    """Of a kernel that applies the function once a thread; bytes of stack."""
    body = alu(op, buffer(0, dtype, (256,)))
    (step,) = uopc.compile(body, GPU, ARCH, "kern", numerics).steps
    cubin = compile_cubin(step.source, "kern", ARCH)
    found = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+\S", cubin.sass, re.M)
    return len(found), cubin.resources.stack_bytes


def nanoseconds(op: Ops, values: Array, numerics: uopc.Numerics) -> float:
    """An element, on one thread; the best of some rounds."""
    body = alu(op, buffer(0, uopc.dtype.from_numpy(values.dtype), values.shape))
    kernel, out = uopc.compile(body, Opts(), "cpu", "kern", numerics), np.empty_like(values)
    kernel(values, out=out)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        kernel(values, out=out)
        best = min(best, time.perf_counter() - start)
    return best / values.size * 1e9


def row(name: str, cells: list[str]) -> None:
    print(f"{name:24}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


row("library / exact", [op.name.lower() for op in OPS])
for dtype in (dtypes.f32, dtypes.f64):
    counts = {op: [instructions(op, dtype, n) for n in BOTH] for op in OPS}
    cells = [" / ".join(str(n) for n, _ in both) for both in counts.values()]
    row(f"{dtype}, instructions", cells)
    row(
        f"{dtype}, bytes of stack",
        [" / ".join(str(s) for _, s in both) for both in counts.values()],
    )
x = np.random.default_rng(0).uniform(0, 8, N)
for dtype in (dtypes.f32, dtypes.f64):
    values = x.astype(dtype.numpy)
    times = [[nanoseconds(op, values, n) for n in BOTH] for op in OPS]
    row(f"{dtype}, ns an element", [" / ".join(f"{t:.1f}" for t in both) for both in times])
