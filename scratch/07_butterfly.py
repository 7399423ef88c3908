"""A butterfly: after log2(n) exchanges every lane has combined all, and all have the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uopc.uop.numbers import Array

Combine = Callable[[Array, Array], Array]


def butterfly(values: Array, combine: Combine) -> Array:
    """values[l] is lane l's; SHUFFLE(x; mask) gives lane l what lane l ^ mask has."""
    lanes, mask = np.arange(len(values)), len(values) // 2
    while mask:
        values = combine(values, values[lanes ^ mask])
        mask //= 2
    return values


names = np.array([f"{lane}" for lane in range(8)], object)
print("lane 0 adds", butterfly(names, lambda a, b: "(" + a + "+" + b + ")")[0])
print("lane 5 adds", butterfly(names, lambda a, b: "(" + a + "+" + b + ")")[5])

x = np.random.default_rng(0).standard_normal(32).astype(np.float32)
sums = butterfly(x, np.add)
print("different sums among 32 lanes:", len(np.unique(sums.view(np.uint32))))
print("equal to the serial sum:", bool(sums[0] == np.add.accumulate(x)[-1]))

zeros = np.where(np.arange(32) % 3 == 0, np.float32(-0.0), np.float32(0.0))
naive = butterfly(zeros, lambda a, b: np.where(a > b, a, b))
ours = butterfly(zeros, lambda a, b: np.where(np.signbit(a), b, a))  # of zeros: -0 < +0
for name, got in (("a > b ? a : b", naive), ("-0 < +0", ours)):
    print(f"largest zero by {name}: {np.signbit(got).sum()} of 32 lanes say -0")
