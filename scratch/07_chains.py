"""A float sum's error grows with its longest chain: one accumulator, many, and two levels."""

from __future__ import annotations

import numpy as np

import uopc
from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.uop import Ops, buffer

N = 1 << 20
x = np.full(N, 0.1, np.float32)  # all of one sign and size: roundings do not cancel
exact, unit = float(x[0]) * N, 2.0**-24
body = buffer(0, dtypes.f32, (N,)).reduce(Ops.ADD)
choices = {
    "one accumulator": Opts(),
    "16 accumulators": Opts(vector={0: 16}),
    "16, two levels": Opts(vector={0: 16}, tile={0: 256}),
}
print(f"{'':16} {'chain':>18} {'error':>9} {'bound':>9}")
for name, opts in choices.items():
    cut = opts.axis(0, N, reduced=True)
    chain = [k for k in (cut.tile, cut.loop, cut.vector) if k > 1]
    got = float(uopc.compile(body, opts, target="cpu")(x))
    error, bound = abs(got - exact) / exact, sum(chain) * unit
    assert error <= bound
    print(f"{name:16} {' + '.join(map(str, chain)):>18} {error:9.1e} {bound:9.1e}")

ones = np.ones(20_000, np.float16)
total = uopc.compile(buffer(0, dtypes.f16, ones.shape).reduce(Ops.ADD), target="cpu")(ones)
stuck = np.float16(0)
for one in ones:
    stuck = stuck + one
print(f"20000 ones in f16: {total}; added one by one in f16 they stop at {stuck}")
