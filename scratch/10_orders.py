"""Each barrier of three kernels is taken out in turn: in which orders of warps does that show?"""

from __future__ import annotations

import numpy as np

from uopc.dtype import AddrSpace, dtypes
from uopc.gpu import emulate, gpu_lower, smem_gemm_ir
from uopc.opts import Opts
from uopc.passes.walk import replace
from uopc.runtime import Program
from uopc.uop import AxisType, Ops, ParamArg, UOp, buffer, range_, sink, toposort
from uopc.uop.numbers import Array

ORDERS = ("forward", "backward", "shuffled(1)", "shuffled(2)")


def subtract_first() -> UOp:
    """y[t] = x[t] - x[0]: thread 0 puts x[0] where all can read it."""
    x, y = buffer(0, dtypes.f32, (64,)), buffer(1, dtypes.f32, (64,))
    first = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (1,), AddrSpace.SHARED, "first"))
    t = range_(64, 0, AxisType.LOCAL)
    put = first.index(0).store(x.index(t).load(), t < 1)
    seen = first.after(put.barrier()).index(0).load()
    return sink(y.index(t).store(x.index(t).load() - seen))


def softmax() -> UOp:
    """Two rows of 512, a block of two warps a row."""
    x = buffer(0, dtypes.f32, (2, 512))
    e = (x - x.reduce(Ops.MAX).reshape((2, 1)).expand((2, 512))).exp()
    body = e / e.reduce(Ops.ADD).reshape((2, 1)).expand((2, 512))
    opts = Opts(gpu=True, local={1: 64}, upcast={1: 2}, vector={1: 4})
    return gpu_lower(body, buffer(1, dtypes.f32, (1024,)), opts)


def outcome(kernel: UOp, order: str) -> Array:
    source = emulate(kernel, "kern", order=order)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.size, np.float32) for p in source.params]
    Program(source)(*arrays)
    return next(a for a, p in zip(arrays, source.params, strict=True) if p.written)


kernels = {"subtract first": subtract_first(), "product": smem_gemm_ir(32, 8), "softmax": softmax()}
for name, kernel in kernels.items():
    want = outcome(kernel, "forward")
    assert all(np.array_equal(outcome(kernel, order), want) for order in ORDERS)
    barriers = [u for u in toposort(kernel) if u.op is Ops.BARRIER]
    for n, barrier in enumerate(barriers, 1):
        first, *others = barrier.src
        without = replace(kernel, {barrier: others[0].after(first) if others else first})
        wrong = [int((outcome(without, order) != want).sum()) for order in ORDERS]
        print(f"{name}, without barrier {n}: of {want.size} results wrong", end=" ")
        print(", ".join(f"{k} {order}" for k, order in zip(wrong, ORDERS, strict=True)))
