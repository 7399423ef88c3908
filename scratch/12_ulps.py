"""How far exact functions of f32 are from the true value, over numbers of every exponent."""

from __future__ import annotations

import sys

import numpy as np

import uopc
from uopc.dtype import dtypes
from uopc.uop import Ops, buffer
from uopc.uop.node import alu, toposort
from uopc.uop.numbers import elementwise
from uopc.uop.ops import ELEMENTWISE

OPS = (Ops.EXP2, Ops.EXP, Ops.LOG2, Ops.LOG, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF)
STEP = int(sys.argv[1]) if len(sys.argv) > 1 else 1009  # 1 takes all 2^32 numbers and an hour
PIECE = 1 << 22
every = (1 << 32) // STEP
exact = uopc.Numerics(exact_math=True)


def worst(op: Ops, start: int, kernel: uopc.Kernel) -> tuple[float, float]:
    """(largest error in units of the last place, argument) from number `start` on."""
    bits = (start + np.arange(PIECE, dtype=np.uint64)) * STEP
    x = bits.astype(np.uint32).view(np.float32)  # beyond 2^32 it begins anew
    with np.errstate(all="ignore"):
        true = elementwise(op, dtypes.f64, [x.astype(np.float64)])
        got, rounded = kernel(x), true.astype(np.float32)
        finite = np.isfinite(rounded)
        assert np.array_equal(got[~finite], rounded[~finite], equal_nan=True)
        _, exponent = np.frexp(np.abs(true))
        unit = np.ldexp(1.0, np.maximum(exponent - 24, -149))
        error = np.where(finite, np.abs(got - true) / unit, 0.0)
    at = int(np.argmax(error))
    return float(error[at]), float(x[at])


print(f"{'':5} {'ulp':>5} {'at':>15} {'ops':>5}")
for op in OPS:
    kernel = uopc.compile(alu(op, buffer(0, dtypes.f32, (PIECE,))), target="cpu", numerics=exact)
    found = max(worst(op, start, kernel) for start in range(0, every, PIECE))
    order = toposort(kernel.steps[0].sink)
    ops = sum(u.op in ELEMENTWISE and u.dtype is not dtypes.index for u in order)
    print(f"{op.name.lower():5} {found[0]:5.2f} {found[1]:15.9g} {ops:5}")
