"""Kernels under several mappings, emulated: their launches, and whether the numbers are right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import uopc
from uopc.dtype import dtypes
from uopc.gpu import emulate, gpu_lower, gpu_opt_choice, launch_dims, smem_gemm_ir
from uopc.opts import Opts
from uopc.runtime import Program
from uopc.uop import Ops, UOp, buffer, prod
from uopc.uop.numbers import Array

rng = np.random.default_rng(0)


def show(name: str, kernel: UOp, inputs: Sequence[Array], want: Array, bound: float = 0) -> None:
    """Run a kernel whose last slot is its output, and compare."""
    (grid, block), out = launch_dims(kernel), np.zeros(want.size, np.float32)
    Program(emulate(kernel, "kern"))(*inputs, out)
    error = np.abs(out - want.ravel()).max()
    assert error <= bound, (name, error)
    verdict = f"within {bound:g}" if bound else "exact"
    print(f"{name:30} grid {grid!s:13} block {block!s:13} {verdict}")


def out(body: UOp, slot: int) -> UOp:
    return buffer(slot, dtypes.f32, (prod(body.shape),))


# elementwise: rows of 16 threads on the last axis
x, y = (rng.standard_normal((64, 128), np.float32) for _ in range(2))
body = buffer(0, dtypes.f32, (64, 128)) * 2.0 + buffer(1, dtypes.f32, (64, 128))
opts = Opts(gpu=True, local={0: 16, 1: 16})
show("a*2 + b, (64, 128)", gpu_lower(body, out(body, 2), opts), (x, y), x * 2 + y)

# one product, five ways
N = 64
a, b = (rng.standard_normal((N, N), np.float32) for _ in range(2))
exact = a.astype(np.float64) @ b.astype(np.float64)
left = buffer(0, dtypes.f32, (N, N)).reshape((N, 1, N)).expand((N, N, N))
right = buffer(1, dtypes.f32, (N, N)).permute((1, 0)).reshape((1, N, N)).expand((N, N, N))
body = (left * right).reduce(Ops.ADD)
for name, opts in (
    ("one thread a block", Opts(gpu=True)),
    ("8 x 16 threads", Opts(gpu=True, local={0: 8, 1: 16})),
    ("2 x 2 tiles", Opts(gpu=True, local={0: 16, 1: 16}, upcast={0: 2, 1: 2})),
    ("chosen", gpu_opt_choice(body)),
):
    kernel = gpu_lower(body, out(body, 2), opts)
    show(f"product, {name}", kernel, (a, b), exact, 2e-5)
show("product, shared memory", smem_gemm_ir(N, 16), (a, b), exact, 2e-5)

# shapes that fit badly, and many axes
for shape in ((3, 100), (8, 4, 64, 64), (1,), (31,), (97,), (1009, 1013)):
    x = rng.standard_normal(shape, np.float32)
    body = buffer(0, dtypes.f32, shape) * 2.0
    show(f"x*2, {shape}", gpu_lower(body, out(body, 1), gpu_opt_choice(body)), (x,), x * 2)

# a row's largest element, which the threads of the row find together
x = rng.standard_normal((16, 32), np.float32)
rows = buffer(0, dtypes.f32, (16, 32))
body = (rows - rows.reduce(Ops.MAX).reshape((16, 1)).expand((16, 32))).exp()
kernel = gpu_lower(body, out(body, 1), gpu_opt_choice(body))
show("softmax numerator, (16, 32)", kernel, (x,), np.exp(x - x.max(1, keepdims=True)), 1e-6)

# a sum that is split over blocks: the one that comes last folds
x = rng.standard_normal(100_003, np.float32)
total = uopc.compile(buffer(0, dtypes.f32, x.shape).reduce(Ops.ADD), target="emulated")
error = abs(float(total(x)) - x.sum(dtype=float)) / np.abs(x).sum(dtype=float)
launches = [f"{step.launch_dims[0][0]} x {step.launch_dims[1][0]}" for step in total.steps]
print(f"sum of {x.size}: blocks x threads {launches}, error below 2**-22: {error < 2**-22}")
