"""a*b + c with one rounding and with two: where they differ, and which one a kernel does."""

from __future__ import annotations

import numpy as np

import uopc
from uopc.dtype import dtypes
from uopc.uop import Ops, buffer

N = 100_000
a, b, c = (np.random.default_rng(k).standard_normal(N, np.float32) for k in range(3))
x, y, z = (buffer(k, dtypes.f32, (N,)) for k in range(3))

twice = uopc.compile(x * y + z, target="cpu")(a, b, c)
once = uopc.compile(x.fma(y, z), target="cpu")(a, b, c)
print("two roundings are numpy's:", np.array_equal(twice, a * b + c))
print(f"one rounding differs in {np.mean(once != twice):.0%} of {N} results")

exact = a.astype(float) * a.astype(float)
left = uopc.compile(x.fma(x, -(x * x)), target="cpu")(a)
print("x*x - round(x*x) is the rounding error itself:", np.array_equal(left, exact - (a * a)))

total = uopc.compile((x * y).reduce(Ops.ADD), target="cpu")
print("a sum of products is fused by a pass:", "fmaf(" in total.source)
